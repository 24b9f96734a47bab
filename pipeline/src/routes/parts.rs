//! The route of a compressed raw disk whose stream consists of independent parts: they are decoded in
//! parallel, each to its guest address.

use contract::Hasher;
use formats::decompress::Limits;
use formats::sniff::Compression;
use formats::units::{CompressedUnit, Part, Splitter};

use super::decompressed::{Decompressed, SerialPieces};
use super::{Outcome, TransferContext, stream};
use crate::error::Error;
use crate::jobs::Job;
use crate::memory_permit::MemoryLimit;
use crate::wire::Wire;

/// Imports a raw disk inside one compression.
///
/// # Errors
/// Of the source, the decoder, the worker pool, and [`Error::TooLarge`].
pub fn import_parts(
    context: &TransferContext<'_>,
    compression: Compression,
    hasher: Option<Hasher>,
    memory: usize,
) -> Result<Outcome, Error> {
    let mut wire = Wire::new(context.open_stream(), &context.progress, hasher)?;
    let mut splitter = Splitter::new(compression, Limits::default());
    let memory = MemoryLimit::new(memory);
    let mut at = 0;
    loop {
        match splitter.next(&mut wire).map_err(|error| context.explain(error))? {
            None => break,
            Some(Part::Inline(reader)) => {
                let pieces = SerialPieces::new(context, Box::new(reader), at);
                at = stream::copy_decompressed(context, &mut Decompressed::Serial(pieces), at)?;
            }
            Some(Part::Unit(unit)) => {
                let begin = at;
                at = at.saturating_add(unit.decoded_len());
                context.check_fits(at)?;
                let permit = memory.acquire(memory_of(&unit));
                context.workers.submit(Job::Part { part: unit, at: begin, permit })?;
            }
        }
    }
    context.workers.drain()?;
    let digest = wire.finish().map_err(|error| context.explain(error))?;
    Ok(Outcome { virtual_size: context.end_of_raw(at)?, digest, resumed: 0 })
}

/// What a part holds and what its decoder keeps, in bytes.
fn memory_of(part: &CompressedUnit) -> usize {
    part.compressed_len().saturating_add(usize::try_from(part.window()).unwrap_or(usize::MAX))
}
