//! Encoding.

use std::io::{self, Write};

use super::entry::Entry;
use super::frame::{Coding, Header, Kind, Preamble};
use super::packer::PackedData;
use crate::offer::StreamPosition;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The source cannot be sent, or has changed.
    #[error("{0}")]
    Content(&'static str),
    #[error("cannot write the clone stream")]
    Out(#[from] io::Error),
}

/// Encodes one stream. The caller writes an entry, all of its content, the next entry.
pub struct ExtentWriter<W> {
    out: W,
    chain: u32,
    next_entry: u64,
    /// Offset in the content of the current entry, and its size.
    at: u64,
    size: u64,
    /// Zeroes before `at` that are not written yet: adjacent ranges become one frame.
    zeroes: u64,
    content: u64,
    begin: StreamPosition,
}

impl<W: Write> ExtentWriter<W> {
    /// Writes the preamble.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn create(mut out: W, preamble: &Preamble) -> io::Result<Self> {
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

    /// Offset at which the content of the next entry starts.
    pub fn next_entry_start(&self) -> u64 {
        if self.next_entry == self.begin.entry { self.begin.at } else { 0 }
    }

    /// # Errors
    /// Those of `out`; [`WriteError::Content`] for an invalid entry, or if the previous one lacks content.
    pub fn write_entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        self.end_entry()?;
        let begin = self.next_entry_start();
        let payload = entry
            .to_payload()
            .ok_or(WriteError::Content("its path or link target cannot be sent"))?;
        if begin > entry.size {
            return Err(WriteError::Content("the receiver already has more than its size"));
        }
        let sum = crc_fast::crc32_iscsi(&payload);
        self.write_frame(Kind::Entry, Coding::Plain, self.next_entry, entry.size, sum, &payload)?;
        (self.at, self.size) = (begin, entry.size);
        self.next_entry += 1;
        Ok(())
    }

    /// `bytes`: those from which `piece` was made.
    ///
    /// # Errors
    /// Those of `out`; [`WriteError::Content`] for more content than the entry has.
    pub fn write_data(&mut self, piece: &PackedData, bytes: &[u8]) -> Result<(), WriteError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.flush_zeroes()?;
        let (at, len) = (self.at, bytes.len() as u64);
        self.advance(len)?;
        self.write_frame(Kind::Data, piece.coding(), at, len, piece.sum(), piece.payload(bytes))
    }

    /// # Errors
    /// [`WriteError::Content`] for more content than the entry has.
    pub fn write_zeroes(&mut self, len: u64) -> Result<(), WriteError> {
        self.advance(len)?;
        self.zeroes += len;
        Ok(())
    }

    /// # Errors
    /// Those of `out`; [`WriteError::Content`] if the last entry lacks content.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.end_entry()?;
        self.write_frame(Kind::End, Coding::Plain, self.next_entry, self.content, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn advance(&mut self, len: u64) -> Result<(), WriteError> {
        if len > self.size - self.at {
            return Err(WriteError::Content("it has grown during the transfer"));
        }
        self.at += len;
        self.content += len;
        Ok(())
    }

    fn end_entry(&mut self) -> Result<(), WriteError> {
        if self.at != self.size {
            return Err(WriteError::Content("it has shrunk during the transfer"));
        }
        self.flush_zeroes()
    }

    fn flush_zeroes(&mut self) -> Result<(), WriteError> {
        let len = std::mem::take(&mut self.zeroes);
        if len == 0 {
            return Ok(());
        }
        self.write_frame(Kind::Zero, Coding::Plain, self.at - len, len, 0, &[])
    }

    fn write_frame(
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
