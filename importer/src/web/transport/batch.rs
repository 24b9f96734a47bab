//! Fewer wake-ups on a fast link: a body is read when much of it has come.
//!
//! A reader that is faster than its server is woken for every packet. At memory speed those wake-ups cost as much as the
//! copying. So the socket option SO_RCVLOWAT makes a read wait for a batch. That is right only while batches come at once: where one
//! takes longer, on a slow link or because the server stopped, every byte counts again.

use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::sys;

/// Much at once, and still a part only of what a socket's buffer holds.
const BATCH: u32 = 256 << 10;

/// A batch that takes longer than this is not waited for. Slower than 1 MiB/s, wake-ups cost nothing.
const SOON: Duration = Duration::from_millis(250);

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

    /// Before reading: so many bytes of the body are still to come. Its last bytes are never waited for.
    pub fn prepare(&mut self, socket: &TcpStream, left: u64) {
        let batches = !self.slow && left >= u64::from(BATCH);
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
