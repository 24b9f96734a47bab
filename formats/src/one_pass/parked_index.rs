//! The index of what is parked: which bytes of the file, and where they are now.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Where parked bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParkedLocation {
    /// Nowhere: they are zero.
    Zero,
    Memory(Vec<u8>),
    /// In memory, and may be forgotten: they have been used, and are kept because they could be used once more.
    Spare(Vec<u8>),
    /// In the target, from this address of the guest's disk on.
    Target(u64),
}

impl ParkedLocation {
    pub(super) fn is_spare(&self) -> bool {
        matches!(self, Self::Spare(_))
    }
}

/// Parked bytes of the file, found by their offset there (`host`) and, where they are in the target, by their address.
#[derive(Debug, Default)]
pub(super) struct ParkedIndex {
    by_host: BTreeMap<u64, ParkedRange>,
    /// Length and host offset of each range in the target.
    by_address: BTreeMap<u64, (u64, u64)>,
    memory_used: usize,
    spares: Spares,
}

#[derive(Debug)]
struct ParkedRange {
    len: u64,
    location: ParkedLocation,
}

/// The oldest first. A host offset at which there is no spare any more is passed over.
#[derive(Debug, Default)]
struct Spares {
    hosts: VecDeque<u64>,
    count: usize,
    bytes: usize,
}

/// Some bytes in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InTarget {
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) host: u64,
}

impl ParkedIndex {
    /// Memory that a range takes besides its bytes, about: an entry in each of the maps.
    pub(super) const ENTRY_BYTES: usize = 96;

    /// How many there are, without spares.
    pub(super) fn len(&self) -> usize {
        self.by_host.len() - self.spares.count
    }

    /// Bytes in memory, without spares.
    pub(super) fn memory_used(&self) -> usize {
        self.memory_used
    }

    /// The ranges in memory, without spares.
    pub(super) fn in_memory(&self) -> Vec<Range<u64>> {
        let all = self.by_host.iter();
        let in_memory =
            all.filter(|(_, range)| matches!(range.location, ParkedLocation::Memory(_)));
        in_memory.map(|(&host, range)| host..host + range.len).collect()
    }

    /// The range of the range that contains the byte at `host`, and where it is.
    pub(super) fn containing(&self, host: u64) -> Option<(Range<u64>, &ParkedLocation)> {
        self.last_before(host + 1).filter(|(range, _)| range.contains(&host))
    }

    /// The last range that begins before `host`.
    pub(super) fn last_before(&self, host: u64) -> Option<(Range<u64>, &ParkedLocation)> {
        let (&start, fragment) = self.by_host.range(..host).next_back()?;
        Some((start..start + fragment.len, &fragment.location))
    }

    /// Where in the target bytes of `host` are: the first of each range, the last range first.
    pub(super) fn addresses_of(&self, host: Range<u64>) -> impl Iterator<Item = u64> {
        let index = self.by_host.range(..host.end).rev();
        let start = host.start;
        let inside = index.take_while(move |(at, fragment)| **at + fragment.len > start);
        inside.filter_map(move |(&at, fragment)| match fragment.location {
            ParkedLocation::Target(address) => Some(address + at.max(start) - at),
            _ => None,
        })
    }

    /// Something that is parked between these addresses of the disk.
    pub(super) fn in_target(&self, addresses: &Range<u64>) -> Option<InTarget> {
        let (&start, &(len, host)) = self.by_address.range(..addresses.end).next_back()?;
        let address = start.max(addresses.start);
        let end = (start + len).min(addresses.end);
        (address < end).then(|| InTarget {
            address,
            len: end - address,
            host: host + address - start,
        })
    }

    /// Adds `len` bytes at `host`, none of which is here already. They join the range before, where that is possible.
    pub(super) fn insert(&mut self, host: u64, len: u64, location: ParkedLocation) {
        if let Some((&before, last)) = self.by_host.range_mut(..host).next_back()
            && before + last.len == host
        {
            let joins = match (&last.location, &location) {
                (ParkedLocation::Zero, ParkedLocation::Zero) => true,
                (ParkedLocation::Target(start), ParkedLocation::Target(address)) => {
                    start + last.len == *address
                }
                _ => false,
            };
            if joins {
                last.len += len;
                if let ParkedLocation::Target(start) = last.location {
                    self.by_address.insert(start, (last.len, before));
                }
                return;
            }
        }
        self.insert_apart(host, len, location);
    }

    /// Adds bytes that may be forgotten as soon as `bytes_max` of them, and of what it takes to remember them, are younger.
    pub(super) fn insert_spare(&mut self, host: u64, bytes: Vec<u8>, bytes_max: usize) {
        self.insert_apart(host, bytes.len() as u64, ParkedLocation::Spare(bytes));
        self.spares.hosts.push_back(host);
        self.limit_spares(bytes_max);
    }

    /// Forgets the oldest spares, until the others take no more than `bytes_max`.
    pub(super) fn limit_spares(&mut self, bytes_max: usize) {
        while self.spares.bytes > bytes_max
            && let Some(oldest) = self.spares.hosts.pop_front()
        {
            if let Some((range, ParkedLocation::Spare(_))) = self.containing(oldest)
                && range.start == oldest
            {
                self.cut(&range);
            }
        }
    }

    /// Takes out the spare that ends at `host`.
    pub(super) fn take_spare_before(&mut self, host: u64) -> Option<(u64, Vec<u8>)> {
        let (range, location) = self.last_before(host)?;
        if range.end != host || !location.is_spare() {
            return None;
        }
        match self.cut(&range) {
            ParkedLocation::Spare(bytes) => Some((range.start, bytes)),
            _ => None,
        }
    }

    /// Takes out `range`, which lies in one range.
    pub(super) fn cut(&mut self, range: &Range<u64>) -> ParkedLocation {
        let (whole, _) = self.containing(range.start).expect("the caller found it here");
        let fragment = self.by_host.remove(&whole.start).expect("`containing` found it");
        let before = range.start - whole.start;
        let behind = whole.end.checked_sub(range.end).expect("the caller knows its end");
        let parts = |mut bytes: Vec<u8>| {
            let right = bytes.split_off(bytes.len() - behind as usize);
            let middle = bytes.split_off(before as usize);
            (bytes, middle, right)
        };
        let (left, middle, right) = match fragment.location {
            ParkedLocation::Zero => {
                (ParkedLocation::Zero, ParkedLocation::Zero, ParkedLocation::Zero)
            }
            ParkedLocation::Memory(bytes) => {
                self.memory_used -= bytes.len();
                let (left, middle, right) = parts(bytes);
                (
                    ParkedLocation::Memory(left),
                    ParkedLocation::Memory(middle),
                    ParkedLocation::Memory(right),
                )
            }
            ParkedLocation::Spare(bytes) => {
                self.spares.count -= 1;
                self.spares.bytes -= bytes.len() + Self::ENTRY_BYTES;
                let (left, middle, right) = parts(bytes);
                (
                    ParkedLocation::Spare(left),
                    ParkedLocation::Spare(middle),
                    ParkedLocation::Spare(right),
                )
            }
            ParkedLocation::Target(address) => {
                self.by_address.remove(&address);
                let middle = address + before;
                let right = middle + (range.end - range.start);
                (
                    ParkedLocation::Target(address),
                    ParkedLocation::Target(middle),
                    ParkedLocation::Target(right),
                )
            }
        };
        if before > 0 {
            self.insert_apart(whole.start, before, left);
        }
        // The queue of spares has no entry for the right part of a spare.
        if behind > 0 && !right.is_spare() {
            self.insert_apart(range.end, behind, right);
        }
        middle
    }

    /// Removes all entries, and returns those in the target.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = InTarget> + use<> {
        let in_target = std::mem::take(self).by_address.into_iter();
        in_target.map(|(address, (len, host))| InTarget { address, len, host })
    }

    fn insert_apart(&mut self, host: u64, len: u64, location: ParkedLocation) {
        match &location {
            ParkedLocation::Zero => {}
            ParkedLocation::Memory(bytes) => self.memory_used += bytes.len(),
            ParkedLocation::Spare(bytes) => {
                self.spares.count += 1;
                self.spares.bytes += bytes.len() + Self::ENTRY_BYTES;
            }
            ParkedLocation::Target(address) => {
                self.by_address.insert(*address, (len, host));
            }
        }
        self.by_host.insert(host, ParkedRange { len, location });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each byte of a small file is, range by range.
    fn layout(index: &ParkedIndex) -> Vec<(Range<u64>, &ParkedLocation)> {
        (0..100)
            .filter_map(|host| index.containing(host).filter(|(r, _)| r.start == host))
            .collect()
    }

    #[test]
    fn adjacent_ranges_of_one_kind_are_merged() {
        let mut index = ParkedIndex::default();
        index.insert(0, 10, ParkedLocation::Zero);
        index.insert(10, 10, ParkedLocation::Zero);
        index.insert(20, 10, ParkedLocation::Target(520));
        index.insert(30, 10, ParkedLocation::Target(530));
        index.insert(40, 10, ParkedLocation::Target(640));
        let expected = [
            (0..20, &ParkedLocation::Zero),
            (20..40, &ParkedLocation::Target(520)),
            (40..50, &ParkedLocation::Target(640)),
        ];
        assert_eq!(layout(&index), expected);
        assert_eq!(
            index.in_target(&(525..600)),
            Some(InTarget { address: 525, len: 15, host: 25 })
        );
        assert_eq!(index.in_target(&(540..640)), None);
    }

    #[test]
    fn a_part_is_cut_out_of_the_middle() {
        let mut index = ParkedIndex::default();
        index.insert(0, 6, ParkedLocation::Memory(vec![0, 1, 2, 3, 4, 5]));
        index.insert(10, 30, ParkedLocation::Target(1010));
        assert_eq!(index.cut(&(2..4)), ParkedLocation::Memory(vec![2, 3]));
        assert_eq!(index.cut(&(20..30)), ParkedLocation::Target(1020));
        let (left, right) =
            (ParkedLocation::Memory(vec![0, 1]), ParkedLocation::Memory(vec![4, 5]));
        let expected = [
            (0..2, &left),
            (4..6, &right),
            (10..20, &ParkedLocation::Target(1010)),
            (30..40, &ParkedLocation::Target(1030)),
        ];
        assert_eq!(layout(&index), expected);
        assert_eq!((index.memory_used(), index.len()), (4, 4));
        assert_eq!(index.drain().map(|part| part.host).collect::<Vec<_>>(), [10, 30]);
        assert_eq!((index.memory_used(), index.len()), (0, 0));
    }

    #[test]
    fn oldest_spares_are_evicted_unless_they_were_removed() {
        let mut index = ParkedIndex::default();
        let bytes_max = 3 * (10 + ParkedIndex::ENTRY_BYTES);
        for host in [0, 20, 40] {
            index.insert_spare(host, vec![7; 10], bytes_max);
        }
        assert_eq!(index.take_spare_before(9), None);
        assert_eq!(index.take_spare_before(10), Some((0, vec![7; 10])));
        index.insert(0, 10, ParkedLocation::Memory(vec![7; 10]));
        index.insert_spare(60, vec![7; 10], bytes_max);
        index.insert_spare(80, vec![7; 10], bytes_max);
        let starts: Vec<u64> = layout(&index).iter().map(|(range, _)| range.start).collect();
        assert_eq!(starts, [0, 40, 60, 80]);
        assert_eq!((index.memory_used(), index.len()), (10, 1));
    }
}
