//! Buffers that are used again: fresh memory costs a page fault per 4 KiB, more than the copy into it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers begin as far into a page as their bytes begin in one of the image: whole blocks of a disk can then be written
/// from where they are, past the page cache.
const PAGE: usize = 4096;

/// Buffers of one size.
pub(crate) struct Pool {
    /// Bytes of each buffer.
    size: usize,
    /// Unused buffers kept.
    keep_max: usize,
    free: Mutex<Vec<Box<[u8]>>>,
}

/// A buffer that returns to its pool, wherever it is dropped. Its bytes are initialised but mean nothing until filled.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    /// Where its bytes begin, and the room for them ends: at the end of a page.
    start: usize,
    end: usize,
    filled: usize,
    pool: Arc<Pool>,
}

impl Pool {
    pub(crate) fn new(size: usize, keep_max: usize) -> Arc<Self> {
        Arc::new(Self { size, keep_max, free: Mutex::default() })
    }

    /// A buffer of which nothing is filled.
    pub(crate) fn take(self: &Arc<Self>) -> Buffer {
        self.take_at(0)
    }

    /// The same, for the bytes from position `at` of an image on.
    pub(crate) fn take_at(self: &Arc<Self>, at: u64) -> Buffer {
        let used = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // All zero: the kernel hands out each page on first touch only.
        let bytes = used.unwrap_or_else(|| vec![0; self.size + PAGE - 1].into_boxed_slice());
        let page = bytes.as_ptr().addr().wrapping_neg() % PAGE;
        let into = (at % PAGE as u64) as usize;
        // The last part of a page stays empty rather than the first, so that the next buffer begins a page.
        let into = if into < self.size { into } else { 0 };
        let (start, end) = (page + into, page + self.size);
        Buffer { bytes, start, end, filled: 0, pool: Arc::clone(self) }
    }
}

impl Buffer {
    /// Bytes filled so far.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// What is not filled yet.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start + self.filled..self.end]
    }

    /// Notes that the first `count` bytes of [`Buffer::room`] have been filled.
    pub(crate) fn advance(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.end - self.start);
    }

    /// What was filled, without a copy. The buffer returns to its pool when the last clone is dropped.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.pool.keep_max {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_all_its_bytes_are_dropped() {
        let pool = Pool::new(16, 1);
        let mut buffer = pool.take();
        let place = buffer.room().as_ptr();
        buffer.room()[..3].copy_from_slice(b"abc");
        buffer.advance(3);
        let bytes = buffer.freeze();
        let part = bytes.slice(1..2);
        drop(bytes);
        assert_ne!(pool.take().room().as_ptr(), place);
        assert_eq!(part[..], b"b"[..]);
        drop(part);
        // The other one was returned first, and is the only one kept.
        assert_eq!(pool.free.lock().unwrap().len(), 1);
        assert_eq!((pool.take().filled(), pool.take().room().len()), (0, 16));
    }

    #[test]
    fn bytes_are_as_far_into_a_page_as_in_the_image() {
        let pool = Pool::new(4 * PAGE, 1);
        for at in [0, 1, 511, 4095, 4096, 4097, (1 << 40) + 7] {
            let mut buffer = pool.take_at(at);
            let room = buffer.room().as_ptr_range();
            let offset = (at % PAGE as u64) as usize;
            assert_eq!((room.start.addr() % PAGE, room.end.addr() % PAGE), (offset, 0), "{at}");
            let room = buffer.room().len();
            assert_eq!(room, 4 * PAGE - offset);
            buffer.room().fill(7);
            buffer.advance(room);
            assert_eq!(buffer.freeze(), vec![7; room]);
        }
    }

    #[test]
    fn no_more_is_filled_than_there_is_room_for() {
        let mut buffer = Pool::new(4, 1).take();
        buffer.advance(9);
        assert_eq!((buffer.filled(), buffer.room().len()), (4, 0));
    }
}
