//! The bytes of the file available: the chunk just supplied, and what was carried over from those before.

use std::ops::Range;

/// Where some bytes of the file are.
pub(super) enum Bytes {
    /// There in the chunk.
    InChunk(Range<usize>),
    /// They began before the chunk.
    Owned(Vec<u8>),
}

impl Bytes {
    pub(super) fn as_slice<'a>(&'a self, chunk: &'a [u8]) -> &'a [u8] {
        match self {
            Self::InChunk(range) => &chunk[range.clone()],
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A chunk is named with every call, since it is not kept.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// So much of the file came before the chunk.
    position: u64,
    /// The last bytes before `position`.
    carry: Vec<u8>,
}

impl Window {
    /// Where in the file the chunk begins.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Where in the file the chunk ends.
    pub(super) fn end(&self, chunk: &[u8]) -> u64 {
        self.position + chunk.len() as u64
    }

    /// The bytes `range` of the file, all of which are in the chunk or were carried over.
    pub(super) fn bytes(&self, range: &Range<u64>, chunk: &[u8]) -> Bytes {
        match range.start.checked_sub(self.position) {
            Some(start) => {
                let start = start as usize;
                Bytes::InChunk(start..start + (range.end - range.start) as usize)
            }
            None => {
                let carried =
                    self.in_carry(range.start)..self.in_carry(range.end.min(self.position));
                let in_chunk = range.end.saturating_sub(self.position) as usize;
                Bytes::Owned([&self.carry[carried], &chunk[..in_chunk]].concat())
            }
        }
    }

    /// Goes on to the chunk behind this one, and carries over what the file has from `needed` on. That is never more than
    /// has been carried so far.
    pub(super) fn advance(&mut self, chunk: &[u8], needed: u64) {
        let end = self.end(chunk);
        match needed.min(end).checked_sub(self.position) {
            Some(start) => {
                self.carry.clear();
                self.carry.extend(&chunk[start as usize..]);
            }
            None => {
                self.carry.drain(..self.in_carry(needed));
                self.carry.extend(chunk);
            }
        }
        self.position = end;
    }

    fn in_carry(&self, at: u64) -> usize {
        (at - (self.position - self.carry.len() as u64)) as usize
    }
}
