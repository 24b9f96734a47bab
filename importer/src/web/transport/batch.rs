//! Fewer wake-ups on a fast link: a body is read when much of it has come.
//!
//! A reader that is faster than its server is woken for every packet. At memory speed those wake-ups cost as much as the
//! copying. So the socket option SO_RCVLOWAT makes a read wait for a batch. That is right only while batches come at once: where one
//! takes longer, on a slow or long link or because the server stopped, every byte counts again.
//!
//! Not from the beginning of a connection: Linux 6.18 was then seen to keep its first receive window of 256 KiB, which on a link of
//! 50 ms is 5 MB/s. (It seems to measure the round trip, on which the window depends, only while nothing waits to be read.)

use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::sys;

/// Much at once, and still a part only of what a socket's buffer holds.
const BATCH: u32 = 256 << 10;

/// A batch that takes longer than this is not waited for. Slower than 12 MiB/s, wake-ups cost nothing.
const SOON: Duration = Duration::from_millis(20);

/// Bytes of all bodies on a connection before the first batch: by then the kernel knows what the link can take.
const ALONE: u64 = 2 << 20;

/// How one body is read.
pub struct Batch {
    /// The socket's current value; 1 initially.
    watermark: u32,
    /// Batches did not come soon.
    slow: bool,
    soon: Pin<Box<Sleep>>,
}

impl Batch {
    /// For a body that nothing is known of yet.
    pub fn new() -> Self {
        Self { watermark: 1, slow: false, soon: Box::pin(sleep(SOON)) }
    }

    /// Before reading: so many bytes were received over the connection, and so many of the body are still to come. Its last
    /// bytes are never waited for.
    pub fn prepare(&mut self, socket: &TcpStream, received: u64, left: u64) {
        let batches = !self.slow && received >= ALONE && left >= u64::from(BATCH);
        self.set_watermark(socket, if batches { BATCH } else { 1 });
    }

    /// The body was read to its end, and the next response on the socket may be short.
    pub fn end(&mut self, socket: &TcpStream) {
        self.set_watermark(socket, 1);
    }

    /// Nothing to read, for the first time since something was.
    pub fn begin_to_wait(&mut self) {
        if self.watermark > 1 {
            self.soon.as_mut().reset(Instant::now() + SOON);
        }
    }

    /// Nothing to read yet. Wakes the task when it is time to be content with less.
    pub fn wait(&mut self, socket: &TcpStream, context: &mut Context<'_>) {
        if self.watermark > 1 && self.soon.as_mut().poll(context) == Poll::Ready(()) {
            self.slow = true;
            self.set_watermark(socket, 1); // which wakes the reader if there is anything
        }
    }

    fn set_watermark(&mut self, socket: &TcpStream, watermark: u32) {
        let changes = watermark != self.watermark;
        if changes && sys::set_receive_low_watermark(socket.as_fd(), watermark).is_ok() {
            self.watermark = watermark; // where it cannot be set, only speed is lost
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_read_as_bytes_come_until_its_link_is_known() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut batch = Batch::new();
        for (received, left, expected) in [
            (0, u64::MAX, 1),
            (ALONE - 1, u64::MAX, 1),
            (ALONE, u64::MAX, BATCH),
            (ALONE, u64::from(BATCH) - 1, 1),
            (2 * ALONE, u64::from(BATCH), BATCH),
        ] {
            batch.prepare(&socket, received, left);
            assert_eq!(batch.watermark, expected, "{received}, {left}");
        }
        batch.end(&socket);
        assert_eq!(batch.watermark, 1);
    }
}
