//! The memory of one import: a fixed number of equal buffers that go round and round.
//!
//! A stage that finds the pool empty waits, and so a slow disk slows the download instead of filling memory. Buffers
//! begin at a page boundary, as direct I/O wants.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::sink::ALIGNMENT;

/// A fixed number of buffers of one length. Each is allocated when it is first needed and then reused.
pub struct Pool {
    buffer_len: usize,
    count: usize,
    shelf: Mutex<Shelf>,
    returned: Condvar,
}

/// What the pool holds at the moment.
struct Shelf {
    idle: Vec<Box<[u8]>>,
    allocated: usize,
}

impl Pool {
    /// At most `count` buffers of `buffer_len` bytes; nothing is allocated yet.
    pub fn new(buffer_len: usize, count: usize) -> Arc<Self> {
        let shelf = Mutex::new(Shelf { idle: Vec::with_capacity(count), allocated: 0 });
        Arc::new(Self { buffer_len, count, shelf, returned: Condvar::new() })
    }

    /// Length of each buffer, in bytes.
    pub fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// How many buffers there can be at a time.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A buffer, as soon as there is one. A pool of no buffers waits for ever.
    pub fn take(self: &Arc<Self>) -> Buffer {
        let mut shelf = self.lock();
        loop {
            match self.next(&mut shelf) {
                Some(supply) => {
                    drop(shelf);
                    return self.fill(supply);
                }
                None => {
                    shelf = self.returned.wait(shelf).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// A buffer, unless all are in use.
    pub fn try_take(self: &Arc<Self>) -> Option<Buffer> {
        let supply = self.next(&mut self.lock())?;
        Some(self.fill(supply))
    }

    fn next(&self, shelf: &mut Shelf) -> Option<Supply> {
        if let Some(memory) = shelf.idle.pop() {
            return Some(Supply::Used(memory));
        }
        (shelf.allocated < self.count).then(|| {
            shelf.allocated += 1;
            Supply::New
        })
    }

    /// Allocates where needed, which is better done without holding the lock.
    fn fill(self: &Arc<Self>, supply: Supply) -> Buffer {
        let memory = match supply {
            Supply::Used(memory) => memory,
            // All zero: the kernel hands out each page on first touch only.
            Supply::New => vec![0; self.buffer_len + (ALIGNMENT - 1)].into_boxed_slice(),
        };
        let start = memory.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        Buffer { memory, start, pool: Arc::clone(self) }
    }

    fn give_back(&self, memory: Box<[u8]>) {
        self.lock().idle.push(memory);
        self.returned.notify_one();
    }

    /// No code that can panic runs under the lock, so that a poisoned one is whole.
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the next buffer comes from.
enum Supply {
    Used(Box<[u8]>),
    New,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffer_len", &self.buffer_len)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Page-aligned memory out of a [`Pool`], to which it returns when dropped. It still holds whatever its last user
/// left there.
pub struct Buffer {
    /// Larger than the buffer by what aligning may cost.
    memory: Box<[u8]>,
    start: usize,
    pool: Arc<Pool>,
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
        self.pool.give_back(std::mem::take(&mut self.memory));
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
    fn buffers_are_aligned_and_as_long_as_asked() {
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
    fn a_buffer_is_reused_and_stays_where_it_is() {
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
    fn no_more_buffers_exist_than_the_budget_allows() {
        let pool = Pool::new(4096, 2);
        let (one, _two) = (pool.take(), pool.take());
        assert!(pool.try_take().is_none());
        drop(one);
        assert!(pool.try_take().is_some());
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
        let all: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
        assert_eq!(all.len(), 3);
    }
}
