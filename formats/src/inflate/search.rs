//! Where a block may begin in the middle of deflate data, at any bit.
//!
//! Only blocks with codes of their own that are not the last one are found: their headers are redundant enough that few
//! other bits look like one. A few do, so a find has to be confirmed by decoding what comes before it.

use std::sync::LazyLock;

use super::codes::check_complete;
use super::lengths::CodeLengths;
use super::{Bits, Now};

/// Bits of a header up to the counts of codes that have forbidden values: not the last block, its type, two counts.
const FIXED_BITS: usize = 13;
/// All bits before the code lengths of the code lengths.
const HEADER_BITS: u64 = 17;
/// Bytes that may be examined from the one on in which a header begins, before it is read as a whole.
const EXAMINED: usize = 16;
/// Bits of a word that begins at any bit of a byte.
const WORD_BITS: u64 = 57;
/// Code lengths of code lengths, of three bits, that one look-up adds up.
const SUMMED: u32 = 4;
/// The sum for a complete code.
const COMPLETE: u16 = 1 << 7;

struct Tables {
    /// By the next [`FIXED_BITS`]: how many bits farther the next header can begin. 0: here.
    skip: [u8; 1 << FIXED_BITS],
    /// By [`SUMMED`] code lengths: their share of the code, in units of the longest one.
    share: [u16; 1 << (3 * SUMMED)],
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables {
    skip: std::array::from_fn(|bits| bits_to_next(bits as u16)),
    share: std::array::from_fn(|lengths| share_of_code(lengths as u16)),
});

fn bits_to_next(bits: u16) -> u8 {
    let first = (0..FIXED_BITS).find(|skip| {
        let known = FIXED_BITS - skip;
        let bits = bits >> skip;
        let begins = |mask: u16, expected: u16| {
            bits & mask & ((1 << known) - 1) == expected & ((1 << known) - 1)
        };
        // 30 and 31 are no counts: their bits but the lowest are ones.
        let is_count = |at: usize| known < at + 5 || bits >> at & 0x1e != 0x1e;
        begins(0b111, 0b100) && is_count(3) && is_count(8)
    });
    first.unwrap_or(FIXED_BITS) as u8
}

fn share_of_code(lengths: u16) -> u16 {
    let each = (0..SUMMED).map(|at| lengths >> (3 * at) & 7);
    each.filter(|len| *len > 0).map(|len| COMPLETE >> len).sum()
}

/// The first bit from `from` on where a block may begin, as far as `input` shows all of its header.
pub(crate) fn next_block(input: &[u8], from: u64) -> Option<u64> {
    let tables = &*TABLES;
    let mut at = from;
    loop {
        // As many positions as one word shows.
        let mut word = peek(input, at)?;
        let end = at + WORD_BITS - FIXED_BITS as u64;
        while at <= end {
            let skip = tables.skip[(word & ((1 << FIXED_BITS) - 1)) as usize];
            if skip > 0 {
                at += u64::from(skip);
                word >>= skip;
                continue;
            }
            if has_complete_code(tables, input, at)? && has_valid_lengths(input, at) {
                return Some(at);
            }
            at += 1;
            word >>= 1;
        }
    }
}

/// [`WORD_BITS`] bits from bit `at` on, or nothing near the end.
fn peek(input: &[u8], at: u64) -> Option<u64> {
    let bytes = input.get((at / 8) as usize..)?.first_chunk::<EXAMINED>()?;
    let word = bytes.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word) >> (at % 8))
}

/// Whether the code of the code lengths is complete.
fn has_complete_code(tables: &Tables, input: &[u8], at: u64) -> Option<bool> {
    let count = 4 + (peek(input, at)? >> FIXED_BITS & 0xf);
    let lengths = peek(input, at + HEADER_BITS)? & ((1 << (3 * count)) - 1);
    // The longest code has 19 lengths; to add up those that are not there costs less than a branch.
    let sum: u16 = (0..5)
        .map(|group| lengths >> (3 * SUMMED * group) & ((1 << (3 * SUMMED)) - 1))
        .map(|group| tables.share[group as usize])
        .sum();
    Some(sum == COMPLETE)
}

/// Whether the code lengths behind it are those of two complete codes, with an end of the block.
fn has_valid_lengths(input: &[u8], at: u64) -> bool {
    let (mut bits, used) = Bits::beginning_at(at, input);
    let mut now = Now::<u8>::reading(&input[used..]);
    let Some(_) = bits.take(3, &mut now) else { return false };
    let mut lengths = CodeLengths::default();
    let Ok(Some(lengths)) = lengths.read(&mut bits, &mut now) else { return false };
    lengths.literals[256] > 0
        && check_complete(lengths.literals, false).is_ok()
        && check_complete(lengths.distances, true).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_skipped_only_where_no_header_can_begin() {
        for bits in 0..1 << FIXED_BITS {
            let skip = usize::from(bits_to_next(bits));
            for at in 0..skip {
                let rest = bits >> at;
                let known = FIXED_BITS - at;
                // With any continuation of the known bits it is no header.
                let possible = (0..1_u32 << at).any(|more| {
                    let whole = u32::from(rest) | more << known;
                    whole & 7 == 0b100 && whole >> 3 & 0x1f < 30 && whole >> 8 & 0x1f < 30
                });
                assert!(!possible, "{bits:b}, {at}");
            }
        }
    }

    #[test]
    fn a_share_is_the_sum_of_the_lengths_that_are_used() {
        assert_eq!(share_of_code(0), 0);
        assert_eq!(share_of_code(0o0001), 64);
        assert_eq!(share_of_code(0o1111), 256);
        assert_eq!(share_of_code(0o7021), 64 + 32 + 1);
    }
}
