//! BGZF: gzip members of at most 64 KiB whose headers contain their compressed length, as bgzip writes them. (SAM/BAM
//! format specification, section 4.1.)

use std::io;

use super::{MAGIC, METHOD_DEFLATE, STREAM, flag};
use crate::decompress::{Limits, Wire};
use crate::sniff::Compression;
use crate::units::{CompressedUnit, GROUP_BYTES};

/// Header up to the extra field, and the largest extra field that is examined. The usual one has 6 bytes.
const FIXED: usize = 12;
const EXTRA_MAX: usize = 256;
/// CRC and length behind the deflate stream.
const TRAILER: usize = 8;

/// Takes as many BGZF members as make a worthwhile unit. `None`: the next member is not one.
pub(super) fn take_unit(
    wire: &mut Wire<'_>,
    unit_max: usize,
) -> io::Result<Option<CompressedUnit>> {
    let at = wire.at();
    let mut bytes = Vec::new();
    let mut decoded_len = 0;
    let mut members = 0_u64;
    while decoded_len < GROUP_BYTES && members < 1 << 16 {
        let Some(member) = member_len(wire.peek(FIXED + EXTRA_MAX)?) else { break };
        if bytes.len() + member > unit_max {
            break;
        }
        wire.take(member, &mut bytes, STREAM)?;
        let isize = bytes.last_chunk().copied().map_or(0, u32::from_le_bytes);
        decoded_len += u64::from(isize);
        members += 1;
    }
    let (kind, window, limits) = (Compression::Gzip, super::WINDOW, Limits::default());
    Ok((members > 0).then_some(CompressedUnit { kind, at, bytes, decoded_len, window, limits }))
}

/// Whether a stream begins with a BGZF member.
pub(crate) fn begins_with_bgzf(head: &[u8]) -> bool {
    member_len(head).is_some()
}

/// Bytes of the member that begins with `head`, if its header contains it.
fn member_len(head: &[u8]) -> Option<usize> {
    let (fixed, rest) = head.split_first_chunk::<FIXED>()?;
    let [m0, m1, method, flags, _, _, _, _, _, _, extra_lo, extra_hi] = *fixed;
    if [m0, m1] != MAGIC || method != METHOD_DEFLATE || flags != flag::EXTRA {
        return None;
    }
    let extra_len = usize::from(u16::from_le_bytes([extra_lo, extra_hi]));
    let mut extra = rest.get(..extra_len)?;
    while let Some((subfield, after)) = extra.split_first_chunk::<4>() {
        let [id0, id1, len_lo, len_hi] = *subfield;
        let (value, after) = after.split_at_checked(u16::from_le_bytes([len_lo, len_hi]).into())?;
        if [id0, id1] == *b"BC" {
            let total = usize::from(u16::from_le_bytes(value.try_into().ok()?)) + 1;
            return (total > FIXED + extra_len + TRAILER).then_some(total);
        }
        extra = after;
    }
    None
}
