//! From a body to a sink: large pieces when bytes come fast, small ones at once when the reader waits for them.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use pipeline::Pool;

use super::Sink;
use crate::error::TransportError;
use crate::receive_buffer::ReceiveBuffer;
use crate::web::transport::Body;

/// Bytes of each piece when they come fast: large enough to make little of a transfer, and still in the cache when the
/// reader looks at them.
pub(in crate::web) const PIECE_LEN: usize = 256 << 10;
/// A smaller piece is copied out, so that it does not keep a whole buffer.
const COPIED_MAX: usize = 32 << 10;

/// Reads a body in pieces.
pub(super) struct Pump<'a> {
    pub(super) body: Body,
    pool: &'a Arc<Pool>,
    /// Where in the image the next byte belongs.
    at: u64,
    buffer: Option<ReceiveBuffer>,
    /// Comes after the bytes before it.
    pending_error: Option<TransportError>,
}

impl<'a> Pump<'a> {
    /// `at`: where in the image the body begins.
    pub(super) fn new(body: Body, pool: &'a Arc<Pool>, at: u64) -> Self {
        Self { body, pool, at, buffer: None, pending_error: None }
    }

    /// The next bytes for `sink`; `None` at the end of the body.
    pub(super) async fn next(&mut self, sink: &impl Sink) -> Result<Option<Bytes>, TransportError> {
        if let Some(pending_error) = self.pending_error.take() {
            return Err(pending_error);
        }
        let Self { body, pool, at, buffer, pending_error } = self;
        body.resume();
        std::future::poll_fn(|context| {
            let filling = buffer.get_or_insert_with(|| ReceiveBuffer::new(pool, *at));
            while !filling.spare().is_empty() {
                match body.poll_read(context, filling.spare()) {
                    Poll::Ready(Ok(0)) => break,
                    Poll::Ready(Ok(count)) => filling.advance(count),
                    Poll::Ready(Err(found)) => {
                        *pending_error = Some(found);
                        break;
                    }
                    Poll::Pending if sink.poll_reader_waits(context) && filling.filled() > 0 => {
                        break;
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(())
        })
        .await;
        let bytes = match buffer.take() {
            Some(filled) if filled.filled() <= COPIED_MAX => {
                // The buffer is not kept: the next one begins somewhere else in a page.
                Bytes::copy_from_slice(filled.as_ref())
            }
            Some(filled) => filled.freeze(),
            None => Bytes::new(),
        };
        *at += bytes.len() as u64;
        match (bytes.is_empty(), pending_error.take()) {
            (true, Some(pending_error)) => Err(pending_error),
            (true, None) => Ok(None),
            (false, found) => {
                *pending_error = found;
                Ok(Some(bytes))
            }
        }
    }
}
