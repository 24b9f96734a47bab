//! The two codes of a block as tables: the next bits of the input are the index.
//!
//! Each code has a main table, by as many bits as most codes are long, and behind it a small table for each beginning
//! of longer codes. An entry describes a symbol completely, with the number of bits that it takes, extra bits included.

use super::{Bits, Invalid, Now};

/// Symbols of the first code: 256 bytes, the end of the block, lengths.
pub(super) const LITERALS: usize = 288;
/// Symbols of the second code.
pub(super) const DISTANCES: usize = 32;
const CODE_MAX: u32 = 15;

pub(super) const LITERAL_BITS: u32 = 11;
pub(super) const DISTANCE_BITS: u32 = 9;
/// Every beginning of longer codes is shared by two of them at least.
const LITERAL_ENTRIES: usize =
    (1 << LITERAL_BITS) + LITERALS / 2 * (1 << (CODE_MAX - LITERAL_BITS));
const DISTANCE_ENTRIES: usize =
    (1 << DISTANCE_BITS) + DISTANCES / 2 * (1 << (CODE_MAX - DISTANCE_BITS));

/// What a run of bits means.
///
/// | bits | literal | length, distance | longer code | end of the block, or nothing |
/// |---|---|---|---|---|
/// | 0..6 | bits to consume | bits to consume, extra bits included | bits of the main table | bits to consume |
/// | 8..12 | – | bits of the code alone | – | – |
/// | 13..16 | 0 | 0 | `SPECIAL`, `LONGER` | `SPECIAL`, and `END_OF_BLOCK` or not |
/// | 16..31 | the byte | the smallest length or distance | where the small table begins | – |
/// | 31 | 1 | 0 | 0 | 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Entry(pub u32);

impl Entry {
    const LITERAL: u32 = 1 << 31;
    const SPECIAL: u32 = 1 << 15;
    const LONGER: u32 = 1 << 14;
    const END_OF_BLOCK: u32 = 1 << 13;

    fn literal(byte: u8, len: u32) -> Self {
        Self(Self::LITERAL | u32::from(byte) << 16 | len)
    }

    fn number(base: u16, len: u32, extra: u32) -> Self {
        Self(u32::from(base) << 16 | len << 8 | (len + extra))
    }

    #[inline(always)]
    pub(super) fn len(self) -> u32 {
        self.0 & 0x3f
    }

    /// The byte of a literal.
    #[inline(always)]
    pub(super) fn byte(self) -> Option<u8> {
        (self.0 & Self::LITERAL != 0).then_some((self.0 >> 16) as u8)
    }

    #[inline(always)]
    pub(super) fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }

    #[inline(always)]
    pub(super) fn is_longer(self) -> bool {
        self.0 & Self::LONGER != 0
    }

    #[inline(always)]
    pub(super) fn is_end_of_block(self) -> bool {
        self.0 & Self::END_OF_BLOCK != 0
    }

    /// The length or distance, whose code and extra bits are the lowest of `bits`.
    #[inline(always)]
    pub(super) fn value(self, bits: u64) -> usize {
        let with_extra = bits & ((1_u64 << self.len()) - 1);
        (self.0 >> 16) as usize + (with_extra >> (self.0 >> 8 & 0xf)) as usize
    }

    fn base(self) -> usize {
        (self.0 >> 16) as usize
    }
}

/// One symbol of a block.
pub(super) enum Symbol {
    Literal(u8),
    Match { len: usize, distance: usize },
    EndOfBlock,
}

/// Tables of the current block.
pub(super) struct Codes {
    literals: [Entry; LITERAL_ENTRIES],
    distances: [Entry; DISTANCE_ENTRIES],
    /// They are those of RFC 1951, section 3.2.6.
    fixed: bool,
}

impl Codes {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            literals: [Entry::default(); LITERAL_ENTRIES],
            distances: [Entry::default(); DISTANCE_ENTRIES],
            fixed: false,
        })
    }

    pub(super) fn set_fixed(&mut self) {
        if self.fixed {
            return;
        }
        let mut literals = [8; LITERALS];
        literals[144..256].fill(9);
        literals[256..280].fill(7);
        fill(&mut self.literals, LITERAL_BITS, &literals, literal_entry);

        fill(&mut self.distances, DISTANCE_BITS, &[5; DISTANCES], distance_entry);
        self.fixed = true;
    }

    /// `literals` and `distances`: bits of each symbol's code.
    pub(super) fn set(&mut self, literals: &[u8], distances: &[u8]) -> Result<(), Invalid> {
        const END_OF_BLOCK: usize = 256;
        if literals[END_OF_BLOCK] == 0 {
            return Err("a block has no code for its end");
        }
        check_complete(literals, true)?;
        check_complete(distances, true)?;
        self.fixed = false;
        fill(&mut self.literals, LITERAL_BITS, literals, literal_entry);

        fill(&mut self.distances, DISTANCE_BITS, distances, distance_entry);
        Ok(())
    }

    /// What the next bits mean in the first code.
    #[inline(always)]
    pub(super) fn literal(&self, bits: u64) -> Entry {
        self.literals[(bits & ((1 << LITERAL_BITS) - 1)) as usize]
    }

    /// As [`literal`](Self::literal), for a code longer than the main table's bits; `bits` is still before it.
    #[inline(always)]
    pub(super) fn longer_literal(&self, longer: Entry, bits: u64) -> Entry {
        const MASK: u64 = (1 << (CODE_MAX - LITERAL_BITS)) - 1;
        let at = longer.base() + (bits >> LITERAL_BITS & MASK) as usize;
        self.literals[at]
    }

    /// What the next bits mean in the second code.
    #[inline(always)]
    pub(super) fn distance(&self, bits: u64) -> Entry {
        const MASK: u64 = (1 << (CODE_MAX - DISTANCE_BITS)) - 1;
        let entry = self.distances[(bits & ((1 << DISTANCE_BITS) - 1)) as usize];
        if entry.is_longer() {
            let at = entry.base() + (bits >> DISTANCE_BITS & MASK) as usize;
            return self.distances[at];
        }
        entry
    }

    /// The next symbol, or `None` while input, or space for a literal, is missing: it is then still to come.
    pub(super) fn next<B>(
        &self,
        bits: &mut Bits,
        now: &mut Now<'_, B>,
    ) -> Result<Option<Symbol>, Invalid> {
        bits.refill(now);
        let mut entry = self.literal(bits.buffer);
        if entry.is_longer() {
            entry = self.longer_literal(entry, bits.buffer);
        }
        if bits.count < entry.len() {
            return Ok(None);
        }
        if let Some(byte) = entry.byte() {
            if now.filled == now.out.len() {
                return Ok(None);
            }
            bits.consume(entry.len());
            return Ok(Some(Symbol::Literal(byte)));
        }
        if entry.is_end_of_block() {
            bits.consume(entry.len());
            return Ok(Some(Symbol::EndOfBlock));
        }
        if entry.is_special() {
            return Err(INVALID_SYMBOL);
        }
        let distance = self.distance(bits.buffer >> entry.len());
        if bits.count < entry.len() + distance.len() {
            return Ok(None);
        }
        if distance.is_special() {
            return Err(INVALID_SYMBOL);
        }
        let len = entry.value(bits.buffer);
        bits.consume(entry.len());
        let reach = distance.value(bits.buffer);
        bits.consume(distance.len());
        Ok(Some(Symbol::Match { len, distance: reach }))
    }
}

pub(super) const INVALID_SYMBOL: Invalid = "a code has no symbol";

fn literal_entry(symbol: u16, len: u32) -> Entry {
    const BASE: [u16; 29] = [
        3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115,
        131, 163, 195, 227, 258,
    ];
    const EXTRA: [u8; 29] =
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
    match symbol {
        0..256 => Entry::literal(symbol as u8, len),
        256 => Entry(Entry::SPECIAL | Entry::END_OF_BLOCK | len),
        _ => number_entry(&BASE, &EXTRA, usize::from(symbol) - 257, len),
    }
}

fn distance_entry(symbol: u16, len: u32) -> Entry {
    const BASE: [u16; 30] = [
        1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537,
        2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577,
    ];
    const EXTRA: [u8; 30] = [
        0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12,
        13, 13,
    ];
    number_entry(&BASE, &EXTRA, symbol.into(), len)
}

/// The `at`-th length or distance. There are more symbols than numbers.
fn number_entry(base: &[u16], extra: &[u8], at: usize, len: u32) -> Entry {
    match (base.get(at), extra.get(at)) {
        (Some(base), Some(extra)) => Entry::number(*base, len, (*extra).into()),
        _ => Entry(Entry::SPECIAL | len),
    }
}

/// Refuses lengths that no code can have, and codes in which some bits have no symbol. `may_lack`: a code of no
/// symbol, or of one symbol and one bit, is fine.
pub(super) fn check_complete(lengths: &[u8], may_lack: bool) -> Result<(), Invalid> {
    const WHOLE: u32 = 1 << CODE_MAX;
    let used: u32 = lengths.iter().filter(|len| **len > 0).map(|len| WHOLE >> len).sum();
    let longest = lengths.iter().max().copied().unwrap_or(0);
    match used {
        WHOLE => Ok(()),
        _ if used > WHOLE => Err("a block has more codes than their lengths allow"),
        _ if may_lack && longest <= 1 => Ok(()),
        _ => Err("a block has an incomplete code"),
    }
}

/// Makes the tables of a code whose lengths were checked.
fn fill(table: &mut [Entry], main_bits: u32, lengths: &[u8], entry: fn(u16, u32) -> Entry) {
    let mut sorted = [0_u16; LITERALS];
    let mut ends = [0_usize; CODE_MAX as usize + 1];
    for len in lengths {
        ends[usize::from(*len)] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        (sum, *end) = (sum + *end, sum); // for now where the symbols of this length begin
    }
    for (symbol, len) in lengths.iter().enumerate() {
        let end = &mut ends[usize::from(*len)];
        sorted[*end] = symbol as u16;
        *end += 1;
    }

    // Codes of the same length are consecutive numbers in the order of their symbols, whose highest bit comes first in
    // the stream. The table for codes of up to n bits, twice, is the one for up to n + 1 bits but for their entries.
    table[0] = Entry(Entry::SPECIAL | 1);
    let (mut code, mut size) = (0_u32, 1);
    let mut small = 1 << main_bits;
    for len in 1..=CODE_MAX {
        code <<= 1;
        if len <= main_bits {
            table.copy_within(..size, size);
            size *= 2;
        }
        for symbol in &sorted[ends[len as usize - 1]..ends[len as usize]] {
            let reversed = (code.reverse_bits() >> (u32::BITS - len)) as usize;
            code += 1;
            if len <= main_bits {
                table[reversed] = entry(*symbol, len);
                continue;
            }
            let main = reversed & (size - 1);
            if !table[main].is_longer() {
                table[main] =
                    Entry((small as u32) << 16 | Entry::SPECIAL | Entry::LONGER | main_bits);
                small += 1 << (CODE_MAX - main_bits);
            }
            let base = table[main].base();
            let entry = entry(*symbol, len);
            for at in
                (reversed >> main_bits..1 << (CODE_MAX - main_bits)).step_by(1 << (len - main_bits))
            {
                table[base + at] = entry;
            }
        }
    }
}
