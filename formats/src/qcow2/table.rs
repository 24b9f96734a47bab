//! Entries of the two levels of tables, from their bits to their meaning.

use super::header::{Header, check_begin};
use crate::Error;
use crate::bytes::be_u64;

/// Bits 9 to 55 of an entry: where the table or cluster begins.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// Bit 63: the refcount is exactly one. Of no use to a reader.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// Bit 0: reads as zeroes. Version 3 without extended entries only.
const ZERO: u64 = 1 << 0;
const SECTOR: u64 = 512;

/// The offset of the L2 table that the L1 entry at byte `at` names; `None`: all that it would map is zero.
pub(super) fn l1_entry(header: &Header, entry: u64, at: u64) -> Result<Option<u64>, Error> {
    if entry & !(OFFSET | COPIED) != 0 {
        return Err(Error::ReservedBits { what: "L1 entry", at, entry });
    }
    let table = entry & OFFSET;
    check_begin("L2 table", table, header.cluster_size())?;
    Ok((table != 0).then_some(table))
}

/// The state of a cluster, from its L2 entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    /// Unallocated, or flagged as zero.
    Zero,
    /// At `host`; of 32 equal parts only those are data whose bit is set in `parts`.
    Plain { host: u64, parts: u32 },
    /// Compressed, somewhere in `host..end`, where `end` is the end of a sector.
    Compressed { host: u64, end: u64 },
}

/// The meaning of entry number `index` of the L2 table that begins at byte `table_at`. `table` is one cluster long.
pub(super) fn l2_entry(
    header: &Header,
    table_at: u64,
    table: &[u8],
    index: usize,
) -> Result<Cluster, Error> {
    let offset = index * header.l2_entry_size() as usize;
    let (at, entry) = (table_at + offset as u64, be_u64(table, offset));
    let bitmap = header.extended_l2().then(|| be_u64(table, offset + 8));
    if entry & COMPRESSED != 0 {
        return Ok(compressed(header, entry));
    }
    let has_zero_flag = header.version() > 2 && !header.extended_l2();
    if entry & !(OFFSET | COPIED | if has_zero_flag { ZERO } else { 0 }) != 0 {
        return Err(Error::ReservedBits { what: "L2 entry", at, entry });
    }
    let host = entry & OFFSET;
    check_begin("cluster", host, header.cluster_size())?;
    let parts = match bitmap {
        None => u32::MAX,
        Some(bitmap) => {
            let (allocated, zero) = (bitmap as u32, (bitmap >> 32) as u32);
            if allocated & zero != 0 || (host == 0 && allocated != 0) {
                return Err(Error::Subclusters { at, bitmap });
            }
            allocated
        }
    };
    Ok(if host == 0 || parts == 0 || entry & ZERO != 0 {
        Cluster::Zero
    } else {
        Cluster::Plain { host, parts }
    })
}

/// Which of the 32 equal parts of cluster number `index` are marked as zero by its entry, as a mask. An entry that
/// [`l2_entry`] refuses may have any.
pub(super) fn zero_parts(header: &Header, table: &[u8], index: usize) -> u32 {
    let offset = index * header.l2_entry_size() as usize;
    let entry = be_u64(table, offset);
    if entry & COMPRESSED != 0 || header.version() == 2 {
        0
    } else if header.extended_l2() {
        (be_u64(table, offset + 8) >> 32) as u32
    } else if entry & ZERO != 0 {
        u32::MAX
    } else {
        0
    }
}

/// The upper bits count the sectors behind the one in which the cluster begins. How many bits that are depends on the
/// size of a cluster.
fn compressed(header: &Header, entry: u64) -> Cluster {
    let count_bits = header.cluster_bits() - 8;
    let offset_bits = 62 - count_bits;
    let host = entry & ((1 << offset_bits) - 1);
    let more_sectors = entry >> offset_bits & ((1 << count_bits) - 1);
    Cluster::Compressed { host, end: (host / SECTOR + 1 + more_sectors) * SECTOR }
}
