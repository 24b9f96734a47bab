//! Transfers a range of the image, or all of it, with retries.

mod pace;
mod parallel;
mod part;
mod pump;
mod response_checks;
mod whole;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use part::{Part, ProgressOf};
use pipeline::Pool;
pub(super) use pump::PIECE_LEN;

use super::client::{Client, show};
use super::queue::{Feed, ReaderGone};
use super::redirect::RedirectTarget;
use super::retry::RetryPolicy;
use super::transport::Body;
use crate::error::{Error, TransportError};
use crate::receive_limit::ReceiveLimit;

/// What is known of the image, and how it is requested.
pub(super) struct TransferSettings {
    pub(super) client: Arc<Client>,
    pub(super) policy: RetryPolicy,
    pub(super) stall_timeout: Duration,
    pub(super) length: Option<u64>,
    /// What `If-Range` is sent with.
    pub(super) validator: Option<String>,
    /// What must not differ between two responses; weaker than a validator where there is none.
    pub(super) mark: Option<String>,
    /// The image's first bytes, kept from the first response.
    pub(super) head: Bytes,
    /// What bodies are read into.
    pub(super) pool: Arc<Pool>,
    pub(super) receive_limit: ReceiveLimit,
    /// The most connections at a time.
    pub(super) streams_max: usize,
    /// How often it is considered whether more connections would help.
    pub(super) pace_interval: Duration,
    /// Bytes that all parts have received.
    pub(super) received: AtomicU64,
}

/// Sends the bytes from `at` to `end`, of an image of which any part can be requested.
pub(super) async fn part(settings: Arc<TransferSettings>, at: u64, end: u64, feed: Feed) {
    let mut part = Part { settings: &settings, at, end, allowed_by: ProgressOf::AnyPart };
    let result = part.transfer(&mut Direct(&feed)).await;
    finish(result, feed);
}

/// The same, of a long part: over several connections where one is not enough.
pub(super) async fn long_part(settings: Arc<TransferSettings>, at: u64, end: u64, feed: Feed) {
    let result = parallel::Parallel::new(settings, at, end, &feed).transfer().await;
    finish(result, feed);
}

/// Sends the image from `feed`'s first byte to its last, of which only the whole can be requested. `begun` is a response
/// that has begun; the kept head went to the reader before.
pub(super) async fn whole(
    settings: Arc<TransferSettings>,
    begun: Option<(Body, RedirectTarget)>,
    feed: Feed,
) {
    let result = whole::Whole::new(&settings).transfer(begun, &mut Direct(&feed)).await;
    finish(result, feed);
}

fn finish(result: Result<(), TransferStop>, feed: Feed) {
    match result {
        Ok(()) => feed.complete(),
        Err(TransferStop::Failed(error)) => feed.fail(error),
        Err(TransferStop::Unwanted) => {}
    }
}

/// Why a transfer stopped before its end.
enum TransferStop {
    Failed(Error),
    /// The reader has been dropped.
    Unwanted,
}

impl From<ReaderGone> for TransferStop {
    fn from(_: ReaderGone) -> Self {
        Self::Unwanted
    }
}

impl From<Error> for TransferStop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Where the bytes of a transfer go.
trait Sink: Send + Sync {
    /// Takes the next bytes once there is space.
    fn put(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), TransferStop>> + Send;

    /// Nothing follows at present. Whether the reader waits even for a few bytes; if not, the task is woken when it
    /// does.
    fn poll_reader_waits(&self, context: &mut Context<'_>) -> bool;

    /// Nothing follows for a while.
    fn flush(&self) {}
}

struct Direct<'a>(&'a Feed);

impl Sink for Direct<'_> {
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransferStop> {
        Ok(self.0.send(bytes).await?)
    }

    fn poll_reader_waits(&self, context: &mut Context<'_>) -> bool {
        self.0.poll_reader_waits(context)
    }

    fn flush(&self) {
        self.0.flush();
    }
}

fn failed(target: &RedirectTarget, source: TransportError) -> Error {
    Error::Transport { url: show(target), source }
}

fn short(body: &Body, target: &RedirectTarget, missing: u64) -> Error {
    failed(target, TransportError::Short { host: body.host().to_owned(), missing })
}
