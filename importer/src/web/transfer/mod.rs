//! Brings a part of the image, or all of it, through whatever happens on the way.

mod judge;
mod pace;
mod parallel;
mod part;
mod pump;
mod whole;

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use pipeline::Pool;
pub(super) use pump::PIECE_LEN;

use super::client::{Client, show};
use super::queue::{Feed, ReaderGone};
use super::redirect::Place;
use super::retry::RetryPolicy;
use super::transport::Body;
use crate::error::{Error, Trouble};
use crate::receive_limit::ReceiveLimit;

/// What is known of the image, and how it is asked for.
pub(super) struct Terms {
    pub(super) client: Arc<Client>,
    pub(super) policy: RetryPolicy,
    pub(super) stall_timeout: Duration,
    pub(super) length: Option<u64>,
    /// What `If-Range` is sent with.
    pub(super) validator: Option<String>,
    /// What must not differ between two answers; weaker than a validator where there is none.
    pub(super) mark: Option<String>,
    /// The image's first bytes, kept from the first answer.
    pub(super) head: Bytes,
    /// What bodies are read into.
    pub(super) pool: Arc<Pool>,
    pub(super) receive_limit: ReceiveLimit,
    /// The most connections at a time.
    pub(super) streams_max: usize,
    /// How often it is considered whether more connections would help.
    pub(super) pace_interval: Duration,
}

/// Sends the bytes from `at` to `end`, of an image of which any part can be asked for.
pub(super) async fn part(terms: Arc<Terms>, at: u64, end: u64, feed: Feed) {
    let result = part::Part { terms: &terms, at, end }.run(&mut Direct(&feed)).await;
    finish(result, feed);
}

/// The same, of a long part: over several connections where one is not enough.
pub(super) async fn long_part(terms: Arc<Terms>, at: u64, end: u64, feed: Feed) {
    let result = parallel::Parallel::new(terms, at, end, &feed).run().await;
    finish(result, feed);
}

/// Sends the image from `feed`'s first byte to its last, of which only the whole can be asked for. `begun` is an answer
/// that has begun; the kept head went to the reader before.
pub(super) async fn whole(terms: Arc<Terms>, begun: Option<(Body, Place)>, feed: Feed) {
    let result = whole::Whole::new(&terms).run(begun, &mut Direct(&feed)).await;
    finish(result, feed);
}

fn finish(result: Result<(), Stop>, feed: Feed) {
    match result {
        Ok(()) => feed.complete(),
        Err(Stop::Failed(error)) => feed.fail(error),
        Err(Stop::Unwanted) => {}
    }
}

/// Why a transfer stopped before its end.
enum Stop {
    Failed(Error),
    /// Nobody wants more of it.
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

/// Where the bytes of a transfer go.
trait Sink: Send + Sync {
    /// Takes the next bytes, once there is room.
    fn put(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Nothing follows for the moment. Whether even a few bytes would be welcome; if not, the task is woken when they
    /// are.
    fn poll_hungry(&self, context: &mut Context<'_>) -> bool;

    /// Nothing follows for a while.
    fn flush(&self) {}
}

/// Straight to the reader.
struct Direct<'a>(&'a Feed);

impl Sink for Direct<'_> {
    async fn put(&mut self, bytes: Bytes) -> Result<(), Stop> {
        Ok(self.0.send(bytes).await?)
    }

    fn poll_hungry(&self, context: &mut Context<'_>) -> bool {
        self.0.poll_hungry(context)
    }

    fn flush(&self) {
        self.0.flush();
    }
}

fn failed(place: &Place, source: Trouble) -> Error {
    Error::Transport { url: show(place), source }
}

fn short(body: &Body, place: &Place, missing: u64) -> Error {
    failed(place, Trouble::Short { host: body.host().to_owned(), missing })
}
