//! A request's body, which is read for a while even when nobody wants it any more.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use runtime::https::drain;
use tokio::runtime::Handle;

/// As much of a body is read after an answer that did not wait for it, or for as long.
const DRAIN_BYTES_MAX: u64 = 64 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// So much of a body is handed on in one go, if it is there: what is sent in larger pieces wakes its receiver less often.
const BATCH: u64 = 256 << 10;

/// Dropped before its end, it is read and thrown away: a client that is still sending would see a broken connection and not
/// its answer, whether the proxy has refused it or the server behind it has gone.
#[derive(Debug)]
pub struct Drained {
    /// What has not come yet.
    body: Option<Incoming>,
    /// What has come.
    batch: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    bytes: u64,
    /// The batch is as large as it becomes.
    is_full: bool,
    /// Whoever reads the connection was let go first since the last piece came.
    has_waited: bool,
}

impl Drained {
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

impl Body for Drained {
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

impl Drop for Drained {
    fn drop(&mut self) {
        let body = self.body.take().filter(|body| !body.is_end_stream());
        // Without a runtime the process is about to end.
        if let (Some(body), Ok(runtime)) = (body, Handle::try_current()) {
            runtime.spawn(drain(body, DRAIN_BYTES_MAX, DRAIN_TIME_MAX));
        }
    }
}
