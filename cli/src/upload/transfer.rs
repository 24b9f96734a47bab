//! Sending an image so that nothing is sent twice that has arrived, whatever happens on the way.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use pipeline::{Progress, ProgressPhase};
use tokio::sync::mpsc::{Sender, channel};
use url::Url;

use super::image::{Image, PIECE};
use super::wire::{Answer, Server, empty, streamed};

const PATH: &str = "v1beta1/upload-resumable";
const VERSION: HeaderName = HeaderName::from_static("tus-resumable");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Packed pieces between the disk and the network.
const PIECES_IN_FLIGHT: usize = 4;
const DELAY: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Gets a token that is good from now on.
pub type Tokens<'a> = dyn FnMut() -> Result<HeaderValue> + 'a;

/// One upload.
pub struct Transfer<'a> {
    pub server: &'a Server,
    pub image: Arc<Mutex<Image>>,
    pub length: u64,
    pub fingerprint: String,
    /// The server is told what all of it has to hash to.
    pub verify: bool,
    /// How long nothing may arrive before it is given up.
    pub patience: Duration,
    pub tokens: &'a mut Tokens<'a>,
    pub progress: &'a Arc<Progress>,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes on the wire, of bodies.
    pub wire: u64,
    /// Bytes of the image that an earlier upload had sent.
    pub found: u64,
    /// How often it was interrupted.
    pub breaks: u32,
    /// `sha256:…`, as the server has compared it.
    pub checksum: Option<String>,
}

/// What is known between two attempts.
struct State {
    token: HeaderValue,
    /// Where the upload is, once the server has said so.
    url: Option<Url>,
    /// As much has arrived, by what the server has said last.
    arrived: Option<u64>,
    /// The last byte was sent: it may be complete, although no answer came.
    is_sent: bool,
    /// A token was refused that was new.
    is_refused: bool,
    sent: Sent,
}

/// Why an attempt has ended.
enum Stop {
    /// Another one may do better.
    Passing(Error),
    /// None will.
    Final(Error),
    /// It is complete.
    Complete,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Passing(error)
    }
}

impl Transfer<'_> {
    /// Returns once the server has said that all of it is durable.
    ///
    /// # Errors
    /// When the server refuses it, or nothing arrives any more.
    pub async fn run(mut self) -> Result<Sent> {
        let token = (self.tokens)()?;
        let (url, arrived) = (None, None);
        let sent = Sent::default();
        let mut state = State { token, url, arrived, is_sent: false, is_refused: false, sent };
        let (mut delay, mut since) = (DELAY, Instant::now());
        loop {
            let before = state.arrived;
            let stop = match self.attempt(&mut state).await {
                Ok(()) => Stop::Complete,
                Err(stop) => stop,
            };
            let error = match stop {
                Stop::Complete => {
                    self.progress.enter(ProgressPhase::Done);
                    return Ok(state.sent);
                }
                Stop::Final(error) => return Err(error),
                Stop::Passing(error) => error,
            };
            if state.arrived > before {
                (delay, since) = (DELAY, Instant::now());
            } else if since.elapsed() >= self.patience {
                let seconds = self.patience.as_secs();
                return Err(error.context(format!("nothing has arrived for {seconds} s")));
            }
            state.sent.breaks += 1;
            tokio::time::sleep(delay).await;
            delay = DELAY_MAX.min(delay * 2);
        }
    }

    /// From where the server is to the end.
    async fn attempt(&mut self, state: &mut State) -> Result<(), Stop> {
        let url = match state.url.clone() {
            Some(url) => url,
            None => {
                let url = self.create(state).await?;
                state.url = Some(url.clone());
                url
            }
        };
        let answer = self.ask(state, Method::HEAD, &url, vec![]).await?;
        let at = self.arrived(state, answer, StatusCode::OK)?;
        if state.sent.breaks == 0 {
            state.sent.found = at;
        }
        self.show(at);
        self.progress.enter(ProgressPhase::Transferring);
        let mut at = at;
        // What all of it hashes to is known once all of it was read, so it goes with the end.
        let last = if self.verify { self.length.saturating_sub(PIECE) } else { self.length };
        if at < last {
            state.is_sent = last == self.length;
            at = self.send(state, &url, at, last, None).await?;
        }
        if at < self.length {
            let checksum = self.checksum().await?;
            self.progress.enter(ProgressPhase::Finishing);
            state.sent.checksum = checksum.map(|checksum| checksum.to_string());
            let digest =
                checksum.map(|checksum| format!("sha-256=:{}:", STANDARD.encode(checksum.hash())));
            state.is_sent = true;
            at = self.send(state, &url, at, self.length, digest).await?;
        }
        match at == self.length {
            true => Ok(()),
            false => Err(Stop::Passing(anyhow!("the server has taken {at} bytes only"))),
        }
    }

    async fn create(&mut self, state: &mut State) -> Result<Url, Stop> {
        let url = self.server.at(PATH).map_err(Stop::Final)?;
        let fingerprint = STANDARD.encode(&self.fingerprint);
        let headers = vec![
            (LENGTH, self.length.into()),
            value(METADATA, &format!("fingerprint {fingerprint}"))?,
        ];
        let answer = self.ask(state, Method::POST, &url, headers).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => {
                let found = answer.headers.get(LOCATION).and_then(|found| found.to_str().ok());
                let found = found.context("the proxy does not say where the upload is")?;
                self.server.follow(&url, found).map_err(Stop::Final)
            }
            StatusCode::NOT_FOUND => Err(Stop::Final(anyhow!(
                "this upload proxy knows no uploads that can be gone on with; `virtctl image-upload` needs none"
            ))),
            StatusCode::CONFLICT => Err(complete(state)),
            _ => Err(refused(state, answer)),
        }
    }

    /// What is from `at` on, before `end`. Returns where the server then is.
    async fn send(
        &mut self,
        state: &mut State,
        url: &Url,
        at: u64,
        end: u64,
        digest: Option<String>,
    ) -> Result<u64, Stop> {
        let mut headers = vec![
            (OFFSET, at.into()),
            value(CONTENT_TYPE, "application/offset+octet-stream")?,
            value(CONTENT_ENCODING, "zstd")?,
            value(VERSION, "1.0.0")?,
        ];
        if let Some(digest) = digest {
            headers.push(value(DIGEST, &digest)?);
        }
        let (sender, pieces) = channel(PIECES_IN_FLIGHT);
        let (image, progress) = (Arc::clone(&self.image), Arc::clone(self.progress));
        let packing =
            tokio::task::spawn_blocking(move || pack(&image, at..end, &sender, &progress));
        let body = streamed(pieces);
        let asked = self.server.ask(Method::PATCH, url, &state.token, headers, body).await;
        let packed = packing.await.context("the thread that reads has ended early")?;
        state.sent.wire += packed.context("cannot read the image").map_err(Stop::Final)?;
        self.arrived(state, asked?, StatusCode::NO_CONTENT)
    }

    async fn ask(
        &mut self,
        state: &mut State,
        method: Method,
        url: &Url,
        mut headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<Answer, Stop> {
        headers.push(value(VERSION, "1.0.0")?);
        let answer = self.server.ask(method, url, &state.token, headers, empty()).await?;
        if answer.status == StatusCode::UNAUTHORIZED && !state.is_refused {
            // It has expired, most likely. One that is new and refused as well ends it.
            state.is_refused = true;
            state.token = (self.tokens)().map_err(Stop::Final)?;
        } else if answer.status != StatusCode::UNAUTHORIZED {
            state.is_refused = false;
        } else {
            return Err(Stop::Final(anyhow!("the token is not believed")));
        }
        Ok(answer)
    }

    /// Where the server says that it is.
    fn arrived(
        &self,
        state: &mut State,
        answer: Answer,
        expected: StatusCode,
    ) -> Result<u64, Stop> {
        if answer.status != expected {
            if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
                state.url = None; // it is begun anew
            }
            return Err(refused(state, answer));
        }
        let at = answer.number(OFFSET.as_str()).filter(|at| *at <= self.length);
        let at = at.context("the server does not say how much has arrived")?;
        state.arrived = Some(at); // less than before, where a server has lost what it had
        Ok(at)
    }

    async fn checksum(&self) -> Result<Option<contract::Checksum>, Stop> {
        let image = Arc::clone(&self.image);
        let reading = tokio::task::spawn_blocking(move || {
            let mut image = image.lock().unwrap_or_else(PoisonError::into_inner);
            let checksum = image.checksum().context("cannot read the image")?;
            image.check_unchanged()?;
            Ok::<_, Error>(checksum)
        });
        let checksum = reading.await.context("the thread that reads has ended early")?;
        checksum.map_err(Stop::Final)
    }

    fn show(&self, at: u64) {
        show(self.progress, at);
    }
}

/// It may never go back.
fn show(progress: &Progress, at: u64) {
    progress.add_read(at.saturating_sub(progress.snapshot().read));
}

/// Puts frames into the channel for as long as somebody takes them. Returns how long they were.
fn pack(
    image: &Mutex<Image>,
    range: std::ops::Range<u64>,
    sender: &Sender<io::Result<Bytes>>,
    progress: &Progress,
) -> io::Result<u64> {
    let mut image = image.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut at, mut wire) = (range.start, 0);
    while at < range.end {
        let packed = match image.pack(at, range.end) {
            Ok(packed) => packed,
            Err(error) => {
                // Without this the body would have a good end.
                let broken = io::Error::other("the image cannot be read");
                let _ = sender.blocking_send(Err(broken));
                return Err(error);
            }
        };
        let length = packed.frame.len() as u64;
        if sender.blocking_send(Ok(packed.frame)).is_err() {
            break;
        }
        (at, wire) = (at + packed.length, wire + length);
        show(progress, at);
    }
    Ok(wire)
}

fn value(name: HeaderName, text: &str) -> Result<(HeaderName, HeaderValue), Stop> {
    let value = HeaderValue::from_str(text).context("a header cannot be made")?;
    Ok((name, value))
}

/// The volume is complete. So is this upload, if its last byte was sent and only the answer was lost.
fn complete(state: &State) -> Stop {
    match state.is_sent {
        true => Stop::Complete,
        false => Stop::Final(anyhow!("the volume is complete already")),
    }
}

/// What to make of an answer that is none of those hoped for.
fn refused(state: &State, answer: Answer) -> Stop {
    let words = answer.words.trim();
    let status = answer.status;
    let said = match words.is_empty() {
        true => anyhow!("the server answered {status}"),
        false => anyhow!("{}", plain(words)).context(format!("the server answered {status}")),
    };
    let never = ["is not an upload target", "that doesn&#39;t exist", "takes an archive"];
    match status.as_u16() {
        503 if words.contains("already finished uploading") => complete(state),
        503 if never.iter().any(|never| words.contains(never)) => Stop::Final(said),
        401 | 404 | 408 | 409 | 410 | 423 | 429 | 502..=504 => Stop::Passing(said),
        _ => Stop::Final(said),
    }
}

/// Without the escapes that make it harmless in a page.
fn plain(text: &str) -> String {
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&#34;", "\""), ("&amp;", "&")];
    escapes.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(is_sent: bool) -> State {
        let token = HeaderValue::from_static("Bearer x");
        let sent = Sent::default();
        State { token, url: None, arrived: None, is_sent, is_refused: false, sent }
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let finished = "rejecting Upload Request for PVC d that already finished uploading";
        let missing = "rejecting Upload Request for PVC d that doesn&#39;t exist";
        for (status, words, is_sent, expected) in [
            (503, "context deadline exceeded", false, "passing"),
            (502, "", false, "passing"),
            (409, "", false, "passing"),
            (423, "", false, "passing"),
            (404, "", false, "passing"),
            (503, missing, false, "final"),
            (503, finished, false, "final"),
            (503, finished, true, "complete"),
            (400, "too large", true, "final"),
            (413, "", false, "final"),
            (500, "", false, "final"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let headers = http::HeaderMap::new();
            let stop = refused(&state(is_sent), Answer { status, headers, words: words.into() });
            let found = match &stop {
                Stop::Passing(_) => "passing",
                Stop::Final(_) => "final",
                Stop::Complete => "complete",
            };
            assert_eq!(found, expected, "{status} {words}");
        }
        assert_eq!(plain("PVC&#39; &lt;b&gt; &amp;lt;"), "PVC' <b> &lt;");
    }
}
