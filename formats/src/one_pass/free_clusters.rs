//! Clusters of the target that are free for parking: those of the disk that have not received data of their own, and then
//! those behind the disk, where the target has space there.

use std::ops::Range;

use super::runs::Runs;

/// Bits that record which clusters are taken: 2 MiB, allocated by the kernel as they are touched. On a larger disk several
/// clusters share a bit.
const BITS_MAX: u64 = 16 << 20;
/// Slots are searched in ranges of about this many bytes, so that neighbours can be parked next to each other.
const SEARCH_LEN: u64 = 1 << 20;

/// The free clusters of a target, by number. A *slot* is a cluster that holds parked bytes.
///
/// ```text
///   0 ───── not searched ────► sought ── searched ──► end of the disk ── used ──► behind.start ── unused ──► behind.end
///                                     taken, idle or slot             idle or slot
/// ```
#[derive(Debug)]
pub(super) struct FreeClusters {
    cluster_size: u64,
    /// Whole clusters of the disk.
    clusters: u64,
    /// A bit for each 2^`shift` clusters: set if any of them has received data, or became a slot before it was searched.
    taken: Vec<u64>,
    shift: u32,
    /// Clusters from here on have been searched: those not taken then are slots or idle, or were taken since.
    sought: u64,
    /// Whole clusters behind the disk that were never slots. The guest has no data there.
    behind: Range<u64>,
    idle: Runs,
    /// Idle and not zero: they were slots.
    dirty: Runs,
}

impl FreeClusters {
    pub(super) fn new(virtual_size: u64, cluster_size: u64) -> Self {
        let clusters = virtual_size / cluster_size;
        let shift = (clusters.div_ceil(BITS_MAX)).next_power_of_two().ilog2();
        let words = (clusters >> shift) / 64 + 1;
        Self {
            cluster_size,
            clusters,
            taken: vec![0; words as usize], // at most BITS_MAX / 64 + 1
            shift,
            sought: clusters,
            behind: 0..0,
            idle: Runs::default(),
            dirty: Runs::default(),
        }
    }

    /// Adds the whole clusters in `space`, which begins at the end of the disk or behind it.
    pub(super) fn add_space_behind(&mut self, space: &Range<u64>) {
        self.behind = space.start.div_ceil(self.cluster_size)..space.end / self.cluster_size;
    }

    pub(super) fn index_bytes(&self) -> usize {
        (self.idle.len() + self.dirty.len()) * Runs::ENTRY_BYTES
    }

    /// Marks `clusters` as used by the guest. Returns the ranges that have to be zeroed first.
    #[must_use]
    pub(super) fn occupy(&mut self, clusters: &Range<u64>) -> Vec<Range<u64>> {
        let end = clusters.end.min(self.clusters);
        if clusters.start >= end {
            return Vec::new();
        }
        for bit in clusters.start >> self.shift..=(end - 1) >> self.shift {
            self.mark(bit << self.shift);
        }
        if self.idle.is_empty() {
            return Vec::new();
        }
        self.idle.remove(clusters);
        self.dirty.remove(clusters)
    }

    /// A cluster to park in: `preferred`, or else one near the end of the disk, or else one behind it. `None`: no cluster
    /// is free.
    pub(super) fn allocate(&mut self, preferred: Option<u64>) -> Option<u64> {
        let slot = match preferred {
            Some(preferred) if self.idle.contains(preferred) => preferred,
            _ => {
                if self.idle.is_empty() {
                    self.seek();
                }
                if self.idle.is_empty() {
                    self.extend_behind();
                }
                self.idle.last()?.start
            }
        };
        self.idle.remove(&(slot..slot + 1));
        self.dirty.remove(&(slot..slot + 1));
        Some(slot)
    }

    /// The cluster `slot` to park in, if it is free.
    pub(super) fn allocate_at(&mut self, slot: u64) -> bool {
        if self.idle.contains(slot) {
            return self.allocate(Some(slot)).is_some();
        }
        let free = slot < self.sought && !self.is_taken(slot);
        if free {
            self.mark(slot);
        }
        free
    }

    /// Frees `slots`: what was parked there is not needed any more.
    pub(super) fn release(&mut self, slots: Range<u64>) {
        self.idle.insert(slots.clone());
        self.dirty.insert(slots);
    }

    /// Returns the dirty ranges for the caller to zero.
    pub(super) fn drain_dirty(&mut self) -> impl Iterator<Item = Range<u64>> + use<> {
        self.dirty.drain()
    }

    /// Finds the next range of free clusters, going down from the end of the disk.
    fn seek(&mut self) {
        while self.sought > 0 && self.is_taken(self.sought - 1) {
            self.sought = (self.sought - 1) >> self.shift << self.shift;
        }
        let end = self.sought;
        let start_min = end.saturating_sub((SEARCH_LEN / self.cluster_size).max(1));
        while self.sought > start_min && !self.is_taken(self.sought - 1) {
            self.sought -= 1;
        }
        self.idle.insert(self.sought..end);
    }

    /// The disk has no free cluster: takes the next ones behind it.
    fn extend_behind(&mut self) {
        let clusters = (SEARCH_LEN / self.cluster_size).max(1);
        let end = self.behind.end.min(self.behind.start.saturating_add(clusters));
        if self.behind.start < end {
            self.idle.insert(self.behind.start..end);
            self.behind.start = end;
        }
    }

    fn mark(&mut self, cluster: u64) {
        let bit = cluster >> self.shift;
        self.taken[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// Whether the guest may have data there. Never false if it has.
    pub(super) fn is_taken(&self, cluster: u64) -> bool {
        let bit = cluster >> self.shift;
        cluster < self.clusters && self.taken[(bit / 64) as usize] & 1 << (bit % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(runs: impl IntoIterator<Item = Range<u64>>) -> Vec<u64> {
        runs.into_iter().flatten().collect()
    }

    #[test]
    fn every_free_cluster_is_allocated_once() {
        let mut free = FreeClusters::new(100 * 512 + 300, 512);
        for taken in [0..10, 50..51, 99..101] {
            assert_eq!(free.occupy(&taken), []);
        }
        let mut slots: Vec<u64> = std::iter::from_fn(|| free.allocate(None)).collect();
        slots.sort_unstable();
        assert_eq!(slots, numbers([10..50, 51..99]));
    }

    #[test]
    fn a_released_slot_is_dirty_until_it_is_occupied_or_reused() {
        let mut free = FreeClusters::new(4 * 512, 512);
        let slots: Vec<u64> = (0..3).map(|_| free.allocate(None).unwrap()).collect();
        assert_eq!(slots, [0, 1, 2], "adjacent, although searched from the end");
        free.release(0..3);
        assert_eq!(free.allocate(Some(1)), Some(1));
        assert_eq!(numbers(free.occupy(&(0..1))), [0]);
        assert_eq!(numbers(free.occupy(&(0..1))), []);
        assert_eq!(numbers(free.drain_dirty()), [2]);
    }

    #[test]
    fn clusters_behind_the_disk_are_allocated_once_the_disk_has_none() {
        let mut free = FreeClusters::new(4 * 512 + 300, 512);
        free.add_space_behind(&(4 * 512 + 300..8 * 512 + 511));
        assert_eq!(free.occupy(&(0..3)), []);
        let slots: Vec<u64> = std::iter::from_fn(|| free.allocate(None)).collect();
        assert_eq!(
            slots,
            [3, 5, 6, 7],
            "neither the part at the end of the disk nor that at the end of the space"
        );
        assert!(slots[1..].iter().all(|&slot| !free.is_taken(slot)));
        free.release(5..7);
        assert_eq!(free.allocate(None), Some(5));
        assert_eq!(numbers(free.drain_dirty()), [6]);
    }

    #[test]
    fn a_disk_of_exbibytes_has_the_same_memory_limit() {
        let mut free = FreeClusters::new(1 << 61, 512);
        assert!(free.taken.len() as u64 <= BITS_MAX / 64 + 1);
        assert_eq!(free.occupy(&((1 << 52) - 1..1 << 52)), []);
        let slot = free.allocate(None).unwrap();
        assert!(slot < (1 << 52) - 1);
    }
}
