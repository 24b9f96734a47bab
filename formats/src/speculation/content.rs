//! Content that was decoded without knowing what precedes it.

use std::collections::VecDeque;
use std::ops::Range;

use super::Decoded;
use crate::bytes::is_zero;
use crate::inflate::WINDOW;

/// Values from this one on refer to a byte of the window; smaller ones are bytes.
const PLACEHOLDER: u16 = 1 << 15;

/// A window of nothing but placeholders.
pub(super) fn placeholders() -> Vec<u16> {
    (0..WINDOW).map(|at| PLACEHOLDER | at as u16).collect()
}

/// The byte of each value, given the 32 KiB before the content.
pub(super) struct Window(Box<[u8]>);

impl Window {
    /// `bytes`: all [`WINDOW`] of them.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut table = vec![0; 1 << 16];
        for (value, entry) in table[..256].iter_mut().enumerate() {
            *entry = value as u8;
        }
        table[usize::from(PLACEHOLDER)..].copy_from_slice(bytes);
        Self(table.into_boxed_slice())
    }

    pub(super) fn byte(&self, value: u16) -> u8 {
        self.0[usize::from(value)]
    }

    /// Both slices have the same length.
    pub(super) fn replace(&self, values: &[u16], out: &mut [u8]) {
        let Some(table) = self.0.first_chunk::<{ 1 << 16 }>() else { return };
        for (out, value) in out.iter_mut().zip(values) {
            *out = table[usize::from(*value)];
        }
    }
}

/// Values that may be placeholders, then bytes that are known. Long runs of the same value take no memory: disks are full
/// of zeroes, and to a decoder that does not know what precedes it these are copies of one placeholder.
pub(super) struct Content {
    marked: Box<[u16]>,
    marked_end: usize,
    plain: Box<[u8]>,
    plain_end: usize,
    /// In order.
    parts: VecDeque<Part>,
    /// Bytes that were not read yet.
    len: u64,
}

enum Part {
    Marked(Range<usize>),
    Plain(Range<usize>),
    Run { value: u16, len: usize },
}

impl Content {
    /// Memory for `len` values and `len` bytes. The kernel provides it on first touch.
    pub(super) fn new(len: usize) -> Self {
        Self {
            marked: vec![0; len].into_boxed_slice(),
            marked_end: 0,
            plain: vec![0; len].into_boxed_slice(),
            plain_end: 0,
            parts: VecDeque::new(),
            len: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.marked_end = 0;
        self.plain_end = 0;
        self.parts.clear();
        self.len = 0;
    }

    /// Bytes of content that were not read yet.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// All values so far and `len` more, fewer where memory is short, and where the latter begin. What precedes them by
    /// up to [`WINDOW`] is what precedes them in the content too.
    pub(super) fn marked_space(&mut self, len: usize) -> (&mut [u16], usize) {
        let end = self.marked.len().min(self.marked_end + len);
        (&mut self.marked[..end], self.marked_end)
    }

    /// The first `len` values of the space belong to the content.
    pub(super) fn add_marked(&mut self, len: usize) {
        let range = self.marked_end..self.marked_end + len;
        let Some(value) = self.marked.get(range.start).copied().filter(|_| len > 0) else { return };
        self.len += len as u64;
        // A run is not stored only where one of the same value precedes it: the next values may refer to it.
        let begin = range.start.saturating_sub(WINDOW);
        let is_run = range.start >= WINDOW && is_repeated(&self.marked[begin..range.end], value);
        match self.parts.back_mut() {
            Some(Part::Run { value: before, len: n }) if is_run && *before == value => *n += len,
            _ if is_run => self.parts.push_back(Part::Run { value, len }),
            Some(Part::Marked(before)) => before.end = range.end,
            _ => self.parts.push_back(Part::Marked(range.clone())),
        }
        if !is_run {
            self.marked_end = range.end;
        }
    }

    /// The last values, up to [`WINDOW`] of them.
    pub(super) fn last_marked(&self) -> &[u16] {
        &self.marked[self.marked_end.saturating_sub(WINDOW)..self.marked_end]
    }

    /// Where up to `len` more bytes belong; fewer where memory is short.
    pub(super) fn plain_space(&mut self, len: usize) -> &mut [u8] {
        let end = self.plain.len().min(self.plain_end + len);
        &mut self.plain[self.plain_end..end]
    }

    /// The first `len` bytes of the space belong to the content.
    pub(super) fn add_plain(&mut self, len: usize) {
        let range = self.plain_end..self.plain_end + len;
        self.len += len as u64;
        let is_run = is_zero(&self.plain[range.clone()]);
        match self.parts.back_mut() {
            Some(Part::Run { value: 0, len: n }) if is_run => *n += len,
            _ if is_run => self.parts.push_back(Part::Run { value: 0, len }),
            Some(Part::Plain(before)) => before.end = range.end,
            _ => self.parts.push_back(Part::Plain(range.clone())),
        }
        if !is_run {
            self.plain_end = range.end;
        }
    }

    /// Reads what is in one part at most. `None`: all is read.
    pub(super) fn read(&mut self, window: &Window, out: &mut [u8]) -> Option<Decoded> {
        let (decoded, n, is_last) = match self.parts.front_mut()? {
            Part::Run { value, len } if window.byte(*value) == 0 => {
                (Decoded::Zeroes(*len), *len, true)
            }
            Part::Run { value, len } => {
                let n = out.len().min(*len);
                out[..n].fill(window.byte(*value));
                *len -= n;
                (Decoded::Bytes(n), n, *len == 0)
            }
            Part::Marked(range) => {
                let n = range.len().min(out.len());
                window.replace(&self.marked[range.start..][..n], &mut out[..n]);
                range.start += n;
                (Decoded::Bytes(n), n, range.start == range.end)
            }
            Part::Plain(range) => {
                let n = range.len().min(out.len());
                out[..n].copy_from_slice(&self.plain[range.start..][..n]);
                range.start += n;
                (Decoded::Bytes(n), n, range.start == range.end)
            }
        };
        if is_last {
            self.parts.pop_front();
        }
        self.len -= n as u64;
        Some(decoded)
    }
}

fn is_repeated(values: &[u16], value: u16) -> bool {
    values.chunks(512).all(|block| block.iter().fold(0, |any, other| any | (other ^ value)) == 0)
}
