//! From a body into a queue: large pieces when bytes come fast, small ones at once when the reader waits for them.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use super::queue::Feed;
use super::transport::Body;
use crate::error::Trouble;
use crate::pool::{Buffer, Pool};

/// Bytes of each piece when they come fast: large enough to make little of a hand-over, and still in the cache when the
/// reader looks at them.
pub(super) const PIECE_LEN: usize = 256 << 10;
/// A smaller piece is copied out, so that it does not keep a whole buffer.
const COPIED_MAX: usize = 32 << 10;

/// Reads a body in pieces.
pub(super) struct Pump<'a> {
    pub(super) body: Body,
    feed: &'a Feed,
    pool: &'a Arc<Pool>,
    buffer: Option<Buffer>,
    /// Comes after the bytes before it.
    trouble: Option<Trouble>,
}

impl<'a> Pump<'a> {
    pub(super) fn new(body: Body, feed: &'a Feed, pool: &'a Arc<Pool>) -> Self {
        Self { body, feed, pool, buffer: None, trouble: None }
    }

    /// The next bytes; `None` at the end of the body.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        let Self { body, feed, pool, buffer, trouble } = self;
        std::future::poll_fn(|context| {
            let filling = buffer.get_or_insert_with(|| pool.take());
            while !filling.room().is_empty() {
                match body.poll_read(context, filling.room()) {
                    Poll::Ready(Ok(0)) => break,
                    Poll::Ready(Ok(count)) => filling.advance(count),
                    Poll::Ready(Err(found)) => {
                        *trouble = Some(found);
                        break;
                    }
                    Poll::Pending if feed.poll_hungry(context) && filling.filled() > 0 => break,
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(())
        })
        .await;
        let bytes = match buffer.take() {
            Some(mut filled) if filled.filled() <= COPIED_MAX => {
                let bytes = Bytes::copy_from_slice(filled.as_ref());
                filled.clear();
                *buffer = Some(filled);
                bytes
            }
            Some(filled) => filled.freeze(),
            None => Bytes::new(),
        };
        match (bytes.is_empty(), trouble.take()) {
            (true, Some(trouble)) => Err(trouble),
            (true, None) => Ok(None),
            (false, found) => {
                *trouble = found;
                Ok(Some(bytes))
            }
        }
    }
}
