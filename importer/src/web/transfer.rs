//! Brings a part of the image, or all of it, through whatever happens on the way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::answer::{self, ContentRange};
use super::client::{Client, Wanted, show};
use super::pump::Pump;
use super::queue::{Feed, ReaderGone};
use super::redirect::Place;
use super::retry::{Attempts, RetryPolicy};
use super::transport::{Body, Response};
use crate::error::{Error, Trouble};
use crate::pool::Pool;

/// What is known of the image, and how it is asked for.
pub(super) struct Terms {
    pub(super) client: Arc<Client>,
    pub(super) policy: RetryPolicy,
    pub(super) stall_timeout: Duration,
    pub(super) length: Option<u64>,
    pub(super) validator: Option<String>,
    /// The image's first bytes, kept from the first answer.
    pub(super) head: Bytes,
    /// What bodies are read into.
    pub(super) pool: Arc<Pool>,
}

/// Why a transfer stopped.
enum Stop {
    Failed(Error),
    /// Nobody reads on.
    Unwanted,
}

impl From<ReaderGone> for Stop {
    fn from(_: ReaderGone) -> Self {
        Self::Unwanted
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Sends the bytes from `at` to `end`, of an image of which any part can be asked for.
pub(super) async fn part(terms: Arc<Terms>, at: u64, end: u64, feed: Feed) {
    let mut work = Part { terms: &terms, at, end };
    match work.run(&feed).await {
        Ok(()) => feed.complete(),
        Err(Stop::Failed(error)) => feed.fail(error),
        Err(Stop::Unwanted) => {}
    }
}

/// Sends the image from `feed`'s first byte to its last, of which only the whole can be asked for. `body` is an answer
/// that has begun; `sent` went to the reader before.
pub(super) async fn whole(terms: Arc<Terms>, body: Option<Body>, sent: Bytes, feed: Feed) {
    let mut prefix = Prefix::default();
    prefix.add(&sent);
    let mut work = Whole { terms: &terms, prefix, length: terms.length };
    match work.run(body, &feed).await {
        Ok(()) => feed.complete(),
        Err(Stop::Failed(error)) => feed.fail(error),
        Err(Stop::Unwanted) => {}
    }
}

struct Part<'a> {
    terms: &'a Terms,
    /// The first byte that is still missing.
    at: u64,
    end: u64,
}

impl Part<'_> {
    async fn run(&mut self, feed: &Feed) -> Result<(), Stop> {
        let mut attempts = Attempts::new(&self.terms.policy);
        while self.at < self.end {
            let before = self.at;
            let patience = attempts.patience(self.terms.stall_timeout);
            let result = self.attempt(patience, feed).await;
            if self.at > before {
                attempts.progress();
            }
            match result {
                Ok(()) => {}
                Err(Stop::Failed(error)) => {
                    feed.flush();
                    attempts.wait_after(error, &self.terms.client.name(), self.at).await?;
                }
                Err(Stop::Unwanted) => return Err(Stop::Unwanted),
            }
        }
        Ok(())
    }

    /// One request, and as much of its answer as comes.
    async fn attempt(&mut self, patience: Duration, feed: &Feed) -> Result<(), Stop> {
        let Terms { client, validator, .. } = self.terms;
        let wanted = Wanted { part: Some((self.at, self.end)), validator: validator.clone() };
        let (response, place) = client.get(&wanted, patience).await?;
        let end = self.terms.judge_part(self.at, self.end, &response, &place)?;
        let mut pump = Pump::new(response.body, feed, &self.terms.pool);
        while self.at < end {
            let next = pump.next().await.map_err(|source| failed(&place, source))?;
            let Some(mut bytes) = next else {
                return Err(short(&pump.body, &place, end - self.at).into());
            };
            // More than announced would be other bytes than those asked for: never passed on.
            bytes.truncate(usize::try_from(end - self.at).unwrap_or(usize::MAX));
            self.at += bytes.len() as u64;
            feed.send(bytes).await?;
        }
        Ok(())
    }
}

struct Whole<'a> {
    terms: &'a Terms,
    /// What the reader has.
    prefix: Prefix,
    /// Bytes of the image, once an answer has said.
    length: Option<u64>,
}

impl Whole<'_> {
    async fn run(&mut self, mut body: Option<Body>, feed: &Feed) -> Result<(), Stop> {
        let mut attempts = Attempts::new(&self.terms.policy);
        loop {
            let before = self.prefix.len;
            let patience = attempts.patience(self.terms.stall_timeout);
            let result = match body.take() {
                Some(body) => {
                    let place = self.terms.client.place();
                    self.pass_on(body, &place, feed).await
                }
                None => self.ask_again(patience, feed).await,
            };
            if self.prefix.len > before {
                attempts.progress();
            }
            match result {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(error)) => {
                    feed.flush();
                    attempts.wait_after(error, &self.terms.client.name(), self.prefix.len).await?;
                }
                Err(Stop::Unwanted) => return Err(Stop::Unwanted),
            }
        }
    }

    async fn ask_again(&mut self, patience: Duration, feed: &Feed) -> Result<(), Stop> {
        let client = &self.terms.client;
        let (response, place) = client.get(&Wanted::default(), patience).await?;
        if response.status != StatusCode::OK {
            return Err(client.refusal(&response, &place).into());
        }
        self.terms.same_validator(&response)?;
        let length = answer::content_length(&response.headers);
        if let (Some(before), Some(after)) = (self.length, length)
            && before != after
        {
            return Err(self.terms.changed(bytes_long(before), bytes_long(after)).into());
        }
        self.length = self.length.or(length);
        self.pass_on(response.body, &place, feed).await
    }

    /// Passes on what the reader does not have yet. What it has is read past, and has to be the same.
    async fn pass_on(&mut self, body: Body, place: &Place, feed: &Feed) -> Result<(), Stop> {
        let mut seen = Prefix::default();
        let mut pump = Pump::new(body, feed, &self.terms.pool);
        while let Some(mut bytes) = pump.next().await.map_err(|source| failed(place, source))? {
            if seen.len < self.prefix.len {
                let room = usize::try_from(self.prefix.len - seen.len).unwrap_or(usize::MAX);
                seen.add(&bytes.split_to(room.min(bytes.len())));
                if seen.len == self.prefix.len && seen.sum() != self.prefix.sum() {
                    return Err(self.terms.changed(self.prefix.describe(), seen.describe()).into());
                }
            }
            if !bytes.is_empty() {
                self.prefix.add(&bytes);
                seen = self.prefix.clone();
                feed.send(bytes).await?;
            }
        }
        // HTTP's own framing told the end; with a length it has to agree.
        let end = self.length.unwrap_or(self.prefix.len);
        let got = seen.len;
        if got < end {
            return Err(short(&pump.body, place, end - got).into());
        }
        if got > end {
            return Err(self.terms.changed(bytes_long(end), bytes_long(got)).into());
        }
        Ok(())
    }
}

impl Terms {
    /// Where the answer to a request for `at..end` will end, if it is part of the image that was there at first.
    fn judge_part(
        &self,
        at: u64,
        end: u64,
        response: &Response,
        place: &Place,
    ) -> Result<u64, Error> {
        let nonsense = |because: String| Error::Answer { url: show(place), because };
        let range = ContentRange::of(&response.headers);
        match response.status {
            StatusCode::PARTIAL_CONTENT => {
                self.same_validator(response)?;
                let range = range.ok_or_else(|| nonsense("206 without a Content-Range".into()))?;
                if let (Some(before), Some(after)) = (self.length, range.total)
                    && before != after
                {
                    return Err(self.changed(bytes_long(before), bytes_long(after)));
                }
                match range.part {
                    // Less than asked for is allowed; the rest is then asked for again.
                    Some((first, last)) if first == at && last < end => Ok(last + 1),
                    _ => Err(nonsense(format!("206 with another range than {at}-{}", end - 1))),
                }
            }
            // The answer to `If-Range` when it is another image now.
            StatusCode::OK => {
                self.same_validator(response)?;
                match answer::content_length(&response.headers) {
                    Some(after) if self.length.is_some_and(|before| before != after) => Err(self
                        .changed(bytes_long(self.length.unwrap_or_default()), bytes_long(after))),
                    _ => Err(Error::RangeIgnored { url: show(place) }),
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.same_validator(response)?;
                match (self.length, range.and_then(|range| range.total)) {
                    (Some(before), Some(after)) if before != after => {
                        Err(self.changed(bytes_long(before), bytes_long(after)))
                    }
                    _ => Err(self.client.refusal(response, place)),
                }
            }
            _ => Err(self.client.refusal(response, place)),
        }
    }

    fn same_validator(&self, response: &Response) -> Result<(), Error> {
        let Some(before) = &self.validator else { return Ok(()) };
        match answer::contradicts(before, &response.headers) {
            None => Ok(()),
            Some(after) => Err(self.changed(before.clone(), after)),
        }
    }

    fn changed(&self, before: String, after: String) -> Error {
        Error::Changed { name: self.client.name().to_string(), before, after }
    }
}

fn failed(place: &Place, source: Trouble) -> Error {
    Error::Transport { url: show(place), source }
}

fn short(body: &Body, place: &Place, missing: u64) -> Error {
    failed(place, Trouble::Short { host: body.host().to_owned(), missing })
}

fn bytes_long(length: u64) -> String {
    format!("{length} bytes long")
}

/// What the reader has: so many bytes, and what they add up to. Enough to notice that a server which knows no ranges
/// sends something else the second time.
#[derive(Clone, Default)]
struct Prefix {
    len: u64,
    sum: crc32fast::Hasher,
}

impl Prefix {
    fn add(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.sum.update(bytes);
    }

    fn sum(&self) -> u32 {
        self.sum.clone().finalize()
    }

    fn describe(&self) -> String {
        format!("an image whose first {} bytes have the CRC {:08x}", self.len, self.sum())
    }
}
