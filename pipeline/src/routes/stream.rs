//! The route in order: the bytes, decompressed or not, are the disk from its first byte to its last.

use std::io::{self, Read};
use std::sync::Arc;

use contract::Hasher;
use formats::decompress::{Limits, readers};
use formats::sniff::Compression;

use super::{Flow, Outcome, SEGMENT};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::feeder::Feeder;
use crate::jobs::{Job, Placed, Ticket};
use crate::wire::Wire;

/// Imports a raw disk as it comes, from the byte where an earlier process left it.
///
/// # Errors
/// Of the source, of the crew, and [`Error::TooLarge`].
pub fn raw(flow: &Flow<'_>, mut hasher: Option<Hasher>) -> Result<Outcome, Error> {
    let done = (0..).take_while(|number| flow.ledger.has(*number)).count() as u64 * SEGMENT;
    if let Some(hasher) = &mut hasher {
        hash_again(flow, done, hasher)?;
    }
    flow.progress.add_resumed(done);
    let mut wire = {
        let stream = if done == 0 { flow.take_stream() } else { flow.source.open(done, None) };
        Wire::new(stream, &flow.progress, hasher)?
    };
    let mut at = done;
    let mut chunk = bytes::Bytes::new();
    loop {
        let number = at / SEGMENT;
        let keep = at >= flow.held_back;
        let ticket = Ticket::new(flow.ledger.unit(number, keep));
        let mut feeder = Feeder::new(&flow.crew, &flow.pool, &ticket);
        feeder.seek(at)?;
        let end = (number + 1) * SEGMENT;
        let mut ended = false;
        while at < end && !ended {
            if chunk.is_empty() {
                match wire.next_chunk().map_err(|error| flow.explain(error))? {
                    Some(next) => chunk = next,
                    None => ended = true,
                }
            }
            let part = chunk.split_to(chunk.len().min((end - at) as usize));
            flow.check_fits(at + part.len() as u64)?;
            at += part.len() as u64;
            feeder.push(part)?;
        }
        feeder.flush()?;
        if ended {
            break; // a unit that is not whole is never remembered: the ticket is dropped
        }
        ticket.used()?;
    }
    flow.crew.drain()?;
    let digest = wire.finish().map_err(|error| flow.explain(error))?;
    Ok(Outcome { virtual_size: flow.end_of_raw(at)?, digest, resumed: done })
}

/// The bytes that are durable in the target are the first bytes of the wire.
fn hash_again(flow: &Flow<'_>, done: u64, hasher: &mut Hasher) -> Result<(), Error> {
    let mut buffer = flow.pool.take();
    let mut at = 0;
    while at < done {
        let len = buffer.len().min((done - at) as usize);
        flow.outlet
            .sink()
            .read_at(at, &mut buffer[..len])
            .map_err(|error| flow.outlet.failed("read back", error))?;
        hasher.update(&buffer[..len]);
        at += len as u64;
    }
    Ok(())
}

/// Imports a compressed raw disk: decoding fills aligned buffers, the crew does the rest.
///
/// # Errors
/// Of the source, the decoder, the crew, and [`Error::TooLarge`].
pub fn compressed(
    flow: &Flow<'_>,
    compressions: &[Compression],
    hasher: Option<Hasher>,
) -> Result<Outcome, Error> {
    let mut wire = Wire::new(flow.take_stream(), &flow.progress, hasher)?;
    let virtual_size = {
        let mut reader = readers(compressions, Box::new(&mut wire), Limits::default());
        copy(flow, &mut reader, 0)?
    };
    flow.crew.drain()?;
    let digest = wire.finish().map_err(|error| flow.explain(error))?;
    Ok(Outcome { virtual_size: flow.end_of_raw(virtual_size)?, digest, resumed: 0 })
}

/// Hands all that `reader` gives to the crew, for guest addresses from `at` on, and returns where it ended.
///
/// # Errors
/// Of the reader, the crew, and [`Error::TooLarge`].
pub fn copy(flow: &Flow<'_>, reader: &mut dyn Read, mut at: u64) -> Result<u64, Error> {
    loop {
        let mut buffer = flow.pool.take();
        let range = fill(reader, &mut buffer, at).map_err(|error| flow.explain(error))?;
        if range.is_empty() {
            return Ok(at);
        }
        let begin = at;
        at += range.len() as u64;
        flow.check_fits(at)?;
        let parts = vec![Placed { range, at: begin }];
        flow.crew.submit(Job::Scan { buffer: Arc::new(buffer), parts })?;
    }
}

/// Reads until the buffer is full or the end came. The range begins where memory is aligned as guest address `at` is.
///
/// # Errors
/// Of the reader.
pub fn fill(
    reader: &mut dyn Read,
    buffer: &mut Buffer,
    at: u64,
) -> io::Result<std::ops::Range<usize>> {
    let start = (at % crate::sink::ALIGNMENT as u64) as usize;
    let mut end = start;
    while end < buffer.len() {
        match reader.read(&mut buffer[end..]) {
            Ok(0) => break,
            Ok(len) => end += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(start..end)
}
