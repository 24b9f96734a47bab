//! One resumable upload: after an interruption, only bytes that have not arrived are sent again.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use pipeline::{Progress, ProgressPhase};
use tokio::sync::mpsc::{Sender, channel};
use url::Url;

use super::image::{CHUNK, Image};
use super::wire::{HttpResponse, Server, empty, streamed};

const PATH: &str = "v1beta1/upload-resumable";
const VERSION: HeaderName = HeaderName::from_static("tus-resumable");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Compressed frames between disk and network.
const FRAMES_IN_FLIGHT: usize = 4;
const DELAY: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Returns a currently valid token.
pub type TokenSource<'a> = dyn FnMut() -> Result<HeaderValue> + 'a;

/// One upload.
pub struct Transfer<'a> {
    pub server: &'a Server,
    pub image: Arc<Mutex<Image>>,
    pub length: u64,
    pub fingerprint: String,
    /// Send the checksum, which the server verifies.
    pub verify: bool,
    /// Time without progress after which the upload fails.
    pub patience: Duration,
    pub tokens: &'a mut TokenSource<'a>,
    pub progress: &'a Arc<Progress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadResult {
    /// Bytes of request bodies.
    pub wire: u64,
    /// Bytes of the image that an earlier run had uploaded.
    pub found: u64,
    /// Number of interruptions.
    pub breaks: u32,
    /// `sha256:…`, verified by the server.
    pub checksum: Option<String>,
}

/// The state between two attempts.
struct State {
    token: HeaderValue,
    /// URL of the upload, once created.
    url: Option<Url>,
    /// The server's last offset.
    arrived: Option<u64>,
    /// The last byte was sent: the upload may be complete although no response came.
    is_sent: bool,
    /// A new token was refused.
    is_refused: bool,
    sent: UploadResult,
}

/// Why an attempt has ended.
enum AttemptEnd {
    Retry(Error),
    Final(Error),
    Complete,
}

impl From<Error> for AttemptEnd {
    fn from(error: Error) -> Self {
        Self::Retry(error)
    }
}

impl Transfer<'_> {
    /// Returns once the server has confirmed that the disk is durable.
    ///
    /// # Errors
    /// When the server refuses the upload, or there is no progress for `patience`.
    pub async fn run(mut self) -> Result<UploadResult> {
        let token = (self.tokens)()?;
        let (url, arrived) = (None, None);
        let sent = UploadResult::default();
        let mut state = State { token, url, arrived, is_sent: false, is_refused: false, sent };
        let (mut delay, mut since) = (DELAY, Instant::now());
        loop {
            let before = state.arrived;
            let stop = match self.attempt(&mut state).await {
                Ok(()) => AttemptEnd::Complete,
                Err(stop) => stop,
            };
            let error = match stop {
                AttemptEnd::Complete => {
                    self.progress.enter(ProgressPhase::Done);
                    return Ok(state.sent);
                }
                AttemptEnd::Final(error) => return Err(error),
                AttemptEnd::Retry(error) => error,
            };
            if state.arrived > before {
                (delay, since) = (DELAY, Instant::now());
            } else if since.elapsed() >= self.patience {
                let seconds = self.patience.as_secs();
                return Err(error.context(format!("no progress for {seconds} s")));
            }
            state.sent.breaks += 1;
            tokio::time::sleep(delay).await;
            delay = DELAY_MAX.min(delay * 2);
        }
    }

    /// One attempt from the server's offset to the end.
    async fn attempt(&mut self, state: &mut State) -> Result<(), AttemptEnd> {
        let url = match state.url.clone() {
            Some(url) => url,
            None => {
                let url = self.create(state).await?;
                state.url = Some(url.clone());
                url
            }
        };
        let response = self.request(state, Method::HEAD, &url, vec![]).await?;
        let at = self.parse_offset(state, response, StatusCode::OK)?;
        if state.sent.breaks == 0 {
            state.sent.found = at;
        }
        self.show(at);
        self.progress.enter(ProgressPhase::Transferring);
        let mut at = at;
        // The checksum is known once the whole file was read, so it is sent with the last chunk.
        let last = if self.verify { self.length.saturating_sub(CHUNK) } else { self.length };
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
        if at == self.length {
            Ok(())
        } else {
            Err(AttemptEnd::Retry(anyhow!("the server has received only {at} bytes")))
        }
    }

    async fn create(&mut self, state: &mut State) -> Result<Url, AttemptEnd> {
        let url = self.server.at(PATH).map_err(AttemptEnd::Final)?;
        let fingerprint = STANDARD.encode(&self.fingerprint);
        let headers = vec![
            (LENGTH, self.length.into()),
            value(METADATA, &format!("fingerprint {fingerprint}"))?,
        ];
        let response = self.request(state, Method::POST, &url, headers).await?;
        match response.status {
            StatusCode::OK | StatusCode::CREATED => {
                let found = response.headers.get(LOCATION).and_then(|found| found.to_str().ok());
                let found = found.context("the proxy's response has no Location")?;
                self.server.follow(&url, found).map_err(AttemptEnd::Final)
            }
            StatusCode::NOT_FOUND => Err(AttemptEnd::Final(anyhow!(
                "the upload proxy does not support resumable uploads: use `virtctl image-upload`"
            ))),
            StatusCode::CONFLICT => Err(complete_or_conflict(state)),
            _ => Err(classify_response(state, response)),
        }
    }

    /// Sends the bytes from `at` to `end`. Returns the server's new offset.
    async fn send(
        &mut self,
        state: &mut State,
        url: &Url,
        at: u64,
        end: u64,
        digest: Option<String>,
    ) -> Result<u64, AttemptEnd> {
        let mut headers = vec![
            (OFFSET, at.into()),
            value(CONTENT_TYPE, "application/offset+octet-stream")?,
            value(CONTENT_ENCODING, "zstd")?,
            value(VERSION, "1.0.0")?,
        ];
        if let Some(digest) = digest {
            headers.push(value(DIGEST, &digest)?);
        }
        let (sender, pieces) = channel(FRAMES_IN_FLIGHT);
        let (image, progress) = (Arc::clone(&self.image), Arc::clone(self.progress));
        let packing =
            tokio::task::spawn_blocking(move || pack(&image, at..end, &sender, &progress));
        let body = streamed(pieces);
        let response = self.server.request(Method::PATCH, url, &state.token, headers, body).await;
        let frames = packing.await.context("the reading thread ended early")?;
        state.sent.wire += frames.context("cannot read the image").map_err(AttemptEnd::Final)?;
        self.parse_offset(state, response?, StatusCode::NO_CONTENT)
    }

    async fn request(
        &mut self,
        state: &mut State,
        method: Method,
        url: &Url,
        mut headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<HttpResponse, AttemptEnd> {
        headers.push(value(VERSION, "1.0.0")?);
        let response = self.server.request(method, url, &state.token, headers, empty()).await?;
        if response.status == StatusCode::UNAUTHORIZED && !state.is_refused {
            // Most likely it has expired. If a new one is refused, too, the upload fails.
            state.is_refused = true;
            state.token = (self.tokens)().map_err(AttemptEnd::Final)?;
        } else if response.status != StatusCode::UNAUTHORIZED {
            state.is_refused = false;
        } else {
            return Err(AttemptEnd::Final(anyhow!("the upload proxy refused the token")));
        }
        Ok(response)
    }

    /// The offset in the server's response.
    fn parse_offset(
        &self,
        state: &mut State,
        response: HttpResponse,
        expected: StatusCode,
    ) -> Result<u64, AttemptEnd> {
        if response.status != expected {
            if matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
                state.url = None; // a new upload is created
            }
            return Err(classify_response(state, response));
        }
        let at = response.number(OFFSET.as_str()).filter(|at| *at <= self.length);
        let at = at.context("the server's response has no valid Upload-Offset")?;
        state.arrived = Some(at); // may be less than before, if the server lost data
        Ok(at)
    }

    async fn checksum(&self) -> Result<Option<contract::Checksum>, AttemptEnd> {
        let image = Arc::clone(&self.image);
        let reading = tokio::task::spawn_blocking(move || {
            let mut image = image.lock();
            let checksum = image.checksum().context("cannot read the image")?;
            image.check_unchanged()?;
            Ok::<_, Error>(checksum)
        });
        let checksum = reading.await.context("the reading thread ended early")?;
        checksum.map_err(AttemptEnd::Final)
    }

    fn show(&self, at: u64) {
        show(self.progress, at);
    }
}

// Displayed progress never decreases.
fn show(progress: &Progress, at: u64) {
    progress.add_read(at.saturating_sub(progress.snapshot().read));
}

/// Sends frames to the channel until it is closed. Returns their total length.
fn pack(
    image: &Mutex<Image>,
    range: std::ops::Range<u64>,
    sender: &Sender<io::Result<Bytes>>,
    progress: &Progress,
) -> io::Result<u64> {
    let mut image = image.lock();
    let (mut at, mut wire) = (range.start, 0);
    while at < range.end {
        let frames = match image.pack(at, range.end) {
            Ok(frames) => frames,
            Err(error) => {
                // Without this error the body would end as if complete.
                let broken = io::Error::other("cannot read the image");
                let _ = sender.blocking_send(Err(broken));
                return Err(error);
            }
        };
        let length = frames.frame.len() as u64;
        if sender.blocking_send(Ok(frames.frame)).is_err() {
            break;
        }
        (at, wire) = (at + frames.length, wire + length);
        show(progress, at);
    }
    Ok(wire)
}

fn value(name: HeaderName, text: &str) -> Result<(HeaderName, HeaderValue), AttemptEnd> {
    let value = HeaderValue::from_str(text).context("invalid header value")?;
    Ok((name, value))
}

/// The volume is complete. So is this upload, if its last byte was sent and only the response was lost.
fn complete_or_conflict(state: &State) -> AttemptEnd {
    if state.is_sent {
        AttemptEnd::Complete
    } else {
        AttemptEnd::Final(anyhow!("the volume is complete already"))
    }
}

/// Whether an unexpected response permits a retry. Matches texts of the upload proxy, which are upstream CDI's.
fn classify_response(state: &State, response: HttpResponse) -> AttemptEnd {
    let text = response.text.trim();
    let status = response.status;
    let error = if text.is_empty() {
        anyhow!("the server responded {status}")
    } else {
        anyhow!("{}", plain(text)).context(format!("the server responded {status}"))
    };
    let never = ["is not an upload target", "that doesn&#39;t exist", "takes an archive"];
    match status.as_u16() {
        503 if text.contains("already finished uploading") => complete_or_conflict(state),
        503 if never.iter().any(|never| text.contains(never)) => AttemptEnd::Final(error),
        401 | 404 | 408 | 409 | 410 | 423 | 429 | 502..=504 => AttemptEnd::Retry(error),
        _ => AttemptEnd::Final(error),
    }
}

/// Removes HTML escapes.
fn plain(text: &str) -> String {
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&#34;", "\""), ("&amp;", "&")];
    escapes.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(is_sent: bool) -> State {
        let token = HeaderValue::from_static("Bearer x");
        let sent = UploadResult::default();
        State { token, url: None, arrived: None, is_sent, is_refused: false, sent }
    }

    #[test]
    fn response_classification_table() {
        let finished = "rejecting Upload Request for PVC d that already finished uploading";
        let missing = "rejecting Upload Request for PVC d that doesn&#39;t exist";
        for (status, text, is_sent, expected) in [
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
            let stop = classify_response(
                &state(is_sent),
                HttpResponse { status, headers, text: text.into() },
            );
            let found = match &stop {
                AttemptEnd::Retry(_) => "passing",
                AttemptEnd::Final(_) => "final",
                AttemptEnd::Complete => "complete",
            };
            assert_eq!(found, expected, "{status} {text}");
        }
        assert_eq!(plain("PVC&#39; &lt;b&gt; &amp;lt;"), "PVC' <b> &lt;");
    }
}
