//! Bytes that were read before their guest address was known: in memory, or in free clusters of the target, those behind
//! the disk included.

use std::io;
use std::ops::Range;

use super::free_clusters::FreeClusters;
use super::output::Output;
use super::parked_index::{InTarget, ParkedIndex, ParkedLocation};
use super::runs::Runs;
use crate::bytes::is_zero;

/// Bytes loaded from the target at a time.
const STEP_MAX: u64 = 1 << 20;
/// Memory for spares, even if there is none for what is parked: thousands of them.
const SPARES_MIN: usize = 256 << 10;
const SECTOR: u64 = 512;

/// Why bytes could not be parked.
#[derive(Debug)]
pub(super) enum ParkError {
    /// Memory and target are full.
    Full,
    Output(io::Error),
}

impl From<io::Error> for ParkError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// What is parked.
///
/// A cluster parked in the target keeps its alignment: byte n of a host cluster lies at byte n of its slot. No other host
/// cluster has a part in that slot, so that it is free again once the last of its ranges is gone.
#[derive(Debug)]
pub(super) struct Parking {
    virtual_size: u64,
    cluster_size: u64,
    memory_max: usize,
    index: ParkedIndex,
    free: FreeClusters,
}

/// Bytes taken out of the parking.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// So many zeroes.
    Zeroes(u64),
    Bytes(Vec<u8>),
    /// So many bytes, which are in the target where they belong.
    InPlace(u64),
}

impl Claimed {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Zeroes(len) | Self::InPlace(len) => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

impl Parking {
    pub(super) fn new(virtual_size: u64, cluster_size: u64, memory_max: usize) -> Self {
        let free = FreeClusters::new(virtual_size, cluster_size);
        Self { virtual_size, cluster_size, memory_max, index: ParkedIndex::default(), free }
    }

    /// Permits parking behind the disk, in the whole clusters of `space`.
    pub(super) fn add_space_behind(&mut self, space: &Range<u64>) {
        self.free.add_space_behind(&(space.start.max(self.virtual_size)..space.end));
    }

    /// From now on no more than `memory_max` bytes are parked in memory: what exceeds them moves to the target.
    pub(super) fn limit_memory(
        &mut self,
        memory_max: usize,
        output: &mut dyn Output,
    ) -> Result<(), ParkError> {
        self.memory_max = 0; // what leaves the memory must not return to it
        for range in self.index.in_memory() {
            if self.index.memory_used() <= memory_max {
                break;
            }
            if let ParkedLocation::Memory(bytes) = self.index.cut(&range) {
                self.park(range.start, &bytes, None, output)?;
            }
        }
        self.memory_max = memory_max;
        Ok(())
    }

    /// Memory it takes to remember what is where.
    pub(super) fn index_bytes(&self) -> usize {
        self.index.len() * ParkedIndex::ENTRY_BYTES + self.free.index_bytes()
    }

    /// Parks `bytes`, found at `host`. Where there is a choice, the byte at `host` is parked at the address `home`, since
    /// it may well belong there.
    pub(super) fn park(
        &mut self,
        host: u64,
        bytes: &[u8],
        home: Option<u64>,
        output: &mut dyn Output,
    ) -> Result<(), ParkError> {
        // What is adjacent in the target is written at once.
        let (mut unwritten, mut address_next) = (0..0, 0);
        let mut end = 0;
        while end < bytes.len() {
            let (start, host) = (end, host + end as u64);
            let in_cluster = self.cluster_size - host % self.cluster_size;
            end = bytes.len().min(start + in_cluster as usize);
            let part = &bytes[start..end];
            let location = if is_zero(part) {
                ParkedLocation::Zero
            } else if self.index.memory_used() + part.len() <= self.memory_max {
                ParkedLocation::Memory(part.to_vec())
            } else {
                let home = home.map(|home| home + start as u64);
                let slot = self.slot_for(host, home).ok_or(ParkError::Full)?;
                let address = slot * self.cluster_size + host % self.cluster_size;
                if unwritten.end != start || address_next != address {
                    store(&bytes[unwritten.clone()], address_next, output)?;
                    unwritten.start = start;
                }
                unwritten.end = end;
                address_next = address + part.len() as u64;
                ParkedLocation::Target(address)
            };
            self.index.insert(host, part.len() as u64, location);
        }
        store(&bytes[unwritten], address_next, output)?;
        self.index.limit_spares(self.spares_max());
        Ok(())
    }

    /// Keeps a copy of the last sector of the compressed cluster that occupies `range`: another may begin in it, right
    /// behind its last byte. The end of `bytes` may be missing.
    pub(super) fn keep_tail(&mut self, range: &Range<u64>, bytes: &[u8]) {
        let end = range.start + bytes.len() as u64;
        let parked_until = self.index.last_before(end).map_or(0, |(before, _)| before.end);
        let start = tail_start(range).max(parked_until);
        if start < end {
            let tail = bytes[(start - range.start) as usize..].to_vec();
            self.index.insert_spare(start, tail, self.spares_max());
        }
    }

    /// The bytes from `host` on are going to be parked. A tail that ends there may be the beginning of what continues there,
    /// and is parked with it.
    pub(super) fn park_tail(
        &mut self,
        host: u64,
        output: &mut dyn Output,
    ) -> Result<(), ParkError> {
        match self.index.take_spare_before(host) {
            Some((start, tail)) => self.park(start, &tail, None, output),
            None => Ok(()),
        }
    }

    /// Takes out the first bytes of `range`: as many as lie in one place, and few enough for memory. If `home` is where
    /// the first of them belongs, they may be there already. `None`: they are not here.
    pub(super) fn claim(
        &mut self,
        range: &Range<u64>,
        home: Option<u64>,
        output: &mut dyn Output,
    ) -> io::Result<Option<Claimed>> {
        let Some((fragment, location)) = self.index.containing(range.start) else {
            return Ok(None);
        };
        let len = range.end.min(fragment.end) - range.start;
        if let ParkedLocation::Target(address) = location
            && home == Some(address + range.start - fragment.start)
            && range.start.is_multiple_of(self.cluster_size)
            && len >= self.cluster_size
        {
            return Ok(Some(self.claim_in_place(
                range.start,
                address + range.start - fragment.start,
                len,
            )));
        }
        let len = len.min(STEP_MAX);
        Ok(Some(match self.index.cut(&(range.start..range.start + len)) {
            ParkedLocation::Zero => Claimed::Zeroes(len),
            ParkedLocation::Memory(bytes) | ParkedLocation::Spare(bytes) => Claimed::Bytes(bytes),
            ParkedLocation::Target(address) => {
                let mut bytes = vec![0; len as usize]; // at most STEP_MAX
                output.load(address, &mut bytes)?;
                self.release(address, len);
                Claimed::Bytes(bytes)
            }
        }))
    }

    /// Takes out as many bytes of `range` as are here without a gap, from its beginning on.
    pub(super) fn claim_all(
        &mut self,
        range: &Range<u64>,
        output: &mut dyn Output,
    ) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut rest = range.clone();
        while !rest.is_empty()
            && let Some(claimed) = self.claim(&rest, None, output)?
        {
            rest.start += claimed.len();
            match claimed {
                Claimed::Bytes(bytes) if all.is_empty() => all = bytes,
                Claimed::Bytes(bytes) => all.extend(bytes),
                Claimed::Zeroes(len) | Claimed::InPlace(len) => {
                    all.resize(all.len() + len as usize, 0);
                }
            }
        }
        Ok(all)
    }

    /// Takes out the compressed cluster that occupies `range`. Others may share its first and its last sector: what
    /// they need stays, and the end of the last sector may be missing. `None`: the cluster is not here.
    pub(super) fn claim_compressed(
        &mut self,
        range: &Range<u64>,
        output: &mut dyn Output,
    ) -> Result<Option<Vec<u8>>, ParkError> {
        let bytes = self.claim_all(range, output)?;
        let (tail, end) = (tail_start(range), range.start + bytes.len() as u64);
        if end < tail {
            return Ok(None);
        }
        self.spare_remains(range.start, output)?;
        let goes_on =
            matches!(self.index.containing(end), Some((_, location)) if !location.is_spare());
        if end == range.end && goes_on {
            self.park(tail, &bytes[(tail - range.start) as usize..], None, output)?;
        } else {
            self.keep_tail(range, &bytes);
        }
        Ok(Some(bytes))
    }

    /// Prepares the range `guest` for the guest's own data: moves what is parked there, and zeroes it.
    pub(super) fn vacate(
        &mut self,
        guest: Range<u64>,
        output: &mut dyn Output,
    ) -> Result<(), ParkError> {
        // The last cluster may end behind the disk, where bytes may be parked.
        let guest = guest.start..guest.end.min(self.virtual_size);
        let slots = self.slots(&guest);
        for dirty in self.free.occupy(&slots) {
            self.clear(&dirty, output)?;
        }
        let addresses = slots.start * self.cluster_size..slots.end * self.cluster_size;
        let mut moved = Runs::default();
        while let Some(InTarget { address, len, host }) = self.index.in_target(&addresses) {
            let len = len.min(STEP_MAX);
            let mut bytes = vec![0; len as usize];
            output.load(address, &mut bytes)?;
            self.index.cut(&(host..host + len));
            moved.insert(self.slots(&(address..address + len)));
            self.park(host, &bytes, None, output)?;
        }
        for dirty in moved.drain() {
            self.clear(&dirty, output)?;
        }
        Ok(())
    }

    /// Forgets what of `range` is parked.
    pub(super) fn discard(&mut self, range: &Range<u64>) {
        while let Some((fragment, _)) = self.index.last_before(range.end)
            && fragment.end > range.start
        {
            let part = fragment.start.max(range.start)..fragment.end.min(range.end);
            if let ParkedLocation::Target(address) = self.index.cut(&part) {
                self.release(address, part.end - part.start);
            }
        }
    }

    /// Drops everything that is parked, and zeroes the slots.
    pub(super) fn abandon(&mut self, output: &mut dyn Output) -> io::Result<()> {
        for InTarget { address, len, .. } in self.index.drain() {
            self.free.release(self.slots(&(address..address + len)));
        }
        for dirty in self.free.drain_dirty() {
            self.clear(&dirty, output)?;
        }
        Ok(())
    }

    /// Whole clusters that are parked where they belong stay there.
    fn claim_in_place(&mut self, host: u64, address: u64, len: u64) -> Claimed {
        let len = len / self.cluster_size * self.cluster_size;
        self.index.cut(&(host..host + len));
        let dirty = self.free.occupy(&self.slots(&(address..address + len)));
        debug_assert!(dirty.is_empty(), "what is in use is not dirty");
        Claimed::InPlace(len)
    }

    /// A slot for the host cluster around `host`: one that holds other bytes of it, or its presumed home, or a free one
    /// near the end of the disk or behind it, preferably next to the cluster before.
    fn slot_for(&mut self, host: u64, home: Option<u64>) -> Option<u64> {
        let cluster = host / self.cluster_size * self.cluster_size;
        let slot = |address| address / self.cluster_size;
        let mut shared = self.index.addresses_of(cluster..cluster + self.cluster_size).map(slot);
        // One that the guest has taken is just being vacated.
        if let Some(slot) = shared.find(|&slot| !self.free.is_taken(slot)) {
            return Some(slot);
        }
        drop(shared);
        if let Some(home) = home.map(slot)
            && self.free.allocate_at(home)
        {
            return Some(home);
        }
        let before = self.index.addresses_of(cluster.saturating_sub(1)..cluster).next();
        self.free.allocate(before.map(|address| slot(address) + 1))
    }

    /// The bytes at `address` of the target are not needed any more: frees the slots in which nothing else is.
    fn release(&mut self, address: u64, len: u64) {
        let mut slots = self.slots(&(address..address + len));
        let in_use = |slot: u64| {
            let addresses = slot * self.cluster_size..(slot + 1) * self.cluster_size;
            self.index.in_target(&addresses).is_some()
        };
        if in_use(slots.start) {
            slots.start += 1;
        }
        if !slots.is_empty() && in_use(slots.end - 1) {
            slots.end -= 1;
        }
        if !slots.is_empty() {
            self.free.release(slots);
        }
    }

    /// A compressed cluster was taken out from `host` on. If the one before it in the same sector was too, then what is
    /// left between them is only of use to a third: it becomes a spare.
    fn spare_remains(&mut self, host: u64, output: &mut dyn Output) -> io::Result<()> {
        let sector = (host - 1) / SECTOR * SECTOR;
        if let Some((between, location)) = self.index.last_before(host)
            && !location.is_spare()
            && between.start > sector
            && between.end == host
            && let Some(Claimed::Bytes(bytes)) = self.claim(&between, None, output)?
        {
            self.index.insert_spare(between.start, bytes, self.spares_max());
        }
        Ok(())
    }

    /// Memory for spares: what parked bytes leave.
    fn spares_max(&self) -> usize {
        SPARES_MIN.max(self.memory_max.saturating_sub(self.index.memory_used()))
    }

    /// The clusters that a range of the disk touches.
    fn slots(&self, guest: &Range<u64>) -> Range<u64> {
        guest.start / self.cluster_size..guest.end.div_ceil(self.cluster_size)
    }

    fn clear(&self, slots: &Range<u64>, output: &mut dyn Output) -> io::Result<()> {
        let len = (slots.end - slots.start) * self.cluster_size;
        output.clear(slots.start * self.cluster_size, len)
    }
}

/// Writes bytes so that they end at `address_end`.
fn store(bytes: &[u8], address_end: u64, output: &mut dyn Output) -> io::Result<()> {
    match bytes.len() as u64 {
        0 => Ok(()),
        len => output.store(address_end - len, bytes),
    }
}

/// Where in a compressed cluster's range another may begin: behind the first byte of its last sector.
pub(super) fn tail_start(range: &Range<u64>) -> u64 {
    range.start.max(range.end.saturating_sub(SECTOR)) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only parking matters here.
    struct Target(Vec<u8>);

    impl Output for Target {
        fn plain(&mut self, _: Range<usize>, _: u64) -> io::Result<()> {
            unreachable!("the parking plan has no such action")
        }
        fn compressed(&mut self, _: Range<usize>, _: u64) -> io::Result<()> {
            unreachable!("the parking plan has no such action")
        }
        fn plain_owned(&mut self, _: Vec<u8>, _: u64) -> io::Result<()> {
            unreachable!("the parking plan has no such action")
        }
        fn compressed_owned(&mut self, _: Vec<u8>, _: u64) -> io::Result<()> {
            unreachable!("the parking plan has no such action")
        }
        fn store(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        fn load(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.copy_from_slice(&self.0[at as usize..][..buffer.len()]);
            Ok(())
        }
        fn clear(&mut self, at: u64, len: u64) -> io::Result<()> {
            self.0[at as usize..][..len as usize].fill(0);
            Ok(())
        }
    }

    const CLUSTER: u64 = 1024;

    /// A disk of eight clusters, and `memory_max` bytes of memory.
    fn parking(memory_max: usize) -> (Parking, Target) {
        (Parking::new(8 * CLUSTER, CLUSTER, memory_max), Target(vec![0; 12 * CLUSTER as usize]))
    }

    /// Every byte different from its neighbours, and none zero.
    fn bytes(range: &Range<u64>) -> Vec<u8> {
        range.clone().map(|at| (at % 251) as u8 + 1).collect()
    }

    /// So many tails that all older spares are forgotten.
    fn keep_many_tails(parking: &mut Parking) {
        for number in 1000..2000 {
            let range = number * CLUSTER..number * CLUSTER + SECTOR;
            parking.keep_tail(&range, &bytes(&range));
        }
    }

    #[test]
    fn parked_clusters_move_until_the_disk_is_full() {
        let (mut parking, mut target) = parking(0);
        let host = 10 * CLUSTER..14 * CLUSTER;
        parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
        for guest in (0..8).rev().take(4) {
            parking.vacate(guest * CLUSTER..(guest + 1) * CLUSTER, &mut target).unwrap();
            let location = &target.0[(guest * CLUSTER) as usize..][..CLUSTER as usize];
            assert!(is_zero(location), "vacated");
        }
        assert!(matches!(parking.vacate(0..CLUSTER, &mut target), Err(ParkError::Full)));
    }

    #[test]
    fn parked_clusters_move_behind_a_full_disk_and_leave_no_trace_there() {
        let (mut parking, mut target) = parking(0);
        parking.add_space_behind(&(8 * CLUSTER..12 * CLUSTER));
        let host = 10 * CLUSTER..14 * CLUSTER;
        parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
        for guest in 0..8 {
            parking.vacate(guest * CLUSTER..(guest + 1) * CLUSTER, &mut target).unwrap();
        }
        assert!(is_zero(&target.0[..8 * CLUSTER as usize]), "vacated");
        let more = parking.park(20 * CLUSTER, &[1], None, &mut target);
        assert!(matches!(more, Err(ParkError::Full)), "{more:?}");
        let claimed = host.start..host.start + 2 * CLUSTER;
        assert_eq!(parking.claim_all(&claimed, &mut target).unwrap(), bytes(&claimed));
        parking.abandon(&mut target).unwrap();
        assert!(is_zero(&target.0));
    }

    #[test]
    fn a_lower_memory_limit_moves_what_exceeds_it_to_the_target() {
        for memory_max in [0, 1500, 3000, 9999] {
            let (mut parking, mut target) = parking(9999);
            let host = 10 * CLUSTER + 100..14 * CLUSTER;
            parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
            assert!(is_zero(&target.0), "all of it is in memory");
            parking.limit_memory(memory_max, &mut target).unwrap();
            assert!(parking.index.memory_used() <= memory_max);
            assert_eq!(is_zero(&target.0), memory_max == 9999);
            assert_eq!(parking.claim_all(&host, &mut target).unwrap(), bytes(&host));
        }
    }

    #[test]
    fn parked_cluster_is_returned_unchanged() {
        for memory_max in [0, 1500, 9999] {
            let (mut parking, mut target) = parking(memory_max);
            let host = 10 * CLUSTER + 100..13 * CLUSTER + 50;
            parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
            let part = 11 * CLUSTER + 7..12 * CLUSTER + 9;
            assert_eq!(parking.claim_all(&part, &mut target).unwrap(), bytes(&part));
            assert_eq!(parking.claim(&part, None, &mut target).unwrap(), None);
            for rest in [host.start..part.start, part.end..host.end] {
                assert_eq!(parking.claim_all(&rest, &mut target).unwrap(), bytes(&rest));
            }
            parking.abandon(&mut target).unwrap();
            assert!(is_zero(&target.0));
        }
    }

    #[test]
    fn a_cluster_parked_at_home_stays_there() {
        let (mut parking, mut target) = parking(0);
        let host = 10 * CLUSTER..13 * CLUSTER;
        parking.park(host.start, &bytes(&host), Some(2 * CLUSTER), &mut target).unwrap();
        let claimed = parking.claim(&host, Some(2 * CLUSTER), &mut target).unwrap();
        assert_eq!(claimed, Some(Claimed::InPlace(3 * CLUSTER)));
        parking.abandon(&mut target).unwrap();
        assert_eq!(target.0[2 * CLUSTER as usize..5 * CLUSTER as usize], bytes(&host));
    }

    #[test]
    fn the_beginning_of_an_unknown_cluster_in_a_known_ones_last_sector_is_parked_with_it() {
        let (mut parking, mut target) = parking(0);
        let (known, unknown) = (4 * CLUSTER..4 * CLUSTER + SECTOR, 4 * CLUSTER + 300..5 * CLUSTER);
        parking.keep_tail(&known, &bytes(&known));
        parking.park_tail(known.end, &mut target).unwrap();
        let rest = known.end..5 * CLUSTER;
        parking.park(rest.start, &bytes(&rest), None, &mut target).unwrap();
        keep_many_tails(&mut parking);
        let claimed = parking.claim_compressed(&unknown, &mut target).unwrap();
        assert_eq!(claimed, Some(bytes(&unknown)));
    }

    #[test]
    fn unknown_clusters_in_one_sector_are_taken_out_in_any_order() {
        let parts = [4096..4608, 4300..5632, 5130..6144];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let (mut parking, mut target) = parking(0);
            let whole = parts[0].start..parts[2].end;
            parking.park(whole.start, &bytes(&whole), None, &mut target).unwrap();
            for index in order {
                let range = &parts[index];
                let claimed = parking.claim_compressed(range, &mut target).unwrap().unwrap();
                // Of the last sector only what no other has taken.
                assert!(bytes(range).starts_with(&claimed));
                let next = parts.get(index + 1).map_or(range.end, |next| next.start);
                assert!(range.start + claimed.len() as u64 >= next, "{order:?}, {range:?}");
                keep_many_tails(&mut parking);
            }
        }
    }
}
