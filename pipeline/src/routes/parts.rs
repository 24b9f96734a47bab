//! The route of a compressed raw disk whose stream consists of independent parts: they are decoded beside each other,
//! each straight to its place.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use contract::Hasher;
use formats::decompress::Limits;
use formats::sniff::Compression;
use formats::units::{Part, Splitter, Unit};

use super::{Flow, Outcome, stream};
use crate::error::Error;
use crate::jobs::Job;
use crate::wire::Wire;

/// Imports a raw disk inside one compression.
///
/// # Errors
/// Of the source, the decoder, the crew, and [`Error::TooLarge`].
pub fn raw(
    flow: &Flow<'_>,
    compression: Compression,
    hasher: Option<Hasher>,
    memory: usize,
) -> Result<Outcome, Error> {
    let mut wire = Wire::new(flow.take_stream(), &flow.progress, hasher)?;
    let mut splitter = Splitter::new(compression, Limits::default());
    let shares = Shares::new(memory);
    let mut at = 0;
    loop {
        match splitter.next(&mut wire).map_err(|error| flow.explain(error))? {
            None => break,
            Some(Part::Inline(mut reader)) => at = stream::copy(flow, &mut reader, at)?,
            Some(Part::Unit(unit)) => {
                let begin = at;
                at = at.saturating_add(unit.decoded_len());
                flow.check_fits(at)?;
                let share = shares.take(memory_of(&unit));
                flow.crew.submit(Job::Part { part: unit, at: begin, share })?;
            }
        }
    }
    flow.crew.drain()?;
    let digest = wire.finish().map_err(|error| flow.explain(error))?;
    Ok(Outcome { virtual_size: flow.end_of_raw(at)?, digest, resumed: 0 })
}

/// What a part holds and what its decoder keeps, in bytes.
fn memory_of(part: &Unit) -> usize {
    part.compressed_len().saturating_add(usize::try_from(part.window()).unwrap_or(usize::MAX))
}

/// Memory for parts in flight: their stored bytes and what decoding them takes.
pub struct Shares {
    free: Mutex<usize>,
    all: usize,
    returned: Condvar,
}

impl Shares {
    /// So many bytes together.
    fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(all), all, returned: Condvar::new() })
    }

    /// Waits for `bytes`. One part alone may take all there is, however much it needs.
    fn take(self: &Arc<Self>, bytes: usize) -> Share {
        let bytes = bytes.min(self.all);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < bytes {
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Share { of: Arc::clone(self), bytes }
    }
}

/// A part's share, given back on drop.
pub struct Share {
    of: Arc<Shares>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.of.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.of.returned.notify_one();
    }
}
