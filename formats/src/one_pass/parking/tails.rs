//! Compressed clusters: they begin and end at any byte, so that two or more may share a sector.

use std::io;
use std::ops::Range;

use super::{Claimed, Output, ParkError, Parking};

/// Memory for spares, even if there is none for what is parked: thousands of them.
const SPARES_MIN: usize = 256 << 10;
const SECTOR: u64 = 512;

impl Parking {
    /// Keeps a copy of the last sector of the compressed cluster that occupies `range`: another may begin in it, right
    /// behind its last byte. The end of `bytes` may be missing.
    pub(crate) fn keep_tail(&mut self, range: &Range<u64>, bytes: &[u8]) {
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
    pub(crate) fn park_tail(
        &mut self,
        host: u64,
        output: &mut dyn Output,
    ) -> Result<(), ParkError> {
        match self.index.take_spare_before(host) {
            Some((start, tail)) => self.park(start, &tail, None, output),
            None => Ok(()),
        }
    }

    /// Takes out the compressed cluster that occupies `range`. Others may share its first and its last sector: what
    /// they need stays, and the end of the last sector may be missing. `None`: the cluster is not here.
    pub(crate) fn claim_compressed(
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
    pub(super) fn spares_max(&self) -> usize {
        SPARES_MIN.max(self.memory_max.saturating_sub(self.index.memory_used()))
    }
}

/// Where in a compressed cluster's range another may begin: behind the first byte of its last sector.
pub(crate) fn tail_start(range: &Range<u64>) -> u64 {
    range.start.max(range.end.saturating_sub(SECTOR)) + 1
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CLUSTER, bytes, parking};
    use super::*;

    /// So many tails that all older spares are forgotten.
    fn keep_many_tails(parking: &mut Parking) {
        for number in 1000..2000 {
            let range = number * CLUSTER..number * CLUSTER + SECTOR;
            parking.keep_tail(&range, &bytes(&range));
        }
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
