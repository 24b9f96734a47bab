//! The ways through: each feeds the same crew with guest data, and differs in where that comes from.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use contract::{ByteCount, Checksum};

use crate::buffer::Pool;
use crate::crew::Crew;
use crate::error::Error;
use crate::jobs::Job;
use crate::ledger::Ledger;
use crate::outlet::Outlet;
use crate::plan::raw_virtual_size;
use crate::progress::Progress;
use crate::source::{ByteStream, Source};

pub mod indexed;
pub mod one_pass;
pub mod parts;
pub mod ranges;
pub mod raw;
pub mod scratch;
pub mod stream;

/// Raw disks are cut into units of this many bytes, for parallel streams and for the journal.
pub const SEGMENT: u64 = 16 << 20;

/// What every route works with.
pub struct Flow<'a> {
    /// Where wire bytes come from.
    pub source: &'a dyn Source,
    /// The source from its start, as the first look left it. Some sources have but one.
    pub stream: Mutex<Option<Box<dyn ByteStream>>>,
    /// Where guest data goes.
    pub outlet: Outlet,
    /// Who decodes and writes.
    pub crew: Crew<Job>,
    /// Buffers for data on its way to the crew.
    pub pool: Arc<Pool>,
    /// Counters.
    pub progress: Arc<Progress>,
    /// Units done.
    pub ledger: Arc<Ledger>,
    /// The guest's disk may not be longer.
    pub available: ByteCount,
    /// Guest bytes from 0 that a restart has to write again.
    pub held_back: u64,
}

/// What a route found out on its way.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Bytes of the guest's disk.
    pub virtual_size: u64,
    /// Of all wire bytes, where it was asked for.
    pub digest: Option<Checksum>,
    /// Guest bytes that an earlier process had made durable.
    pub resumed: u64,
}

impl Flow<'_> {
    /// All wire bytes from the start.
    pub fn take_stream(&self) -> Box<dyn ByteStream> {
        let first = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.unwrap_or_else(|| self.source.open(0, None))
    }

    /// An error of the source.
    pub fn source_failed(&self, source: crate::source::SourceError) -> Error {
        Error::Source { name: self.source.facts().name.clone(), source }
    }

    /// An error of a decoder that reads the source.
    pub fn explain(&self, error: std::io::Error) -> Error {
        crate::wire::explain(error, &self.source.facts().name)
    }

    /// A disk of `size` bytes fits.
    pub fn check_fits(&self, size: u64) -> Result<(), Error> {
        let needed = ByteCount::new(size);
        if needed > self.available {
            return Err(Error::TooLarge { needed, offered: self.available });
        }
        Ok(())
    }

    /// The size of a raw disk of which so many bytes came: what its last sector lacks reads as zeroes, whatever the target
    /// held there.
    pub fn end_of_raw(&self, length: u64) -> Result<u64, Error> {
        let size = raw_virtual_size(length);
        if size > length {
            self.outlet.zero(length, size - length)?;
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
            failed(format!("{len} bytes at {at} were asked for, {} came", bytes.len()).into())
        })?;
        let wanted = chunk.len().min(len - bytes.len());
        bytes.extend_from_slice(&chunk[..wanted]);
    }
    Ok(bytes)
}
