//! The route in order: the bytes, decompressed or not, are the disk from its first byte to its last.

use std::sync::Arc;

use contract::Hasher;
use formats::sniff::Compression;

use super::decompressed::Decompressed;
use super::{Outcome, SEGMENT, TransferContext};
use crate::error::Error;
use crate::feeder::Feeder;
use crate::jobs::{GuestPart, Job, SegmentGuard, Write};
use crate::pieces::Piece;
use crate::wire::Wire;

/// Imports a raw disk as it comes, from the byte where an earlier process left it.
///
/// # Errors
/// Of the source, of the worker pool, and [`Error::TooLarge`].
pub fn import_raw(
    context: &TransferContext<'_>,
    mut hasher: Option<Hasher>,
) -> Result<Outcome, Error> {
    let done = (0..).take_while(|number| context.completion.has(*number)).count() as u64 * SEGMENT;
    if let Some(hasher) = &mut hasher {
        hash_again(context, done, hasher)?;
    }
    context.progress.add_resumed(done);
    let mut wire = {
        let stream =
            if done == 0 { context.open_stream() } else { context.source.open(done, None) };
        Wire::new(stream, &context.progress, hasher)?
    };
    let mut at = done;
    let mut chunk = bytes::Bytes::new();
    loop {
        let number = at / SEGMENT;
        let keep = at >= context.held_back;
        let guard = SegmentGuard::new(context.completion.segment(number, keep));
        let mut feeder = Feeder::new(&context.workers, &context.pool, &guard);
        feeder.seek(at)?;
        let end = (number + 1) * SEGMENT;
        let mut ended = false;
        while at < end && !ended {
            if chunk.is_empty() {
                match wire.next_chunk().map_err(|error| context.explain(error))? {
                    Some(next) => chunk = next,
                    None => ended = true,
                }
            }
            let part = chunk.split_to(chunk.len().min((end - at) as usize));
            context.check_fits(at + part.len() as u64)?;
            at += part.len() as u64;
            feeder.push(part)?;
        }
        feeder.flush()?;
        if ended {
            break; // a unit that is not whole is never remembered: the guard is dropped
        }
        guard.complete()?;
    }
    context.workers.drain()?;
    let digest = wire.finish().map_err(|error| context.explain(error))?;
    Ok(Outcome { virtual_size: context.end_of_raw(at)?, digest, resumed: done })
}

/// The bytes that are durable in the target are the first bytes of the wire.
fn hash_again(context: &TransferContext<'_>, done: u64, hasher: &mut Hasher) -> Result<(), Error> {
    let mut buffer = context.pool.take();
    let mut at = 0;
    while at < done {
        let len = buffer.len().min((done - at) as usize);
        context
            .sink
            .inner()
            .read_at(at, &mut buffer[..len])
            .map_err(|error| context.sink.failed("read back", error))?;
        hasher.update(&buffer[..len]);
        at += len as u64;
    }
    Ok(())
}

/// Imports a compressed raw disk: decoding fills aligned buffers, the worker pool writes them.
///
/// # Errors
/// Of the source, the decoder, the worker pool, and [`Error::TooLarge`].
pub fn import_compressed(
    context: &TransferContext<'_>,
    compressions: &[Compression],
    hasher: Option<Hasher>,
) -> Result<Outcome, Error> {
    let mut wire = Wire::new(context.open_stream(), &context.progress, hasher)?;
    let virtual_size = {
        let mut decompressed = Decompressed::new(context, compressions, &mut wire)?;
        copy_decompressed(context, &mut decompressed, 0)?
    };
    context.workers.drain()?;
    let digest = wire.finish().map_err(|error| context.explain(error))?;
    Ok(Outcome { virtual_size: context.end_of_raw(virtual_size)?, digest, resumed: 0 })
}

/// Submits all content to the worker pool, for guest addresses from `at` on, and returns where it ended.
///
/// # Errors
/// Of the source, the decoder, the worker pool, and [`Error::TooLarge`].
pub fn copy_decompressed(
    context: &TransferContext<'_>,
    decompressed: &mut Decompressed<'_>,
    mut at: u64,
) -> Result<u64, Error> {
    while let Some(piece) = decompressed.next_piece().map_err(|error| context.explain(error))? {
        let begin = at;
        at = at.saturating_add(piece.len());
        context.check_fits(at)?;
        let job = match piece {
            Piece::Data(buffer, range) => {
                let parts = vec![GuestPart { range, at: begin }];
                Job::Scan { buffer: Arc::new(buffer), parts }
            }
            Piece::Zeroes(len) => {
                let writes = vec![Write::Zero { at: begin, len }];
                Job::Writes { buffer: None, writes, guard: None }
            }
        };
        context.workers.submit(job)?;
    }
    Ok(at)
}
