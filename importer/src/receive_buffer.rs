//! Buffers that are filled from a file or the network and become [`Bytes`] without a copy.

use std::sync::Arc;

use bytes::Bytes;
use pipeline::{Buffer, Pool};

/// Received bytes start as far into a page as they are in the image, so that whole blocks of a disk can be written from
/// this buffer with direct I/O.
const PAGE: usize = 4096;

/// A buffer of a [`Pool`], filled from its start. It returns to the pool when its last [`Bytes`] are dropped.
pub(crate) struct ReceiveBuffer {
    buffer: Buffer,
    /// Of the first byte in the buffer.
    start: usize,
    filled: usize,
}

impl ReceiveBuffer {
    /// An empty buffer for the bytes from position `at` of an image on. It ends with a page, so that the next one starts
    /// with a page.
    pub(crate) fn new(pool: &Arc<Pool>, at: u64) -> Self {
        let buffer = pool.take();
        let into = (at % PAGE as u64) as usize;
        let start = if into < buffer.len() { into } else { 0 };
        Self { buffer, start, filled: 0 }
    }

    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// The part that is not filled. It may hold bytes of an earlier use.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start + self.filled..]
    }

    /// Records that the first `count` bytes of [`spare`](Self::spare) have been filled.
    pub(crate) fn advance(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.buffer.len() - self.start);
    }

    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReceiveBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[self.start..][..self.filled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_once_all_its_bytes_are_dropped() {
        let pool = Pool::unlimited(16, 1);
        let mut buffer = ReceiveBuffer::new(&pool, 0);
        let address = buffer.spare().as_ptr();
        buffer.spare()[..3].copy_from_slice(b"abc");
        buffer.advance(3);
        let bytes = buffer.freeze();
        let part = bytes.slice(1..2);
        drop(bytes);
        let mut other = ReceiveBuffer::new(&pool, 0);
        assert_ne!(other.spare().as_ptr(), address);
        assert_eq!(part[..], b"b"[..]);
        drop(part);
        let mut reused = ReceiveBuffer::new(&pool, 0);
        assert_eq!(reused.spare().as_ptr(), address);
        assert_eq!((reused.filled(), reused.spare().len()), (0, 16));
    }

    #[test]
    fn bytes_have_the_page_offset_that_they_have_in_the_image() {
        let pool = Pool::unlimited(4 * PAGE, 1);
        for at in [0, 1, 511, 4095, 4096, 4097, (1 << 40) + 7] {
            let mut buffer = ReceiveBuffer::new(&pool, at);
            let spare = buffer.spare().as_ptr_range();
            let offset = (at % PAGE as u64) as usize;
            assert_eq!((spare.start.addr() % PAGE, spare.end.addr() % PAGE), (offset, 0), "{at}");
            let len = buffer.spare().len();
            assert_eq!(len, 4 * PAGE - offset);
            buffer.spare().fill(7);
            buffer.advance(len);
            assert_eq!(buffer.freeze(), vec![7; len]);
        }
    }

    #[test]
    fn a_buffer_is_not_filled_beyond_its_end() {
        let mut buffer = ReceiveBuffer::new(&Pool::unlimited(4, 1), 0);
        buffer.advance(9);
        assert_eq!((buffer.filled(), buffer.spare().len()), (4, 0));
    }
}
