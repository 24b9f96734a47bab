//! Puts decoded content into aligned buffers.

use std::sync::Arc;

use crc32fast::Hasher;
use crossbeam_channel::Sender;

use super::Piece;
use super::chunk::{Abandoned, ChunkMessage};
use crate::buffer::{Buffer, Pool};
use crate::sink::ALIGNMENT;

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Collects the content of a chunk and sends it in pieces.
pub(super) struct PieceWriter<'a> {
    pool: &'a Arc<Pool>,
    messages: &'a Sender<ChunkMessage>,
    buffer: Option<Buffer>,
    /// The part of the buffer that is filled.
    begin: usize,
    end: usize,
    /// Position behind all content so far.
    at: u64,
    checksum: Hasher,
    len: u64,
}

impl<'a> PieceWriter<'a> {
    /// The first byte's position in the stream's content is `at`.
    pub(super) fn new(pool: &'a Arc<Pool>, messages: &'a Sender<ChunkMessage>, at: u64) -> Self {
        let begin = misalignment(at);
        let checksum = Hasher::new();
        Self { pool, messages, buffer: None, begin, end: begin, at, checksum, len: 0 }
    }

    /// Position behind all content so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where the next bytes belong; never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let buffer = self.buffer.get_or_insert_with(|| self.pool.take());
        &mut buffer[self.end..]
    }

    /// `n` bytes of the space are filled.
    pub(super) fn advance(&mut self, n: usize) -> Result<(), Abandoned> {
        self.end += n;
        self.at += n as u64;
        if self.space().is_empty() { self.flush() } else { Ok(()) }
    }

    /// Aligned zeroes are a piece of their own, what is around them is filled into buffers.
    pub(super) fn zeroes(&mut self, n: usize) -> Result<(), Abandoned> {
        let before = misalignment(self.at.wrapping_neg()).min(n);
        self.fill_zeroes(before)?;
        let aligned = (n - before) / ALIGNMENT * ALIGNMENT;
        if aligned > 0 {
            self.flush()?;
            self.at += aligned as u64;
            let mut left = aligned;
            while left > 0 {
                let some = left.min(ZEROES.len());
                self.checksum.update(&ZEROES[..some]);
                left -= some;
            }
            self.len += aligned as u64;
            self.send(Piece::Zeroes(aligned as u64))?;
        }
        self.fill_zeroes(n - before - aligned)
    }

    /// Fewer than [`ALIGNMENT`].
    fn fill_zeroes(&mut self, mut n: usize) -> Result<(), Abandoned> {
        while n > 0 {
            let space = self.space();
            let some = n.min(space.len());
            space[..some].fill(0);
            self.advance(some)?;
            n -= some;
        }
        Ok(())
    }

    /// Sends what is collected.
    pub(super) fn flush(&mut self) -> Result<(), Abandoned> {
        let range = self.begin..self.end;
        self.begin = misalignment(self.at);
        self.end = self.begin;
        if range.is_empty() {
            return Ok(());
        }
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        self.checksum.update(&buffer[range.clone()]);
        self.len += range.len() as u64;
        self.send(Piece::Data(buffer, range))
    }

    /// The checksum and length of all content that was sent.
    pub(super) fn finish(self) -> (Hasher, u64) {
        (self.checksum, self.len)
    }

    fn send(&self, piece: Piece) -> Result<(), Abandoned> {
        self.messages.send(ChunkMessage::Piece(piece)).map_err(|_| Abandoned)
    }
}

fn misalignment(at: u64) -> usize {
    (at % ALIGNMENT as u64) as usize
}
