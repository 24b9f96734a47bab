//! From the network's buffers to the worker pool: each block is checked for zeroes while it is in the CPU cache, and only
//! data is submitted. Data with the alignment that it has on the disk is written from the buffer that received it; other
//! data is copied into aligned memory.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::buffer::{Buffer, Pool};
use crate::error::Error;
use crate::io_counters::copy_counted;
use crate::jobs::{Job, SegmentGuard, Write};
use crate::sink::ALIGNMENT;
use crate::worker_pool::WorkerPool;
use crate::zeroes::{GRANULARITY as BLOCK, Run, is_zero, runs};

/// Less is copied: it would keep a whole receive buffer in use.
const RECEIVED_MIN: usize = 128 << 10;

/// Takes raw guest bytes in chunks of any size and submits full buffers of writes to a worker pool.
///
/// Blocks of data are packed densely and keep their alignment. Zeroes are recorded without being copied.
pub struct Feeder<'a> {
    workers: &'a WorkerPool<Job>,
    pool: &'a Arc<Pool>,
    guard: &'a SegmentGuard,
    buffer: Option<Buffer>,
    /// Bytes of `buffer` that hold finished blocks; always a multiple of the block.
    filled: usize,
    writes: Vec<Write>,
    /// Bytes of `writes` that are not in `buffer`.
    received: usize,
    /// Guest address of the next byte.
    at: u64,
    /// Which bytes of the block behind `filled` have been received. Empty between blocks.
    partial: Range<usize>,
}

impl<'a> Feeder<'a> {
    /// Starts at guest address 0. Each job carries another guard of the same segment.
    pub fn new(workers: &'a WorkerPool<Job>, pool: &'a Arc<Pool>, guard: &'a SegmentGuard) -> Self {
        let (buffer, filled, writes, received) = (None, 0, vec![], 0);
        Self { workers, pool, guard, buffer, filled, writes, received, at: 0, partial: 0..0 }
    }

    /// Sets the guest address of the next byte.
    ///
    /// # Errors
    /// Those of earlier jobs, as everywhere here.
    pub fn seek(&mut self, at: u64) -> Result<(), Error> {
        if at != self.at {
            self.close_block()?;
            self.at = at;
        }
        Ok(())
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// See [`seek`](Self::seek).
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

    /// Submits what is left. More can be pushed afterwards.
    ///
    /// # Errors
    /// See [`seek`](Self::seek).
    pub fn flush(&mut self) -> Result<(), Error> {
        self.close_block()?;
        self.submit()
    }

    /// Bytes of a block that was received in parts.
    fn push_partial(&mut self, offset: usize, bytes: &[u8]) -> Result<usize, Error> {
        if self.partial.is_empty() {
            self.partial = offset..offset;
        }
        let len = bytes.len().min(BLOCK - offset);
        let start = self.filled + offset;
        copy_counted(&mut self.current_buffer()[start..][..len], &bytes[..len]);
        self.partial.end = offset + len;
        self.at += len as u64;
        if self.partial.end == BLOCK {
            self.close_block()?;
        }
        Ok(len)
    }

    /// Whole blocks, as many as are all data or all zero and fit into the buffer.
    fn push_blocks(&mut self, bytes: &Bytes) -> Result<usize, Error> {
        let whole = bytes.len() - bytes.len() % BLOCK;
        let Some(run) = runs(&bytes[..whole], self.at).next() else { return Ok(0) };
        match run {
            Run::Zero(range) => {
                self.record_zero(range.len() as u64);
                Ok(range.len())
            }
            Run::Data(range) if is_writable_in_place(&bytes[range.clone()]) => {
                self.current_buffer(); // limits the jobs that hold receive buffers to the buffers of the pool
                let len = range.len();
                self.writes.push(Write::Received { at: self.at, bytes: bytes.slice(range) });
                self.at += len as u64;
                self.received += len;
                self.submit_if_full()?;
                Ok(len)
            }
            Run::Data(range) => {
                let filled = self.filled;
                let buffer = self.current_buffer();
                let len = range.len().min(buffer.len() - filled);
                copy_counted(&mut buffer[filled..][..len], &bytes[..len]);
                self.record_data(filled..filled + len);
                self.filled += len;
                self.submit_if_full()?;
                Ok(len)
            }
        }
    }

    /// Ends a block, whether or not all of it was received.
    fn close_block(&mut self) -> Result<(), Error> {
        let partial = std::mem::take(&mut self.partial);
        if partial.is_empty() {
            return Ok(());
        }
        let range = self.filled + partial.start..self.filled + partial.end;
        self.at -= range.len() as u64; // recording it adds this again
        if is_zero(&self.current_buffer()[range.clone()]) {
            self.record_zero(range.len() as u64);
        } else {
            self.record_data(range);
            self.filled += BLOCK;
        }
        self.submit_if_full()
    }

    fn record_zero(&mut self, len: u64) {
        match self.writes.last_mut() {
            Some(Write::Zero { at, len: before }) if *at + *before == self.at => *before += len,
            _ => self.writes.push(Write::Zero { at: self.at, len }),
        }
        self.at += len;
    }

    fn record_data(&mut self, range: Range<usize>) {
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

    /// Has at least one block free. Waits for a buffer of the pool.
    fn current_buffer(&mut self) -> &mut Buffer {
        self.buffer.get_or_insert_with(|| self.pool.take())
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
        let guard = Some(self.guard.for_another_job());
        self.workers.submit(Job::Writes { buffer, writes, guard })
    }
}

/// Aligned for direct I/O, and long enough.
fn is_writable_in_place(data: &[u8]) -> bool {
    data.len() >= RECEIVED_MIN && data.as_ptr().addr().is_multiple_of(ALIGNMENT)
}
