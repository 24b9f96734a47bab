//! What earlier calls decoded: matches reach back 32 KiB.

use super::output::OutputByte;

/// The farthest that a match reaches back.
pub(super) const REACH: usize = 32 * 1024;
/// Larger than `REACH`, so that short pieces can be appended without moving the rest each time.
const CAPACITY: usize = 2 * REACH;

/// The last bytes of the output, at least the last 32 KiB.
pub(super) struct History<B> {
    bytes: Box<[B]>,
    len: usize,
}

impl<B: OutputByte> History<B> {
    pub(super) fn new() -> Self {
        Self { bytes: vec![B::default(); CAPACITY].into_boxed_slice(), len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Bytes that a match can refer to.
    pub(super) fn as_slice(&self) -> &[B] {
        &self.bytes[..self.len]
    }

    pub(super) fn append(&mut self, decoded: &[B]) {
        let last = &decoded[decoded.len().saturating_sub(REACH)..];
        if self.len + last.len() > CAPACITY {
            let keep = REACH - last.len();
            self.bytes.copy_within(self.len - keep..self.len, 0);
            self.len = keep;
        }
        self.bytes[self.len..][..last.len()].copy_from_slice(last);
        self.len += last.len();
    }
}
