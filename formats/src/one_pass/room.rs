//! Which clusters of the disk are free to park in: those that have not received data of their own.

use std::ops::Range;

use super::runs::Runs;

/// At most so many bits say which clusters are taken: 2 MiB, of which the operating system gives what is touched. A larger
/// disk has several clusters to a bit.
const BITS_MAX: u64 = 16 << 20;
/// Slots are looked for in stretches of about this many bytes, so that neighbours can be parked side by side.
const STRETCH: u64 = 1 << 20;

/// The free clusters of a disk, by number. A *slot* is one that bytes are parked in.
///
/// ```text
///   0 ─────────────── never looked at ───────────────► sought ── looked at ─► end of the disk
///                                                             taken, idle or slot
/// ```
#[derive(Debug)]
pub(super) struct Room {
    cluster_size: u64,
    /// Whole clusters of the disk.
    clusters: u64,
    /// A bit for each 2^`shift` clusters: set where any of them has received data, or became a slot before the search had
    /// come so far.
    taken: Vec<u64>,
    shift: u32,
    /// Clusters from here on have been looked at: those not taken by then are slots or idle, or were taken since.
    sought: u64,
    /// Free, and looked at.
    idle: Runs,
    /// Idle, and not zero: something was parked there.
    dirty: Runs,
}

impl Room {
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
            idle: Runs::default(),
            dirty: Runs::default(),
        }
    }

    /// Memory it takes to remember more than a bit for each cluster.
    pub(super) fn index_bytes(&self) -> usize {
        (self.idle.len() + self.dirty.len()) * Runs::ENTRY_BYTES
    }

    /// From now on `clusters` belong to the guest. Returns what has to be made zero before that is true.
    #[must_use]
    pub(super) fn take(&mut self, clusters: &Range<u64>) -> Vec<Range<u64>> {
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

    /// A cluster to park in, best `beside`; otherwise one near the end of the disk. `None`: there is no free one.
    pub(super) fn allocate(&mut self, beside: Option<u64>) -> Option<u64> {
        let slot = match beside {
            Some(beside) if self.idle.contains(beside) => beside,
            _ => {
                if self.idle.is_empty() {
                    self.seek();
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

    /// Nothing of what was parked in `slots` is needed any more.
    pub(super) fn release(&mut self, slots: Range<u64>) {
        self.idle.insert(slots.clone());
        self.dirty.insert(slots);
    }

    /// Forgets what is dirty, for the caller to make it zero.
    pub(super) fn drain_dirty(&mut self) -> impl Iterator<Item = Range<u64>> + use<> {
        self.dirty.drain()
    }

    /// Finds the next stretch of free clusters, going down from the end of the disk.
    fn seek(&mut self) {
        while self.sought > 0 && self.is_taken(self.sought - 1) {
            self.sought = (self.sought - 1) >> self.shift << self.shift;
        }
        let end = self.sought;
        let start_min = end.saturating_sub((STRETCH / self.cluster_size).max(1));
        while self.sought > start_min && !self.is_taken(self.sought - 1) {
            self.sought -= 1;
        }
        self.idle.insert(self.sought..end);
    }

    fn mark(&mut self, cluster: u64) {
        let bit = cluster >> self.shift;
        self.taken[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// Whether the guest may have data there. Where it has, the answer is yes.
    pub(super) fn is_taken(&self, cluster: u64) -> bool {
        let bit = cluster >> self.shift;
        self.taken[(bit / 64) as usize] & 1 << (bit % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(runs: impl IntoIterator<Item = Range<u64>>) -> Vec<u64> {
        runs.into_iter().flatten().collect()
    }

    #[test]
    fn every_free_cluster_can_be_parked_in_once() {
        let mut room = Room::new(100 * 512 + 300, 512);
        for taken in [0..10, 50..51, 99..101] {
            assert_eq!(room.take(&taken), []);
        }
        let mut slots: Vec<u64> = std::iter::from_fn(|| room.allocate(None)).collect();
        slots.sort_unstable();
        assert_eq!(slots, numbers([10..50, 51..99]));
    }

    #[test]
    fn a_released_slot_is_dirty_until_it_is_taken_or_used_again() {
        let mut room = Room::new(4 * 512, 512);
        let slots: Vec<u64> = (0..3).map(|_| room.allocate(None).unwrap()).collect();
        assert_eq!(slots, [0, 1, 2], "side by side, although sought from the end");
        room.release(0..3);
        assert_eq!(room.allocate(Some(1)), Some(1));
        assert_eq!(numbers(room.take(&(0..1))), [0]);
        assert_eq!(numbers(room.take(&(0..1))), []);
        assert_eq!(numbers(room.drain_dirty()), [2]);
    }

    #[test]
    fn a_disk_of_exbibytes_needs_no_more_memory() {
        let mut room = Room::new(1 << 61, 512);
        assert!(room.taken.len() as u64 <= BITS_MAX / 64 + 1);
        assert_eq!(room.take(&((1 << 52) - 1..1 << 52)), []);
        let slot = room.allocate(None).unwrap();
        assert!(slot < (1 << 52) - 1);
    }
}
