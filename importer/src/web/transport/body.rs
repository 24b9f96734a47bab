//! What follows a head, read into the caller's memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::batch::Batch;
use super::framing::Framing;
use super::{Connection, Idle};
use crate::error::TransportError;

/// The body of a response. Its connection is used again once it has been read to its end, and closed if it is dropped
/// before.
pub(in crate::web) struct Body {
    /// `None` after the end, and after a failure.
    connection: Option<Connection>,
    framing: Framing,
    host: String,
    patience: Duration,
    /// Where the connection goes afterwards, if it may.
    home: Option<Arc<Idle>>,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
    batch: Batch,
}

impl Body {
    pub(super) fn new(
        connection: Connection,
        framing: Framing,
        host: String,
        patience: Duration,
        home: Option<Arc<Idle>>,
    ) -> Self {
        let timer = Box::pin(sleep(patience));
        let connection = Some(connection);
        Self {
            connection,
            framing,
            host,
            patience,
            home,
            timer,
            waiting: false,
            batch: Batch::new(),
        }
    }

    /// Host and port at the other end.
    pub(in crate::web) fn host(&self) -> &str {
        &self.host
    }

    /// Restarts the time limit for the next bytes: the caller did not read for a while.
    pub(in crate::web) fn resume(&mut self) {
        self.waiting = false;
    }

    /// Reads bytes into `out`, which must not be empty; 0 only at the end of the body. Must not be called after an error.
    pub(in crate::web) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<Result<usize, TransportError>> {
        let Some(mut connection) = self.connection.take() else { return Poll::Ready(Ok(0)) };
        if let (super::Stream::Plain(socket), Framing::Length(left)) =
            (&connection.stream, &self.framing)
        {
            self.batch.prepare(socket, connection.received, *left);
        }
        let step = self.step(&mut connection, context, out);
        match step {
            Poll::Ready(Ok(count)) => {
                self.waiting = false;
                if !self.is_complete() {
                    self.connection = Some(connection);
                    return Poll::Ready(Ok(count));
                }
                self.batch.end(connection.stream.tcp());
                if let Some(home) = self.home.take()
                    && connection.inbox.is_empty()
                {
                    home.give_back(connection);
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if !self.waiting {
                    self.waiting = true;
                    self.timer.as_mut().reset(Instant::now() + self.patience);
                    self.batch.begin_to_wait();
                }
                self.batch.wait(connection.stream.tcp(), context);
                if self.timer.as_mut().poll(context).is_ready() {
                    let (host, waited) = (self.host.clone(), self.patience);
                    return Poll::Ready(Err(TransportError::Stalled { host, waited }));
                }
                self.connection = Some(connection);
                Poll::Pending
            }
        }
    }

    /// Reads the next bytes into `out`, as [`Body::poll_read`].
    pub(in crate::web) async fn read(&mut self, out: &mut [u8]) -> Result<usize, TransportError> {
        std::future::poll_fn(|context| self.poll_read(context, out)).await
    }

    fn is_complete(&self) -> bool {
        match &self.framing {
            Framing::Length(left) => *left == 0,
            Framing::Chunked(chunks) => chunks.is_done(),
            Framing::UntilClose => false,
        }
    }

    fn step(
        &mut self,
        connection: &mut Connection,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<Result<usize, TransportError>> {
        loop {
            let left = match &mut self.framing {
                Framing::Length(left) => *left,
                Framing::UntilClose => u64::MAX,
                Framing::Chunked(chunks) => {
                    let read = chunks.read_lines(&connection.inbox);
                    match read {
                        Ok(count) => connection.inbox.advance(count),
                        Err(because) => {
                            return Poll::Ready(Err(self.broken(io::Error::other(because))));
                        }
                    }
                    if !chunks.is_done() && chunks.data() == 0 {
                        let received = ready!(connection.poll_receive(context));
                        match received {
                            Ok(0) => return Poll::Ready(Err(self.broken(too_early()))),
                            Ok(_) => continue,
                            Err(error) => return Poll::Ready(Err(self.broken(error))),
                        }
                    }
                    chunks.data()
                }
            };
            let out_len = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
            if out_len == 0 {
                return Poll::Ready(Ok(0));
            }
            let count = match ready!(connection.poll_take(context, &mut out[..out_len])) {
                Ok(count) => count,
                Err(error) => return Poll::Ready(Err(self.broken(error))),
            };
            connection.received += count as u64;
            match &mut self.framing {
                Framing::Length(left) if count == 0 => {
                    let (host, missing) = (self.host.clone(), *left);
                    return Poll::Ready(Err(TransportError::Short { host, missing }));
                }
                Framing::Chunked(_) if count == 0 => {
                    return Poll::Ready(Err(self.broken(too_early())));
                }
                Framing::Length(left) => *left -= count as u64,
                Framing::Chunked(chunks) => chunks.took(count as u64),
                Framing::UntilClose if count == 0 => self.framing = Framing::Length(0),
                Framing::UntilClose => {}
            }
            return Poll::Ready(Ok(count));
        }
    }

    fn broken(&self, error: io::Error) -> TransportError {
        TransportError::Broken { host: self.host.clone(), source: error.into() }
    }
}

fn too_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed between two chunks")
}

impl Connection {
    /// Copies bytes into `out`: those received before, or new ones from the socket. 0: the peer closed.
    fn poll_take(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.inbox.is_empty() {
            let count = self.inbox.len().min(out.len());
            self.inbox.copy_to_slice(&mut out[..count]);
            return Poll::Ready(Ok(count));
        }
        let mut buffer = ReadBuf::new(out);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Receives into the inbox. 0: the other side closed.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = [0; 512]; // for the lines between chunks; their data does not come this way
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        self.inbox.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Whether the server still listens: nothing waits to be read, not even an end.
    pub(super) fn is_open(&self) -> bool {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(std::task::Waker::noop());
        match self.stream.tcp().poll_peek(&mut context, &mut buffer) {
            Poll::Pending => true,
            // TLS may have sent a record that is no response.
            Poll::Ready(Ok(count)) => count > 0 && self.is_tls(),
            Poll::Ready(Err(_)) => false,
        }
    }

    fn is_tls(&self) -> bool {
        !matches!(self.stream, super::Stream::Plain(_))
    }
}
