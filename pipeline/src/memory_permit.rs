//! A limit on memory that is allocated elsewhere: the allocating code holds a permit for as many bytes.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Bytes that may be allocated at a time.
pub struct MemoryLimit {
    limit: usize,
    available: Mutex<usize>,
    returned: Condvar,
}

impl MemoryLimit {
    /// Allows `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, available: Mutex::new(limit), returned: Condvar::new() })
    }

    /// Waits until `bytes` are available. A request for more than the limit takes all of it, so that it is served alone
    /// rather than never.
    pub fn acquire(self: &Arc<Self>, bytes: usize) -> MemoryPermit {
        let bytes = bytes.min(self.limit);
        let mut available = self.lock();
        while *available < bytes {
            self.returned.wait(&mut available);
        }
        *available -= bytes;
        MemoryPermit { limit: Arc::clone(self), bytes }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.available.lock()
    }
}

/// Returns its bytes to the [`MemoryLimit`] on drop.
pub struct MemoryPermit {
    limit: Arc<MemoryLimit>,
    bytes: usize,
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        *self.limit.lock() += self.bytes;
        self.limit.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_above_the_limit_waits_for_all_of_it() {
        let limit = MemoryLimit::new(10);
        let small = limit.acquire(1);
        std::thread::scope(|scope| {
            let large = scope.spawn(|| limit.acquire(100).bytes);
            assert!(!large.is_finished());
            drop(small);
            assert_eq!(large.join().unwrap(), 10);
        });
        assert_eq!(*limit.lock(), 10);
    }
}
