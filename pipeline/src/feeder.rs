//! From the network's buffers to the crew: each block is looked at while it is hot, and only data goes on. Where it lies as
//! it will on the disk, it is written from there; elsewhere it is copied into aligned memory.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::buffer::{Buffer, Pool};
use crate::crew::Crew;
use crate::error::Error;
use crate::jobs::{Job, Ticket, Write};
use crate::sink::ALIGNMENT;
use crate::zeroes::{GRANULARITY as BLOCK, Run, is_zero, runs};

/// Less is copied: it would keep a whole buffer of the network from being used again.
const RECEIVED_MIN: usize = 128 << 10;

/// Takes raw guest bytes in pieces of any size and hands full buffers of writes to a crew.
///
/// Blocks of data are packed densely, so a buffer always holds as much data as it has room for, and a block keeps its
/// alignment. Runs of zeroes are noted without being copied.
pub struct Feeder<'a> {
    crew: &'a Crew<Job>,
    pool: &'a Arc<Pool>,
    ticket: &'a Ticket,
    buffer: Option<Buffer>,
    /// Bytes of `buffer` that hold finished blocks; always a multiple of the block.
    filled: usize,
    writes: Vec<Write>,
    /// Bytes of `writes` that are not in `buffer`.
    received: usize,
    /// Where the next byte belongs in the guest.
    at: u64,
    /// The block being put together behind `filled`: which of its bytes have come. Empty between blocks.
    open: Range<usize>,
}

impl<'a> Feeder<'a> {
    /// Begins at guest address 0. Each job carries another ticket of the same unit.
    pub fn new(crew: &'a Crew<Job>, pool: &'a Arc<Pool>, ticket: &'a Ticket) -> Self {
        let (buffer, filled, writes, received) = (None, 0, vec![], 0);
        Self { crew, pool, ticket, buffer, filled, writes, received, at: 0, open: 0..0 }
    }

    /// The next bytes belong at guest address `at`.
    ///
    /// # Errors
    /// Of any job before.
    pub fn seek(&mut self, at: u64) -> Result<(), Error> {
        if at != self.at {
            self.close_block()?;
            self.at = at;
        }
        Ok(())
    }

    /// The next bytes.
    ///
    /// # Errors
    /// Of any job before.
    pub fn push(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            let offset = (self.at % BLOCK as u64) as usize;
            let len = if offset > 0 || bytes.len() < BLOCK {
                self.push_partial(offset, &bytes)?
            } else {
                self.push_blocks(&bytes)?
            };
            bytes.advance(len);
        }
        Ok(())
    }

    /// Hands over what is left. The feeder can go on afterwards.
    ///
    /// # Errors
    /// Of any job before.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.close_block()?;
        self.submit()
    }

    /// Bytes of a block that has not come whole.
    fn push_partial(&mut self, offset: usize, bytes: &[u8]) -> Result<usize, Error> {
        if self.open.is_empty() {
            self.open = offset..offset;
        }
        let len = bytes.len().min(BLOCK - offset);
        let start = self.filled + offset;
        self.room()?[start..][..len].copy_from_slice(&bytes[..len]);
        self.open.end = offset + len;
        self.at += len as u64;
        if self.open.end == BLOCK {
            self.close_block()?;
        }
        Ok(len)
    }

    /// Whole blocks, as many as there are of one kind and as the buffer takes.
    fn push_blocks(&mut self, bytes: &Bytes) -> Result<usize, Error> {
        let whole = bytes.len() - bytes.len() % BLOCK;
        let Some(run) = runs(&bytes[..whole], self.at).next() else { return Ok(0) };
        match run {
            Run::Zero(range) => {
                self.note_zero(range.len() as u64);
                Ok(range.len())
            }
            Run::Data(range) if can_stay(&bytes[range.clone()]) => {
                self.room()?; // as many jobs hold memory of the network as hold memory of the pool
                let len = range.len();
                self.writes.push(Write::Received { at: self.at, bytes: bytes.slice(range) });
                self.at += len as u64;
                self.received += len;
                self.submit_if_full()?;
                Ok(len)
            }
            Run::Data(range) => {
                let filled = self.filled;
                let room = self.room()?;
                let len = range.len().min(room.len() - filled);
                room[filled..][..len].copy_from_slice(&bytes[..len]);
                self.note_data(filled..filled + len);
                self.filled += len;
                self.submit_if_full()?;
                Ok(len)
            }
        }
    }

    /// Decides about a block whose last byte came, or will not come.
    fn close_block(&mut self) -> Result<(), Error> {
        let open = std::mem::take(&mut self.open);
        if open.is_empty() {
            return Ok(());
        }
        let range = self.filled + open.start..self.filled + open.end;
        self.at -= range.len() as u64; // notes move it forward again
        if is_zero(&self.room()?[range.clone()]) {
            self.note_zero(range.len() as u64);
        } else {
            self.note_data(range);
            self.filled += BLOCK;
        }
        self.submit_if_full()
    }

    fn note_zero(&mut self, len: u64) {
        match self.writes.last_mut() {
            Some(Write::Zero { at, len: before }) if *at + *before == self.at => *before += len,
            _ => self.writes.push(Write::Zero { at: self.at, len }),
        }
        self.at += len;
    }

    fn note_data(&mut self, range: Range<usize>) {
        let len = range.len() as u64;
        match self.writes.last_mut() {
            Some(Write::Data { at, range: before })
                if *at + before.len() as u64 == self.at && before.end == range.start =>
            {
                before.end = range.end;
            }
            _ => self.writes.push(Write::Data { at: self.at, range }),
        }
        self.at += len;
    }

    /// The buffer in work, with room for at least one block.
    fn room(&mut self) -> Result<&mut Buffer, Error> {
        Ok(self.buffer.get_or_insert_with(|| self.pool.take()))
    }

    fn submit_if_full(&mut self) -> Result<(), Error> {
        /// Alternating blocks of data and zeroes: the list of them is bounded like the data.
        const WRITES_MAX: usize = 1024;
        let taken = self.filled + self.received;
        let full = self.buffer.as_ref().is_some_and(|buffer| buffer.len() < taken + BLOCK);
        if full || self.writes.len() >= WRITES_MAX { self.submit() } else { Ok(()) }
    }

    fn submit(&mut self) -> Result<(), Error> {
        (self.filled, self.received) = (0, 0);
        let buffer = self.buffer.take();
        let writes = std::mem::take(&mut self.writes);
        if writes.is_empty() {
            return Ok(());
        }
        let ticket = Some(self.ticket.another());
        self.crew.submit(Job::Writes { buffer, writes, ticket })
    }
}

/// Direct I/O takes it as it is, and there is enough of it.
fn can_stay(data: &[u8]) -> bool {
    data.len() >= RECEIVED_MIN && data.as_ptr().addr().is_multiple_of(ALIGNMENT)
}
