//! Bytes that were read before their guest address was known: in memory, or in free clusters of the target, those behind
//! the disk included.

mod tails;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;

pub(super) use self::tails::tail_start;
use super::free_clusters::FreeClusters;
use super::output::Output;
use super::parked_index::{InTarget, ParkedIndex, ParkedLocation};
use super::runs::Runs;
use crate::bytes::is_zero;

/// Bytes loaded from the target at a time.
const STEP_MAX: u64 = 1 << 20;

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
