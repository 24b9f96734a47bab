//! A request body that is drained when it is dropped early.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use runtime::https::drain;
use tokio::runtime::Handle;

// Limits of draining a body after a response that did not wait for it.
const DRAIN_BYTES_MAX: u64 = 64 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes that are forwarded at once, if available: larger writes wake the receiver less often.
const BATCH: u64 = 256 << 10;

/// If dropped before its end, the rest is read and discarded: a client that is still sending would otherwise see a connection
/// reset and not the response, when the proxy refuses the request or the server has failed.
#[derive(Debug)]
pub struct DrainedBody {
    /// Not received yet.
    body: Option<Incoming>,
    /// Received frames.
    batch: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    bytes: u64,
    /// The batch is complete.
    is_full: bool,
    /// The task has yielded to the connection's reader since the last frame.
    has_waited: bool,
}

impl DrainedBody {
    pub fn new(body: Incoming) -> Self {
        let batch = VecDeque::new();
        Self { body: Some(body), batch, bytes: 0, is_full: false, has_waited: false }
    }

    fn next_of_batch(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        let next = self.batch.pop_front();
        self.bytes -= next.as_ref().map_or(0, length);
        next
    }
}

fn length(piece: &Result<Frame<Bytes>, hyper::Error>) -> u64 {
    piece.as_ref().ok().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64)
}

impl Body for DrainedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            if self.is_full {
                match self.next_of_batch() {
                    Some(piece) => return Poll::Ready(Some(piece)),
                    None => self.is_full = false,
                }
            }
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match Pin::new(body).poll_frame(context) {
                Poll::Ready(Some(piece)) => {
                    self.bytes += length(&piece);
                    self.is_full = piece.is_err() || self.bytes >= BATCH;
                    self.has_waited = false;
                    if piece.is_err() {
                        self.body = None;
                    }
                    self.batch.push_back(piece);
                }
                Poll::Ready(None) => (self.body, self.is_full) = (None, true),
                Poll::Pending if self.batch.is_empty() => return Poll::Pending,
                Poll::Pending if self.has_waited => self.is_full = true,
                Poll::Pending => {
                    self.has_waited = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.batch.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut all = SizeHint::new();
        all.set_lower(rest.lower() + self.bytes);
        if let Some(upper) = rest.upper() {
            all.set_upper(upper + self.bytes);
        }
        all
    }
}

impl Drop for DrainedBody {
    fn drop(&mut self) {
        let body = self.body.take().filter(|body| !body.is_end_stream());
        // Without a runtime, the process is ending.
        if let (Some(body), Ok(runtime)) = (body, Handle::try_current()) {
            runtime.spawn(drain(body, DRAIN_BYTES_MAX, DRAIN_TIME_MAX));
        }
    }
}
