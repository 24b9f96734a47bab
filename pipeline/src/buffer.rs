//! Page-aligned buffers that are used again: fresh memory costs a page fault for each 4 KiB, more than copying into it.
//!
//! Buffers between the source and the target come from a [limited](Pool::new) pool: a stage that finds it empty waits, so
//! that a slow disk slows the download instead of filling memory. Buffers that receive from the network come from an
//! [unlimited](Pool::unlimited) one, since async tasks cannot wait on a lock; the limit is then on the queue that they are
//! sent to.

use std::fmt;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::sink::ALIGNMENT;

/// Buffers of one length. Each is allocated when it is first needed.
pub struct Pool {
    buffer_len: usize,
    /// Buffers that may be in use at a time.
    limit: usize,
    /// Unused buffers that are kept.
    idle_max: usize,
    state: Mutex<PoolState>,
    returned: Condvar,
}

struct PoolState {
    idle: Vec<Box<[u8]>>,
    in_use: usize,
}

impl Pool {
    /// A pool whose callers wait while `count` buffers of `buffer_len` bytes are in use.
    pub fn new(buffer_len: usize, count: usize) -> Arc<Self> {
        Self::with(buffer_len, count, count)
    }

    /// A pool whose callers never wait. It keeps up to `idle_max` unused buffers.
    pub fn unlimited(buffer_len: usize, idle_max: usize) -> Arc<Self> {
        Self::with(buffer_len, usize::MAX, idle_max)
    }

    fn with(buffer_len: usize, limit: usize, idle_max: usize) -> Arc<Self> {
        let state = Mutex::new(PoolState { idle: Vec::with_capacity(idle_max), in_use: 0 });
        Arc::new(Self { buffer_len, limit, idle_max, state, returned: Condvar::new() })
    }

    /// In bytes.
    pub fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// A buffer, which holds what its last user left in it. Waits for one if the limit is reached.
    pub fn take(self: &Arc<Self>) -> Buffer {
        let mut state = self.lock();
        while state.in_use >= self.limit {
            self.returned.wait(&mut state);
        }
        state.in_use += 1;
        let idle = state.idle.pop();
        drop(state); // allocating takes time
        // All zero: the kernel provides each page on first touch.
        let allocate = || vec![0; self.buffer_len + (ALIGNMENT - 1)].into_boxed_slice();
        let memory = idle.unwrap_or_else(allocate);
        let start = memory.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        Buffer { memory, start, pool: Arc::clone(self) }
    }

    fn put_back(&self, memory: Box<[u8]>) {
        let mut state = self.lock();
        state.in_use -= 1;
        if state.idle.len() < self.idle_max {
            state.idle.push(memory);
        }
        drop(state);
        self.returned.notify_one();
    }

    /// No code that can panic runs under the lock, so a poisoned state is consistent.
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffer_len", &self.buffer_len)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Page-aligned memory of a [`Pool`], to which it returns when dropped.
pub struct Buffer {
    /// Longer than the buffer by up to a page, for the alignment.
    memory: Box<[u8]>,
    start: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    /// Reads until the buffer is full or `reader` ends. The range starts where the memory has the alignment of guest
    /// address `at`.
    ///
    /// # Errors
    /// Of the reader.
    pub fn fill_from(&mut self, reader: &mut dyn Read, at: u64) -> io::Result<Range<usize>> {
        let start = (at % ALIGNMENT as u64) as usize;
        let mut end = start;
        while end < self.len() {
            match reader.read(&mut self[end..]) {
                Ok(0) => break,
                Ok(len) => end += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(start..end)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.pool.buffer_len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.pool.buffer_len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.put_back(std::mem::take(&mut self.memory));
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn buffers_are_page_aligned_and_have_the_requested_length() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let pool = Pool::new(len, 3);
            let buffers = [pool.take(), pool.take(), pool.take()];
            for buffer in &buffers {
                assert_eq!(buffer.len(), len);
                assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
            }
        }
    }

    #[test]
    fn a_returned_buffer_is_reused_at_the_same_address() {
        let pool = Pool::new(4096, 1);
        let mut first = pool.take();
        first.fill(7);
        let address = first.as_ptr().addr();
        drop(first);
        let second = pool.take();
        assert_eq!(second.as_ptr().addr(), address);
        assert!(second.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn an_unlimited_pool_keeps_no_more_unused_buffers_than_allowed() {
        let pool = Pool::unlimited(4096, 2);
        let buffers = [pool.take(), pool.take(), pool.take()];
        drop(buffers);
        let state = pool.lock();
        assert_eq!((state.idle.len(), state.in_use), (2, 0));
    }

    #[test]
    fn taking_from_an_empty_pool_waits_for_a_return() {
        let pool = Pool::new(4096, 1);
        let mut held = pool.take();
        held[0] = 42;
        let (taken, was_taken) = mpsc::channel();
        let waiter = thread::spawn({
            let pool = Arc::clone(&pool);
            move || taken.send(pool.take()[0]).unwrap()
        });
        assert!(was_taken.try_recv().is_err());
        drop(held);
        assert_eq!(was_taken.recv().unwrap(), 42);
        waiter.join().unwrap();
    }

    #[test]
    fn many_threads_share_few_buffers() {
        let pool = Pool::new(64, 3);
        thread::scope(|scope| {
            for mark in 0..8_u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..500 {
                        let mut buffer = pool.take();
                        buffer.fill(mark);
                        thread::yield_now();
                        assert!(buffer.iter().all(|&byte| byte == mark));
                    }
                });
            }
        });
        let state = pool.lock();
        assert!(state.idle.len() <= 3);
        assert_eq!(state.in_use, 0);
    }
}
