//! Counters of this process by which a test notices that imports do more work than they did. Wall time could not show
//! that on a shared machine. A few relaxed additions for each MiB.

use std::sync::atomic::{AtomicU64, Ordering};

static SYSTEM_CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES_COPIED: AtomicU64 = AtomicU64::new(0);

/// Work since the start of the process, all imports together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// System calls that read a local source, or read, write, zero or sync a target. Not those that open them.
    pub system_calls: u64,
    /// Bytes of images that were copied from one buffer to another, not counting what decoders and the kernel do.
    pub bytes_copied: u64,
}

impl IoCounters {
    /// The values now.
    pub fn now() -> Self {
        Self {
            system_calls: SYSTEM_CALLS.load(Ordering::Relaxed),
            bytes_copied: BYTES_COPIED.load(Ordering::Relaxed),
        }
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            system_calls: self.system_calls - earlier.system_calls,
            bytes_copied: self.bytes_copied - earlier.bytes_copied,
        }
    }
}

/// A system call is about to be done.
pub fn count_system_call() {
    SYSTEM_CALLS.fetch_add(1, Ordering::Relaxed);
}

/// Copies `from` to `to`, which has the same length, and counts it.
pub(crate) fn copy_counted(to: &mut [u8], from: &[u8]) {
    count_copied(from.len());
    to.copy_from_slice(from);
}

/// So many bytes were copied.
pub(crate) fn count_copied(bytes: usize) {
    BYTES_COPIED.fetch_add(bytes as u64, Ordering::Relaxed);
}
