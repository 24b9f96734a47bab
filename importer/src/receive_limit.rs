//! The share of the memory budget that a source may use for bytes that were received and not consumed yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A quarter of the default memory budget of an import (32 MiB).
const DEFAULT: usize = 8 << 20;
/// The smallest queue of a stream that makes progress at a useful rate.
const QUEUE_MIN: usize = 64 << 10;

/// Bytes that all streams of a source may hold together. Shared by its clones, so that an import can set it after the source
/// has been opened: see [`pipeline::Source::limit_receive_memory`].
#[derive(Clone, Debug)]
pub struct ReceiveLimit(Arc<AtomicUsize>);

impl ReceiveLimit {
    /// Allows `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    pub(crate) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// The part of one of `streams` queues. Never more than `max`.
    pub(crate) fn part_of(&self, streams: usize, max: usize) -> usize {
        (self.bytes() / streams.max(1)).max(QUEUE_MIN).min(max)
    }
}

impl Default for ReceiveLimit {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_share_the_limit_within_bounds() {
        let limit = ReceiveLimit::default();
        assert_eq!(limit.part_of(8, 1 << 20), 1 << 20);
        assert_eq!(limit.part_of(2, 8 << 20), 4 << 20);
        limit.clone().set(1 << 20);
        assert_eq!(limit.part_of(8, 1 << 20), 128 << 10, "clones share the limit");
        assert_eq!(limit.part_of(0, 2 << 20), 1 << 20);
        limit.set(0);
        assert_eq!(limit.part_of(8, 1 << 20), QUEUE_MIN);
    }
}
