//! Inflate, RFC 1951: decoding deflate data straight into the caller's buffer.
//!
//! Written for long streams and large buffers. Three things make it fast: a refill of the bit buffer is one unaligned
//! load without a branch; one table entry describes a symbol completely, its extra bits included; and matches are
//! copied in fixed steps that may run over their end. The history that a match refers to is the output buffer itself: only
//! what one call leaves behind for the next one is copied elsewhere.

mod bits;
mod codes;
mod copy;
#[cfg(test)]
#[allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions
pub(crate) mod encoders;
mod fast;
mod history;
mod lengths;
mod output;
pub(crate) mod search;
mod sys;
#[cfg(test)]
mod tests;

use bits::Bits;
use codes::{Codes, Symbol};
use history::{History, REACH};
use lengths::{CodeLengths, Lengths};
use output::OutputByte;

/// What is wrong with deflate data.
pub(crate) type Invalid = &'static str;

/// One deflate stream in progress.
pub(crate) struct Inflate<B = u8> {
    bits: Bits,
    place: DecodePosition,
    /// The current block is the last one.
    last: bool,
    codes: Box<Codes>,
    history: History<B>,
}

/// Where in the stream the next bit is.
enum DecodePosition {
    BlockHeader,
    StoredHeader,
    Stored {
        left: usize,
    },
    CodeLengths(Box<CodeLengths>),
    Symbols,
    /// In a match that did not fit into the output.
    Match {
        len: usize,
        distance: usize,
    },
    End,
}

/// How far one call came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes of the input that were used. The last few may be waiting inside the decoder.
    pub consumed: usize,
    /// Bytes written to the output.
    pub decoded: usize,
    /// The next block is the one to stop at.
    pub at_block: bool,
}

/// The block before which to stop, as a bit of the input. The number is negative where that bit was taken from the input by an
/// earlier call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopBefore {
    /// One that begins exactly there.
    Block(i64),
    /// The first one that begins there or later.
    FirstBlockFrom(i64),
}

impl StopBefore {
    fn is_at(self, bit: i64) -> bool {
        match self {
            Self::Block(block) => bit == block,
            Self::FirstBlockFrom(from) => bit >= from,
        }
    }
}

/// The farthest that a match reaches back, in bytes.
pub(crate) const WINDOW: usize = REACH;

impl Default for Inflate {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: OutputByte> Inflate<B> {
    pub(crate) fn new() -> Self {
        Self {
            bits: Bits::default(),
            place: DecodePosition::BlockHeader,
            last: false,
            codes: Codes::new(),
            history: History::new(),
        }
    }

    /// A decoder at the block that begins at bit `block` of `input`, and how much of `input` it has used. `window`: the
    /// bytes before it.
    pub(crate) fn at_block(block: u64, input: &[u8], window: &[B]) -> (Self, usize) {
        let mut inflate = Self::new();
        inflate.history.append(window);
        let used;
        (inflate.bits, used) = Bits::beginning_at(block, input);
        (inflate, used)
    }

    pub(crate) fn reset(&mut self) {
        self.bits = Bits::default();
        self.place = DecodePosition::BlockHeader;
        self.last = false;
        self.history.clear();
    }

    /// Whether the stream is over, and then the input bytes behind it that were taken by mistake.
    pub(crate) fn rest(&self) -> Option<Vec<u8>> {
        matches!(self.place, DecodePosition::End).then(|| self.bits.whole_bytes())
    }

    /// The next bit, seen from the next byte of the input: not positive.
    pub(crate) fn next_bit(&self) -> i64 {
        -i64::from(self.bits.count)
    }

    /// Decodes until the stream is over, `out` is full, or `input` is used up: when it returns before the stream is
    /// over and with space left in `out`, all of `input` was used.
    pub(crate) fn inflate(&mut self, input: &[u8], out: &mut [B]) -> Result<Progress, Invalid> {
        self.inflate_up_to(None, input, out)
    }

    /// As [`inflate`](Self::inflate), but does not enter the block to stop at.
    pub(crate) fn inflate_up_to(
        &mut self,
        stop: Option<StopBefore>,
        input: &[u8],
        out: &mut [B],
    ) -> Result<Progress, Invalid> {
        let mut now = Now { out, stop, ..Now::reading(input) };
        while self.step(&mut now)? {}
        let Now { at: consumed, filled: decoded, at_block, .. } = now;
        self.history.append(&out[..decoded]);
        Ok(Progress { consumed, decoded, at_block })
    }

    /// As [`inflate_up_to`](Self::inflate_up_to), behind the first `filled` bytes of `out`, to which matches refer. Nothing is
    /// copied to the history: it is what precedes `out`.
    pub(crate) fn inflate_behind(
        &mut self,
        filled: usize,
        stop: Option<StopBefore>,
        input: &[u8],
        out: &mut [B],
    ) -> Result<Progress, Invalid> {
        let mut now = Now { out, filled, stop, ..Now::reading(input) };
        while self.step(&mut now)? {}
        let Now { at: consumed, filled: end, at_block, .. } = now;
        Ok(Progress { consumed, decoded: end - filled, at_block })
    }

    pub(crate) fn append_to_history(&mut self, decoded: &[B]) {
        self.history.append(decoded);
    }

    /// Bytes of history that the next match can refer to, up to [`WINDOW`].
    pub(crate) fn window(&self) -> &[B] {
        let history = self.history.as_slice();
        &history[history.len().saturating_sub(WINDOW)..]
    }

    /// The same decoder with another history: its last [`WINDOW`] bytes at most.
    pub(crate) fn with_window<C: OutputByte>(self, window: &[C]) -> Inflate<C> {
        let Self { bits, place, last, codes, .. } = self;
        let mut history = History::new();
        history.append(window);
        Inflate { bits, place, last, codes, history }
    }

    /// One block header, run of symbols or the like. `false`: input or space is missing, or the stream is over.
    fn step(&mut self, now: &mut Now<'_, B>) -> Result<bool, Invalid> {
        match &mut self.place {
            DecodePosition::BlockHeader => {
                if self.last {
                    self.place = DecodePosition::End;
                    return Ok(true);
                }
                let bit = now.at as i64 * 8 + self.next_bit();
                if now.stop.is_some_and(|stop| stop.is_at(bit)) {
                    now.at_block = true;
                    return Ok(false);
                }
                let Some(header) = self.bits.take(3, now) else { return Ok(false) };
                self.last = header & 1 == 1;
                self.place = match header >> 1 {
                    0 => DecodePosition::StoredHeader,
                    1 => {
                        self.codes.set_fixed();
                        DecodePosition::Symbols
                    }
                    2 => DecodePosition::CodeLengths(Box::default()),
                    _ => return Err("a block has the reserved type"),
                };
            }
            DecodePosition::StoredHeader => {
                self.bits.align();
                let Some(lengths) = self.bits.take(32, now) else { return Ok(false) };
                let (len, complement) = (lengths as u16, (lengths >> 16) as u16);
                if len != !complement {
                    return Err("the length of a stored block contradicts its complement");
                }
                self.place = DecodePosition::Stored { left: len.into() };
            }
            DecodePosition::Stored { left } => {
                *left -= self.bits.copy_bytes(*left, now);
                if *left > 0 {
                    return Ok(false);
                }
                self.place = DecodePosition::BlockHeader;
            }
            DecodePosition::CodeLengths(lengths) => {
                let Some(Lengths { literals, distances }) = lengths.read(&mut self.bits, now)?
                else {
                    return Ok(false);
                };
                self.codes.set(literals, distances)?;
                self.place = DecodePosition::Symbols;
            }
            DecodePosition::Symbols => return self.symbols(now),
            DecodePosition::Match { len, distance } => {
                let (len, distance) = (*len, *distance);
                let some = len.min(now.out.len() - now.filled);
                copy::slow(now.out, now.filled, distance, some, &self.history)?;
                now.filled += some;
                self.place = match len - some {
                    0 => DecodePosition::Symbols,
                    len => DecodePosition::Match { len, distance },
                };
                return Ok(some == len);
            }
            DecodePosition::End => return Ok(false),
        }
        Ok(true)
    }

    /// Symbols of a block: in bulk while both buffers are far from their ends, else one by one.
    fn symbols(&mut self, now: &mut Now<'_, B>) -> Result<bool, Invalid> {
        loop {
            if sys::decode_symbols(&mut self.bits, &self.codes, &self.history, now)? {
                self.place = DecodePosition::BlockHeader;
                return Ok(true);
            }
            match self.codes.next(&mut self.bits, now)? {
                None => return Ok(false),
                Some(Symbol::EndOfBlock) => {
                    self.place = DecodePosition::BlockHeader;
                    return Ok(true);
                }
                Some(Symbol::Literal(byte)) => {
                    now.out[now.filled] = B::from(byte);
                    now.filled += 1;
                }
                Some(Symbol::Match { len, distance }) => {
                    self.place = DecodePosition::Match { len, distance };
                    return Ok(true);
                }
            }
        }
    }
}

/// The buffers of one call, and how far they are used.
struct Now<'a, B> {
    input: &'a [u8],
    at: usize,
    out: &'a mut [B],
    filled: usize,
    stop: Option<StopBefore>,
    /// It did.
    at_block: bool,
}

impl<'a, B> Now<'a, B> {
    /// Input alone.
    fn reading(input: &'a [u8]) -> Self {
        Self { input, at: 0, out: &mut [], filled: 0, stop: None, at_block: false }
    }
}
