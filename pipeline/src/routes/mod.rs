//! The routes of an import. Each feeds the same worker pool with guest data.

use std::sync::Arc;

use bytes::Bytes;
use contract::{ByteCount, Checksum};
use parking_lot::Mutex;

use crate::buffer::Pool;
use crate::completion::CompletionTracker;
use crate::counting_sink::CountingSink;
use crate::error::Error;
use crate::io_counters::count_copied;
use crate::jobs::Job;
use crate::plan::raw_virtual_size;
use crate::progress::Progress;
use crate::source::{ByteStream, Source};
use crate::worker_pool::WorkerPool;

mod cluster_batch;
mod decompressed;
pub mod indexed;
pub mod one_pass;
pub mod parts;
mod ranges;
pub mod raw;
pub mod run_planner;
pub mod scratch;
pub mod stream;

/// Bytes of a segment: the unit of raw disks for parallel streams and for the journal. Small images have smaller ones
/// ([`run_planner::run_max`]).
pub const SEGMENT: u64 = 16 << 20;

/// What every route works with.
pub struct TransferContext<'a> {
    pub source: &'a dyn Source,
    /// The source from its start, as the probe left it. Some sources can be opened only once.
    pub stream: Mutex<Option<Box<dyn ByteStream>>>,
    pub sink: CountingSink,
    pub workers: WorkerPool<Job>,
    /// Buffers for data that is submitted to the workers.
    pub pool: Arc<Pool>,
    pub progress: Arc<Progress>,
    pub completion: Arc<CompletionTracker>,
    /// Threads that decode one gzip stream, where there is one; with fewer than two, the thread that reads it does.
    pub gzip_threads: usize,
    /// The guest's disk may not be longer.
    pub available: ByteCount,
    /// Guest bytes from 0 on that a restarted process has to write again: see [`Disk::held_back`](crate::Disk::held_back).
    pub held_back: u64,
}

/// Result of a route.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Bytes of the guest's disk.
    pub virtual_size: u64,
    /// Of all wire bytes, if the options request it.
    pub digest: Option<Checksum>,
    /// Guest bytes that an earlier process had made durable.
    pub resumed: u64,
}

impl TransferContext<'_> {
    /// All wire bytes from the start: the probed stream, or else a new one.
    pub fn open_stream(&self) -> Box<dyn ByteStream> {
        let first = self.stream.lock().take();
        first.unwrap_or_else(|| self.source.open(0, None))
    }

    pub fn source_failed(&self, source: crate::source::SourceError) -> Error {
        Error::Source { name: self.source.facts().name.clone(), source }
    }

    /// An error of a decoder that reads the source.
    pub fn explain(&self, error: std::io::Error) -> Error {
        crate::wire::explain(error, &self.source.facts().name)
    }

    /// # Errors
    /// [`Error::TooLarge`].
    pub fn check_fits(&self, size: u64) -> Result<(), Error> {
        let needed = ByteCount::new(size);
        if needed > self.available {
            return Err(Error::TooLarge { needed, offered: self.available });
        }
        Ok(())
    }

    /// Zeroes the rest of the last sector of a raw disk of `length` bytes, and returns its virtual size.
    pub fn end_of_raw(&self, length: u64) -> Result<u64, Error> {
        let size = raw_virtual_size(length);
        if size > length {
            self.sink.zero(length, size - length)?;
        }
        Ok(size)
    }
}

/// Exactly the bytes `at..at + len` of a source that serves ranges.
pub fn read_exact(source: &dyn Source, at: u64, len: usize) -> Result<Vec<u8>, Error> {
    let failed = |error| Error::Source { name: source.facts().name.clone(), source: error };
    let mut bytes = Vec::with_capacity(len);
    let mut stream = source.open(at, Some(at + len as u64));
    while bytes.len() < len {
        let chunk: Bytes = stream.next().map_err(failed)?.ok_or_else(|| {
            failed(format!("requested {len} bytes at {at}, received {}", bytes.len()).into())
        })?;
        let wanted = chunk.len().min(len - bytes.len());
        count_copied(wanted);
        bytes.extend_from_slice(&chunk[..wanted]);
    }
    Ok(bytes)
}
