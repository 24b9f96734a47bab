//! Making a stream.

use std::io::{self, Write};

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::DATA_MAX;
use super::entry::Entry;
use super::frame::{Coding, Header, Kind, Preamble};
use crate::offer::Position;

/// Compresses data, on as many threads as there are packers.
pub struct Packer {
    table: CompressTable,
    packed: Vec<u8>,
}

/// Data that is ready to be sent.
#[derive(Clone, Debug)]
pub struct Piece {
    coding: Coding,
    len: u32,
    sum: u32,
    payload: Vec<u8>,
}

impl Piece {
    /// Bytes before compression.
    pub fn len(&self) -> u64 {
        self.len.into()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for Packer {
    fn default() -> Self {
        Self::new()
    }
}

impl Packer {
    /// Takes the memory that it needs.
    pub fn new() -> Self {
        let packed = vec![0; get_maximum_output_size(DATA_MAX)];
        Self { table: CompressTable::default(), packed }
    }

    /// Sums `bytes` up and compresses them, where that makes them smaller by a sixteenth and more.
    ///
    /// # Panics
    /// With more than [`DATA_MAX`] bytes.
    pub fn pack(&mut self, bytes: &[u8]) -> Piece {
        assert!(bytes.len() <= DATA_MAX, "more bytes than fit into a frame");
        let worth = (bytes.len() - bytes.len() / 16).min(bytes.len().saturating_sub(1));
        // Fails only without room, which there is.
        let packed = compress_into_with_table(bytes, &mut self.packed, &mut self.table);
        let (coding, payload) = match packed {
            Ok(len) if len <= worth => (Coding::Lz4, self.packed[..len].to_vec()),
            _ => (Coding::Plain, bytes.to_vec()),
        };
        Piece { coding, len: bytes.len() as u32, sum: crc_fast::crc32_iscsi(bytes), payload }
    }
}

/// Why a stream cannot be written on.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// What was to be sent cannot be.
    #[error("{0}")]
    Content(&'static str),
    /// Nobody takes it.
    #[error("cannot write the clone stream")]
    Out(#[from] io::Error),
}

/// Writes one stream. Whoever calls keeps to the order: entry, all of its content, next entry.
pub struct Writer<W> {
    out: W,
    chain: u32,
    next_entry: u64,
    /// Of the entry's content: what was written, and where it ends.
    at: u64,
    size: u64,
    /// Zeroes before `at` that are not written yet: neighbours become one frame.
    zeroes: u64,
    content: u64,
    begin: Position,
}

impl<W: Write> Writer<W> {
    /// Writes the preamble.
    ///
    /// # Errors
    /// Of `out`.
    pub fn begin(mut out: W, preamble: &Preamble) -> io::Result<Self> {
        let bytes = preamble.to_bytes();
        out.write_all(&bytes)?;
        let chain = crc_fast::crc32_iscsi(&bytes);
        let begin = preamble.begin;
        Ok(Self {
            out,
            chain,
            next_entry: begin.entry,
            at: 0,
            size: 0,
            zeroes: 0,
            content: 0,
            begin,
        })
    }

    /// Where the content of the next entry has to begin.
    pub fn begin_of_next(&self) -> u64 {
        if self.next_entry == self.begin.entry { self.begin.at } else { 0 }
    }

    /// Begins an entry.
    ///
    /// # Errors
    /// Of `out`; when the entry has a name that cannot be sent, or the one before lacks content.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        self.complete()?;
        let begin = self.begin_of_next();
        let payload =
            entry.to_payload().ok_or(WriteError::Content("its name or its link cannot be sent"))?;
        if begin > entry.size {
            return Err(WriteError::Content("the receiver has more of it than there is"));
        }
        let sum = crc_fast::crc32_iscsi(&payload);
        self.frame(Kind::Entry, Coding::Plain, self.next_entry, entry.size, sum, &payload)?;
        (self.at, self.size) = (begin, entry.size);
        self.next_entry += 1;
        Ok(())
    }

    /// The next bytes of content.
    ///
    /// # Errors
    /// Of `out`; when there is more content than the entry said.
    pub fn data(&mut self, piece: &Piece) -> Result<(), WriteError> {
        if piece.is_empty() {
            return Ok(());
        }
        self.flush_zeroes()?;
        let at = self.at;
        self.advance(piece.len())?;
        self.frame(Kind::Data, piece.coding, at, piece.len(), piece.sum, &piece.payload)
    }

    /// The next bytes of content are zeroes.
    ///
    /// # Errors
    /// When there is more content than the entry said.
    pub fn zeroes(&mut self, len: u64) -> Result<(), WriteError> {
        self.advance(len)?;
        self.zeroes += len;
        Ok(())
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// Of `out`; when the last entry lacks content.
    pub fn end(mut self) -> Result<W, WriteError> {
        self.complete()?;
        self.frame(Kind::End, Coding::Plain, self.next_entry, self.content, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn advance(&mut self, len: u64) -> Result<(), WriteError> {
        if len > self.size - self.at {
            return Err(WriteError::Content("it has grown while it was sent"));
        }
        self.at += len;
        self.content += len;
        Ok(())
    }

    fn complete(&mut self) -> Result<(), WriteError> {
        if self.at != self.size {
            return Err(WriteError::Content("it has shrunk while it was sent"));
        }
        self.flush_zeroes()
    }

    fn flush_zeroes(&mut self) -> Result<(), WriteError> {
        let len = std::mem::take(&mut self.zeroes);
        if len == 0 {
            return Ok(());
        }
        self.frame(Kind::Zero, Coding::Plain, self.at - len, len, 0, &[])
    }

    fn frame(
        &mut self,
        kind: Kind,
        coding: Coding,
        at: u64,
        len: u64,
        payload_sum: u32,
        payload: &[u8],
    ) -> Result<(), WriteError> {
        let payload_len = payload.len() as u32; // at most DATA_MAX
        let header = Header { kind, coding, payload_len, at, len, payload_sum };
        let header = header.to_bytes(&mut self.chain);
        self.out.write_all(&header)?;
        Ok(self.out.write_all(payload)?)
    }
}
