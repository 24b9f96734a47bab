//! Finding the zeroes in guest data, so that they become holes instead of writes.

use std::iter::FusedIterator;
use std::ops::Range;

/// Zeroes are searched in blocks of this many bytes, at multiples of it in the guest's address space: the unit that
/// file systems and thin volumes can leave out.
pub const GRANULARITY: usize = 4096;

/// Bytes examined between two checks for an early end.
const STRIDE: usize = 256;

/// Every byte is zero. Runs at the speed of memory, and stops early where data begins.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    strides.iter().all(is_zero_stride) && rest.iter().all(|&byte| byte == 0)
}

/// Without branches, so that it compiles to vector instructions.
fn is_zero_stride(stride: &[u8; STRIDE]) -> bool {
    let (words, _) = stride.as_chunks::<8>();
    words.iter().fold(0, |all, &word| all | u64::from_ne_bytes(word)) == 0
}

/// A part of a buffer, as indexes into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// Blocks that each hold a byte other than zero.
    Data(Range<usize>),
    /// Blocks of zeroes.
    Zero(Range<usize>),
}

/// Divides `bytes`, whose first belongs to the guest's address `at`, into data and zeroes: in order, without gaps,
/// alternating. Borders lie at multiples of [`GRANULARITY`] in the guest's address space.
pub fn runs(bytes: &[u8], at: u64) -> Runs<'_> {
    // The first block ends at the next border, so it may be shorter than the others.
    let into_block = (at % GRANULARITY as u64) as usize;
    Runs { bytes, from: 0, next_border: GRANULARITY - into_block, kind: None }
}

/// See [`runs`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    bytes: &'a [u8],
    from: usize,
    /// End of the first block behind `from`.
    next_border: usize,
    /// The block that ended the last run was examined then: whether it is zero.
    kind: Option<bool>,
}

impl Runs<'_> {
    /// Whether the block that ends at `border` is zero, and where in the buffer it ends.
    fn block(&self, from: usize, border: usize) -> (bool, usize) {
        let end = border.min(self.bytes.len());
        (is_zero(&self.bytes[from..end]), end)
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let from = self.from;
        if from == self.bytes.len() {
            return None;
        }
        let mut end = self.next_border.min(self.bytes.len());
        let zero = match self.kind.take() {
            Some(zero) => zero,
            None => self.block(from, end).0,
        };
        while end < self.bytes.len() {
            self.next_border += GRANULARITY;
            let (next_zero, next_end) = self.block(end, self.next_border);
            if next_zero != zero {
                self.kind = Some(next_zero);
                break;
            }
            end = next_end;
        }
        self.from = end;
        Some(if zero { Run::Zero(from..end) } else { Run::Data(from..end) })
    }
}

impl FusedIterator for Runs<'_> {}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const BLOCK: usize = GRANULARITY;

    fn check(bytes: &[u8], at: u64, expected: &[Run]) {
        assert_eq!(runs(bytes, at).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_single_byte_makes_a_difference() {
        for len in [1, 7, 8, 255, 256, 257, 511, 600] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes), "{len} zeroes");
            for at in 0..len {
                bytes[at] = 1 << (at % 8);
                assert!(!is_zero(&bytes), "byte {at} of {len}");
                bytes[at] = 0;
            }
        }
        assert!(is_zero(&[]));
    }

    #[test]
    fn no_bytes_have_no_runs() {
        check(&[], 0, &[]);
        check(&[], 5, &[]);
    }

    #[test]
    fn neighbours_of_one_kind_are_one_run() {
        check(&[0; 3 * BLOCK], 0, &[Run::Zero(0..3 * BLOCK)]);
        check(&[1; 3 * BLOCK + 1], 0, &[Run::Data(0..3 * BLOCK + 1)]);
    }

    #[test]
    fn borders_follow_the_guest_and_not_the_buffer() {
        let mut bytes = vec![0; 3 * BLOCK];
        bytes[0] = 1;
        check(&bytes, 4096 - 100, &[Run::Data(0..100), Run::Zero(100..3 * BLOCK)]);
        check(&bytes, 1, &[Run::Data(0..BLOCK - 1), Run::Zero(BLOCK - 1..3 * BLOCK)]);
    }

    #[test]
    fn runs_at_the_end_of_the_address_space_do_not_overflow() {
        check(&[0; 5], u64::MAX - 5, &[Run::Zero(0..5)]);
    }

    /// Blocks of zeroes, of data, and of zeroes with one other byte; cut anywhere.
    fn sparse_bytes() -> impl Strategy<Value = Vec<u8>> {
        let block = prop_oneof![
            Just(vec![0; BLOCK]),
            Just(vec![0xA5; BLOCK]),
            (0..BLOCK).prop_map(|at| {
                let mut block = vec![0; BLOCK];
                block[at] = 1;
                block
            }),
        ];
        (vec(block, 0..12), 0..BLOCK, 0..BLOCK).prop_map(|(blocks, from, less)| {
            let bytes = blocks.concat();
            let to = bytes.len().saturating_sub(less);
            bytes[from.min(to)..to].to_vec()
        })
    }

    proptest! {
        #[test]
        fn runs_agree_with_checking_each_block(bytes in sparse_bytes(), at in 0..3 * BLOCK as u64) {
            let border = |index: usize| (at + index as u64).is_multiple_of(BLOCK as u64);
            let mut expected: Vec<Run> = Vec::new();
            let mut from = 0;
            while from < bytes.len() {
                let to = (from + 1..bytes.len()).find(|&index| border(index)).unwrap_or(bytes.len());
                let zero = bytes[from..to].iter().all(|&byte| byte == 0);
                match expected.last_mut() {
                    Some(Run::Zero(last)) if zero => last.end = to,
                    Some(Run::Data(last)) if !zero => last.end = to,
                    _ if zero => expected.push(Run::Zero(from..to)),
                    _ => expected.push(Run::Data(from..to)),
                }
                from = to;
            }
            prop_assert_eq!(runs(&bytes, at).collect::<Vec<_>>(), expected);
        }
    }
}
