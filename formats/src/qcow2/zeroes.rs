//! What an L2 table calls zero, as against what it does not mention: the difference only matters above a backing file.

use std::ops::Range;

use super::header::Header;
use super::table::{l2_entry, zero_parts};
use crate::Error;

/// Equal parts of a cluster, one for each bit of a mask.
const PARTS: u32 = 32;

/// The zeroes of the table number `index`, whose bytes `table` were found at `table_at`. See
/// [`Layout::zeroes`](crate::index::Layout::zeroes).
pub(super) fn of_table(
    header: &Header,
    index: u64,
    table_at: u64,
    table: &[u8],
) -> Result<Vec<Range<u64>>, Error> {
    if (table.len() as u64) < header.cluster_size() {
        return Err(Error::Truncated { what: "L2 table", at: table_at + table.len() as u64 });
    }
    let mut zeroes: Vec<Range<u64>> = Vec::new();
    let mut add = |from: u64, to: u64| {
        let to = to.min(header.virtual_size());
        match zeroes.last_mut() {
            _ if from >= to => {}
            Some(last) if last.end == from => last.end = to,
            _ => zeroes.push(from..to),
        }
    };
    let first = index * header.l2_coverage();
    for entry in 0..header.l2_entries() {
        let guest = first + (entry << header.cluster_bits());
        if guest >= header.virtual_size() {
            break;
        }
        l2_entry(header, table_at, table, entry as usize)?;
        match zero_parts(header, table, entry as usize) {
            0 => {}
            u32::MAX => add(guest, guest + header.cluster_size()),
            mask => {
                let part_len = header.cluster_size() / u64::from(PARTS);
                for part in (0..PARTS).filter(|part| mask >> part & 1 == 1) {
                    let from = guest + u64::from(part) * part_len;
                    add(from, from + part_len);
                }
            }
        }
    }
    Ok(zeroes)
}
