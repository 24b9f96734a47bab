//! Decoded content in pieces that can be written as they are: aligned buffers, and runs of zeroes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::{Buffer, Pool};
use crate::sink::ALIGNMENT;

/// Fewer zeroes are filled into a buffer, where others find them: a piece takes a whole buffer, and each is written on its own.
const ZEROES_MIN: u64 = 64 << 10;

/// A piece of the content. Its position in the content and that in memory have the same alignment.
pub enum Piece {
    /// Bytes of a buffer.
    Data(Buffer, Range<usize>),
    /// A number of zeroes.
    Zeroes(u64),
}

impl Piece {
    /// In bytes of content.
    pub fn len(&self) -> u64 {
        match self {
            Self::Data(_, range) => range.len() as u64,
            Self::Zeroes(len) => *len,
        }
    }
}

/// Collects content, which comes in any portions, into pieces. Pieces of zeroes, and those before one, end at an aligned
/// position, and so do full buffers.
pub struct PieceWriter {
    pool: Arc<Pool>,
    buffer: Option<Buffer>,
    /// The part of the buffer that is filled.
    begin: usize,
    end: usize,
    /// Position behind all content so far.
    at: u64,
    finished: VecDeque<Piece>,
}

impl PieceWriter {
    /// The first byte's position in the content is `at`.
    pub fn new(pool: &Arc<Pool>, at: u64) -> Self {
        let begin = misalignment(at);
        let (pool, finished) = (Arc::clone(pool), VecDeque::new());
        Self { pool, buffer: None, begin, end: begin, at, finished }
    }

    /// Position behind all content so far.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next piece that is finished. It should be taken before more content is added.
    pub fn next_piece(&mut self) -> Option<Piece> {
        self.finished.pop_front()
    }

    /// Where the next bytes belong; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        let buffer = self.buffer.get_or_insert_with(|| self.pool.take());
        &mut buffer[self.end..]
    }

    /// `n` bytes of the space are filled.
    pub fn advance(&mut self, n: usize) {
        self.end += n;
        self.at += n as u64;
        if self.space().is_empty() {
            self.flush();
        }
    }

    /// Adds zeroes. Of many, the aligned ones are a piece of their own, and what is around them is filled into buffers.
    pub fn zeroes(&mut self, n: u64) {
        if n < ZEROES_MIN {
            return self.fill_zeroes(n as usize);
        }
        let before = (misalignment(self.at.wrapping_neg()) as u64).min(n);
        self.fill_zeroes(before as usize);
        let aligned = (n - before) / ALIGNMENT as u64 * ALIGNMENT as u64;
        if aligned > 0 {
            self.flush();
            self.at += aligned;
            self.finished.push_back(Piece::Zeroes(aligned));
        }
        self.fill_zeroes((n - before - aligned) as usize);
    }

    fn fill_zeroes(&mut self, mut n: usize) {
        while n > 0 {
            let space = self.space();
            let some = n.min(space.len());
            space[..some].fill(0);
            self.advance(some);
            n -= some;
        }
    }

    /// Finishes the piece that is being collected.
    pub fn flush(&mut self) {
        let range = self.begin..self.end;
        self.begin = misalignment(self.at);
        self.end = self.begin;
        if !range.is_empty()
            && let Some(buffer) = self.buffer.take()
        {
            self.finished.push_back(Piece::Data(buffer, range));
        }
    }
}

fn misalignment(at: u64) -> usize {
    (at % ALIGNMENT as u64) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(writer: &mut PieceWriter, portion: &[u8]) {
        let mut left = portion;
        while !left.is_empty() {
            let space = writer.space();
            let n = space.len().min(left.len());
            space[..n].copy_from_slice(&left[..n]);
            writer.advance(n);
            left = &left[n..];
        }
    }

    proptest! {
        #[test]
        fn pieces_are_the_content_and_aligned(
            at in 0..3 * ALIGNMENT as u64,
            portions in prop::collection::vec((0_usize..20_000, 0_u64..300_000), 0..20),
            blocks in 1_usize..5,
        ) {
            let pool = Pool::unlimited(blocks * ALIGNMENT, 4);
            let mut writer = PieceWriter::new(&pool, at);
            let (mut content, mut pieces) = (Vec::new(), Vec::new());
            for (number, (len, zeroes)) in portions.into_iter().enumerate() {
                let bytes = vec![number as u8 + 1; len];
                add(&mut writer, &bytes);
                writer.zeroes(zeroes);
                content.extend(bytes);
                content.resize(content.len() + zeroes as usize, 0);
                pieces.extend(std::iter::from_fn(|| writer.next_piece()));
                prop_assert_eq!(writer.at(), at + content.len() as u64);
            }
            writer.flush();
            pieces.extend(std::iter::from_fn(|| writer.next_piece()));

            let (mut found, mut at) = (Vec::new(), at);
            let last = pieces.len().saturating_sub(1);
            for (number, piece) in pieces.into_iter().enumerate() {
                let len = piece.len();
                prop_assert!(number == last || (at + len).is_multiple_of(ALIGNMENT as u64));
                match piece {
                    Piece::Data(buffer, range) => {
                        let address = buffer[range.start..].as_ptr().addr();
                        prop_assert_eq!(misalignment(address as u64), misalignment(at));
                        found.extend_from_slice(&buffer[range]);
                    }
                    Piece::Zeroes(len) => {
                        prop_assert!(len + 2 * ALIGNMENT as u64 > ZEROES_MIN);
                        found.resize(found.len() + len as usize, 0);
                    }
                }
                at += len;
            }
            prop_assert!(found == content);
        }
    }
}
