//! The route of an indexed image that can only be read in order: see `formats::one_pass`.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use contract::Hasher;
use formats::decompress;
use formats::index::Layout;
use formats::one_pass::{Limits, OnePass, OnePassError, Output};
use formats::sniff::Compression;

use super::{Outcome, TransferContext};
use crate::error::Error;
use crate::jobs::{GuestPart, Job};
use crate::wire::Wire;

/// Imports an image with an index out of a stream. `memory` bytes may hold what is parked before the target has to.
///
/// # Errors
/// Of the source, the decoders, the worker pool; [`Error::NeedsScratch`] where one pass is not enough.
pub fn import_one_pass(
    context: &TransferContext<'_>,
    layout: Arc<dyn Layout>,
    compressions: &[Compression],
    hasher: Option<Hasher>,
    memory: usize,
) -> Result<Outcome, Error> {
    let virtual_size = layout.virtual_size();
    let limits = Limits { index_bytes: memory, parked_bytes: memory };
    let mut writer = OnePassWriter { context, plain: vec![], compressed: vec![], failed: None };
    let one_pass = OnePass::new(layout, limits);
    let mut one_pass = one_pass.map_err(|error| writer.explain(error))?;
    if !context.sink.inner().starts_zeroed() {
        // What is zero is known only at the end, and parking requires a target that is zero where nothing is parked.
        let zeroed = context.sink.inner().zero_at(0, virtual_size);
        zeroed.map_err(|error| context.sink.failed("write zeroes to", error))?;
    }
    let mut wire = Wire::new(context.open_stream(), &context.progress, hasher)?;
    {
        let limits = decompress::Limits::default();
        let mut reader = decompress::readers(compressions, Box::new(&mut wire), limits);
        loop {
            let mut buffer = context.pool.take();
            let range = buffer.fill_from(&mut reader, 0).map_err(|error| context.explain(error))?;
            if range.is_empty() {
                break;
            }
            let supplied = one_pass.supply(&buffer[range], &mut writer);
            writer.check(supplied)?;
            writer.submit(Arc::new(buffer))?;
        }
    }
    let finished = one_pass.finish(&mut writer);
    writer.check(finished)?;
    context.workers.drain()?;
    let digest = wire.finish().map_err(|error| context.explain(error))?;
    let written = context.progress.snapshot().guest;
    context.progress.add_zero(virtual_size.saturating_sub(written));
    Ok(Outcome { virtual_size, digest, resumed: 0 })
}

/// Collects the parts of the current chunk, and does reads and writes of parked bytes at once.
struct OnePassWriter<'a> {
    context: &'a TransferContext<'a>,
    plain: Vec<GuestPart>,
    compressed: Vec<GuestPart>,
    /// The worker pool's failure, passing through the decoder's `io::Error`.
    failed: Option<Error>,
}

impl OnePassWriter<'_> {
    fn check(&mut self, result: Result<(), OnePassError>) -> Result<(), Error> {
        match (result, self.failed.take()) {
            (_, Some(error)) => Err(error),
            (Ok(()), None) => Ok(()),
            (Err(error), None) => Err(self.explain(error)),
        }
    }

    fn explain(&self, error: OnePassError) -> Error {
        match error {
            OnePassError::NeedsRandomAccess { because } => Error::NeedsScratch { because },
            OnePassError::Image(source) => {
                Error::Decode { name: self.context.source.facts().name.clone(), source }
            }
            OnePassError::Output(source) => self.context.sink.failed("write to", source),
        }
    }

    fn submit(&mut self, buffer: Arc<crate::buffer::Buffer>) -> Result<(), Error> {
        /// Stored bytes per job: small enough that all threads share the clusters of one buffer.
        const JOB_BYTES: usize = 128 << 10;
        let plain = std::mem::take(&mut self.plain);
        if !plain.is_empty() {
            self.context.workers.submit(Job::Scan { buffer: Arc::clone(&buffer), parts: plain })?;
        }
        let mut clusters = vec![];
        let mut bytes = 0;
        for placed in self.compressed.drain(..) {
            bytes += placed.range.len();
            clusters.push(placed);
            if bytes >= JOB_BYTES {
                bytes = 0;
                let clusters = std::mem::take(&mut clusters);
                let buffer = Arc::clone(&buffer);
                self.context.workers.submit(Job::Clusters { buffer, clusters, guard: None })?;
            }
        }
        if clusters.is_empty() {
            return Ok(());
        }
        self.context.workers.submit(Job::Clusters { buffer, clusters, guard: None })
    }

    fn owned(&mut self, bytes: Vec<u8>, at: u64, compressed: bool) -> io::Result<()> {
        let job = Job::Owned { bytes, at, compressed, guard: None };
        self.context.workers.submit(job).map_err(|error| {
            self.failed = Some(error);
            io::Error::other("a worker failed")
        })
    }
}

impl Output for OnePassWriter<'_> {
    fn plain(&mut self, range: Range<usize>, guest: u64) -> io::Result<()> {
        self.plain.push(GuestPart { range, at: guest });
        Ok(())
    }

    fn compressed(&mut self, range: Range<usize>, guest: u64) -> io::Result<()> {
        self.compressed.push(GuestPart { range, at: guest });
        Ok(())
    }

    fn plain_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()> {
        self.owned(bytes, guest, false)
    }

    fn compressed_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()> {
        self.owned(bytes, guest, true)
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.context.sink.inner().write_at(at, bytes)
    }

    fn load(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.context.sink.inner().read_at(at, buffer)
    }

    fn clear(&mut self, at: u64, len: u64) -> io::Result<()> {
        self.context.sink.inner().zero_at(at, len)
    }
}
