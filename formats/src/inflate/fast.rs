//! The loop in which almost all of the time is spent.

use super::codes::{Codes, Entry, INVALID_SYMBOL};
use super::history::History;
use super::output::OutputByte;
use super::{Bits, Invalid, Now, copy};

/// A refill looks at so many bytes of the input, and uses all but one at most.
const REFILL: usize = 8;
/// Input that one turn of the loop may look at: two refills.
const INPUT_MARGIN: usize = 2 * REFILL - 1;
/// Output that one turn of the loop may need: two literals, and the longest match.
const OUTPUT_MARGIN: usize = 2 + 258 + copy::OVERRUN;

/// Decodes symbols while there is plenty of input and space. `true`: the block ended.
#[inline(always)] // into each of the variants in `sys`
pub(super) fn decode_symbols<B: OutputByte>(
    bits: &mut Bits,
    codes: &Codes,
    history: &History<B>,
    now: &mut Now<'_, B>,
) -> Result<bool, Invalid> {
    let Some(output_end) = now.out.len().checked_sub(OUTPUT_MARGIN) else { return Ok(false) };
    let mut output = OutputSlice { out: now.out, filled: now.filled };
    let mut reader = Reader { buffer: bits.buffer, count: bits.count, rest: &now.input[now.at..] };
    if reader.rest.len() < REFILL {
        return Ok(false);
    }
    let mut ended = false;
    // The next entry is looked up as early as possible: while the processor waits for it, it copies the match before.
    let mut entry = reader.refill_and_peek(codes);
    while reader.rest.len() >= INPUT_MARGIN && output.filled <= output_end {
        let mut before = reader.consume(entry);
        if let Some(byte) = entry.byte() {
            output.put(byte);
            entry = codes.literal(reader.buffer);
            before = reader.consume(entry);
            if let Some(byte) = entry.byte() {
                output.put(byte);
                entry = codes.literal(reader.buffer);
                before = reader.consume(entry);
                if let Some(byte) = entry.byte() {
                    output.put(byte);
                    entry = reader.refill_and_peek(codes);
                    continue;
                }
            }
        }
        // Two literals of 11 bits and a length with its extra bits, 20, are less than the 56 bits of a refill.
        if entry.is_special() {
            if entry.is_longer() {
                reader.unread(entry, before);
                entry = codes.longer_literal(entry, before);
                reader.consume(entry);
                if let Some(byte) = entry.byte() {
                    output.put(byte);
                    entry = reader.refill_and_peek(codes);
                    continue;
                }
            }
            if entry.is_end_of_block() {
                ended = true;
                break;
            }
            if entry.is_special() {
                return Err(INVALID_SYMBOL);
            }
        }
        let len = entry.value(before);

        reader.refill();
        entry = codes.distance(reader.buffer);
        if entry.is_special() {
            return Err(INVALID_SYMBOL);
        }
        let before = reader.consume(entry);
        let distance = entry.value(before);

        entry = reader.refill_and_peek(codes);
        copy::fast(output.out, output.filled, distance, len, history)?;
        output.filled += len;
    }
    now.filled = output.filled;
    now.at = now.input.len() - reader.rest.len();
    *bits = reader.bits();
    Ok(ended)
}

/// The output, and how far it is filled.
struct OutputSlice<'a, B> {
    out: &'a mut [B],
    filled: usize,
}

impl<B: OutputByte> OutputSlice<'_, B> {
    #[inline(always)]
    fn put(&mut self, byte: u8) {
        self.out[self.filled] = B::from(byte);
        self.filled += 1;
    }
}

/// As [`Bits`], but above `count` there may already be the beginning of the next byte.
struct Reader<'a> {
    buffer: u64,
    /// Only the lowest six bits matter: a whole [`Entry`] can be subtracted.
    count: u32,
    rest: &'a [u8],
}

impl Reader<'_> {
    /// Afterwards there are at least 56 bits.
    #[inline(always)]
    fn refill(&mut self) {
        let mut bytes = [0; REFILL];
        bytes.copy_from_slice(&self.rest[..REFILL]);
        let count = self.count & 63;
        self.buffer |= u64::from_le_bytes(bytes) << count;
        self.rest = &self.rest[(count ^ 63) as usize / 8..];
        self.count = count | 56;
    }

    #[inline(always)]
    fn refill_and_peek(&mut self, codes: &Codes) -> Entry {
        self.refill();
        codes.literal(self.buffer)
    }

    /// Consumes an entry's bits. The bits as they were before.
    #[inline(always)]
    fn consume(&mut self, entry: Entry) -> u64 {
        let before = self.buffer;
        self.buffer >>= entry.len();
        self.count = self.count.wrapping_sub(entry.0);
        before
    }

    #[inline(always)]
    fn unread(&mut self, entry: Entry, before: u64) {
        self.buffer = before;
        self.count = self.count.wrapping_add(entry.0);
    }

    fn bits(&self) -> Bits {
        let count = self.count & 63;
        Bits { buffer: self.buffer & ((1 << count) - 1), count }
    }
}
