//! The lengths of a dynamic block's codes, themselves compressed. (RFC 1951, section 3.2.7.)

use super::codes::{DISTANCES, LITERALS, check_complete};
use super::{Bits, Invalid, Now};

/// The order in which the lengths of the codes for code lengths are written.
const ORDER: [u8; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/// The longest code of a code length.
const CODE_MAX: u32 = 7;

/// Lengths in bits, by symbol. 0: the symbol is not used.
pub(super) struct Lengths<'a> {
    pub literals: &'a [u8],
    pub distances: &'a [u8],
}

/// Reads them; can be interrupted after each.
pub(super) struct CodeLengths {
    state: LengthsState,
    literals: usize,
    distances: usize,
    code: [u8; ORDER.len()],
    /// By the next seven bits: a symbol, and the bits of its code.
    table: [(u8, u8); 1 << CODE_MAX],
    lengths: [u8; LITERALS + DISTANCES],
}

enum LengthsState {
    Counts,
    Code { read: usize, all: usize },
    Lengths { read: usize },
}

impl Default for CodeLengths {
    fn default() -> Self {
        Self {
            state: LengthsState::Counts,
            literals: 0,
            distances: 0,
            code: [0; ORDER.len()],
            table: [(0, 0); 1 << CODE_MAX],
            lengths: [0; LITERALS + DISTANCES],
        }
    }
}

impl CodeLengths {
    /// The lengths, or `None` while input is missing.
    pub(super) fn read<B>(
        &mut self,
        bits: &mut Bits,
        now: &mut Now<'_, B>,
    ) -> Result<Option<Lengths<'_>>, Invalid> {
        loop {
            match &mut self.state {
                LengthsState::Counts => {
                    let Some(counts) = bits.take(14, now) else { return Ok(None) };
                    self.literals = 257 + (counts & 0x1f) as usize;
                    self.distances = 1 + (counts >> 5 & 0x1f) as usize;
                    if self.literals > 286 || self.distances > 30 {
                        return Err("a block has codes for too many symbols");
                    }
                    self.state = LengthsState::Code { read: 0, all: 4 + (counts >> 10) as usize };
                }
                LengthsState::Code { read, all } if *read < *all => {
                    let Some(length) = bits.take(3, now) else { return Ok(None) };
                    self.code[usize::from(ORDER[*read])] = length as u8;
                    *read += 1;
                }
                LengthsState::Code { .. } => {
                    self.fill_table()?;
                    self.state = LengthsState::Lengths { read: 0 };
                }
                LengthsState::Lengths { read } if *read < self.literals + self.distances => {
                    if bits.count < CODE_MAX + 7 {
                        bits.refill(now);
                    }
                    let (symbol, code_len) = self.table[(bits.buffer & 0x7f) as usize];
                    let (base, extra) = match symbol {
                        16 => (3, 2),
                        17 => (3, 3),
                        18 => (11, 7),
                        _ => (1, 0),
                    };
                    let code_len = u32::from(code_len);
                    if bits.count < code_len + extra {
                        return Ok(None);
                    }
                    let count = base + (bits.buffer >> code_len & ((1 << extra) - 1)) as usize;
                    bits.consume(code_len + extra);
                    let value = match symbol {
                        16 if *read == 0 => return Err("a code length repeats nothing"),
                        16 => self.lengths[*read - 1],
                        17 | 18 => 0,
                        length => length,
                    };
                    if *read + count > self.literals + self.distances {
                        return Err("a block has too many code lengths");
                    }
                    self.lengths[*read..*read + count].fill(value);
                    *read += count;
                }
                LengthsState::Lengths { .. } => {
                    let (literals, rest) = self.lengths.split_at(self.literals);
                    return Ok(Some(Lengths { literals, distances: &rest[..self.distances] }));
                }
            }
        }
    }

    fn fill_table(&mut self) -> Result<(), Invalid> {
        check_complete(&self.code, false)?;
        let mut code = 0_u32;
        for len in 1..=CODE_MAX {
            for symbol in (0..self.code.len()).filter(|at| u32::from(self.code[*at]) == len) {
                let start = code.reverse_bits() >> (u32::BITS - len);
                for slot in self.table.iter_mut().skip(start as usize).step_by(1 << len) {
                    *slot = (symbol as u8, len as u8);
                }
                code += 1;
            }
            code <<= 1;
        }
        Ok(())
    }
}
