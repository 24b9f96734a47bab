//! A request's body, which is read for a while even when nobody wants it any more.

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

/// Dropped before its end, it is read and thrown away: a client that is still sending would see a broken connection and not
/// its answer, whether the proxy has refused it or the server behind it has gone.
#[derive(Debug)]
pub struct Drained(Option<Incoming>);

impl Drained {
    pub fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for Drained {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let body = self.0.take().filter(|body| !body.is_end_stream());
        // Without a runtime the process is about to end.
        if let (Some(body), Ok(runtime)) = (body, Handle::try_current()) {
            runtime.spawn(drain(body, DRAIN_BYTES_MAX, DRAIN_TIME_MAX));
        }
    }
}
