//! The route by ranges: a planner says which parts of the source hold guest data, several readers fetch them.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::{Buf, Bytes};
use crossbeam_channel::{Receiver, Sender, bounded};
use formats::index::{Piece, PieceKind};

use super::Flow;
use crate::buffer::Buffer;
use crate::concurrency::Gate;
use crate::error::Error;
use crate::feeder::Feeder;
use crate::jobs::{Job, Placed, Ticket};
use crate::source::ByteStream;

/// Consecutive bytes of the source, fetched in one go.
pub struct Run {
    /// Its number as a unit of the ledger: the same image always gives the same runs.
    pub number: u64,
    /// Ascending in the source. Overlaps of less than [`OVERLAP_MAX`] are allowed: compressed clusters share sectors.
    pub pieces: Vec<Piece>,
}

/// By how much a piece may begin before the one before it ended.
pub const OVERLAP_MAX: u64 = 512;

impl Run {
    fn source_range(&self) -> Range<u64> {
        let start = self.pieces.first().map_or(0, |piece| piece.host);
        let end = self.pieces.iter().map(|piece| piece.host + piece.host_len).max().unwrap_or(0);
        start..end
    }

    fn guest_len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.guest_len).sum()
    }

    fn touches_guest_before(&self, end: u64) -> bool {
        self.pieces.iter().any(|piece| piece.guest < end)
    }
}

/// What a planner hands its runs to.
pub type Emit<'e> = &'e mut dyn FnMut(Run) -> Result<(), Error>;

/// Fetches and hands to the crew every run that `planner` emits, except those done before. Returns once all is in the
/// sink; the guest bytes that were done before are counted in the outcome.
///
/// # Errors
/// The first of any reader, of the crew, or of the planner.
pub fn run(
    flow: &Flow<'_>,
    planner: impl FnOnce(Emit<'_>) -> Result<(), Error>,
) -> Result<u64, Error> {
    /// Readers to begin with: one is fetched while another is decoded.
    const READERS_AT_FIRST: usize = 2;
    let readers = flow.source.facts().streams_max.max(READERS_AT_FIRST);
    let gate = Gate::new(READERS_AT_FIRST, readers);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let fail = |error| {
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        gate.fail();
    };
    let mut resumed = 0;
    std::thread::scope(|scope| {
        let (runs, waiting) = bounded(readers);
        for index in 0..readers {
            let (gate, fail, waiting) = (&gate, &fail, waiting.clone());
            let reader = move || {
                if let Err(error) = read_runs(flow, gate, index, &waiting) {
                    fail(error);
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, reader) {
                fail(Error::Thread(error));
            }
        }
        drop(waiting);
        if let Err(error) = plan(flow, planner, &runs, &mut resumed) {
            fail(error);
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        // A reader that was told to stop may have come first with less to say than the crew.
        Some(Error::Stopped) => flow.crew.drain().and(Err(Error::Stopped)),
        Some(error) => Err(error),
        None => flow.crew.drain().map(|()| resumed),
    }
}

fn plan(
    flow: &Flow<'_>,
    planner: impl FnOnce(Emit<'_>) -> Result<(), Error>,
    runs: &Sender<Run>,
    resumed: &mut u64,
) -> Result<(), Error> {
    planner(&mut |run: Run| {
        if flow.ledger.has(run.number) {
            flow.progress.add_resumed(run.guest_len());
            *resumed += run.guest_len();
            return Ok(());
        }
        runs.send(run).map_err(|_| Error::Stopped)
    })
}

fn read_runs(
    flow: &Flow<'_>,
    gate: &Gate,
    index: usize,
    waiting: &Receiver<Run>,
) -> Result<(), Error> {
    while gate.pass(index) {
        let Ok(run) = waiting.recv() else {
            gate.close();
            break;
        };
        fetch(flow, gate, &run)?;
    }
    Ok(())
}

fn fetch(flow: &Flow<'_>, gate: &Gate, run: &Run) -> Result<(), Error> {
    let keep = !run.touches_guest_before(flow.held_back);
    let ticket = Ticket::new(flow.ledger.unit(run.number, keep));
    let range = run.source_range();
    let mut cursor = Cursor {
        stream: flow.source.open(range.start, Some(range.end)),
        at: range.start,
        chunk: Bytes::new(),
        flow,
        gate,
    };
    let mut feeder = Feeder::new(&flow.crew, &flow.pool, &ticket);
    let mut gather = Gather { flow, ticket: &ticket, buffer: None, filled: 0, clusters: vec![] };
    for piece in &run.pieces {
        match piece.kind {
            PieceKind::Plain => {
                cursor.skip_to(piece.host)?;
                feeder.seek(piece.guest)?;
                let mut left = piece.host_len;
                while left > 0 {
                    let part = cursor.take(left)?;
                    left -= part.len() as u64;
                    feeder.push(part)?;
                }
            }
            PieceKind::Compressed => gather.add(piece, &mut cursor)?,
        }
    }
    feeder.flush()?;
    gather.flush()?;
    ticket.used()
}

/// A position in a stream.
struct Cursor<'a> {
    stream: Box<dyn ByteStream>,
    at: u64,
    chunk: Bytes,
    flow: &'a Flow<'a>,
    gate: &'a Gate,
}

impl Cursor<'_> {
    /// The next bytes, at most `len`.
    fn take(&mut self, len: u64) -> Result<Bytes, Error> {
        if self.chunk.is_empty() {
            let next = self.stream.next().map_err(|error| self.flow.source_failed(error))?;
            self.chunk = next.ok_or_else(|| {
                let text = format!("it ended at byte {}, in the middle of a range", self.at);
                self.flow.source_failed(text.into())
            })?;
            self.flow.progress.add_read(self.chunk.len() as u64);
            if !self.gate.received(self.chunk.len() as u64) {
                return Err(Error::Stopped);
            }
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.chunk.len());
        self.at += len as u64;
        Ok(self.chunk.split_to(len))
    }

    fn skip_to(&mut self, at: u64) -> Result<(), Error> {
        while self.at < at {
            self.take(at - self.at)?;
        }
        Ok(())
    }

    fn fill(&mut self, mut out: &mut [u8]) -> Result<(), Error> {
        while !out.is_empty() {
            let mut part = self.take(out.len() as u64)?;
            let (now, later) = out.split_at_mut(part.len());
            part.copy_to_slice(now);
            out = later;
        }
        Ok(())
    }
}

/// Collects the stored bytes of compressed clusters until there is enough for a job.
struct Gather<'a> {
    flow: &'a Flow<'a>,
    ticket: &'a Ticket,
    buffer: Option<Buffer>,
    filled: usize,
    clusters: Vec<Placed>,
}

impl Gather<'_> {
    fn add(&mut self, piece: &Piece, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        let len = usize::try_from(piece.host_len).unwrap_or(usize::MAX);
        if len > self.flow.pool.buffer_len() {
            return self.add_alone(piece, len, cursor);
        }
        // The sector where the cluster before ended may be the one where this begins: those bytes came already.
        let shared = usize::try_from(cursor.at.saturating_sub(piece.host)).unwrap_or(usize::MAX);
        let shared = shared.min(self.filled).min(len);
        if self.filled - shared + len > self.flow.pool.buffer_len() {
            let tail: Vec<u8> = match &self.buffer {
                Some(buffer) => buffer[self.filled - shared..self.filled].to_vec(),
                None => vec![],
            };
            self.flush()?;
            self.room()[..tail.len()].copy_from_slice(&tail);
            self.filled = tail.len();
        }
        cursor.skip_to(piece.host)?;
        let start = self.filled - shared;
        let end = start + len;
        let filled = self.filled;
        cursor.fill(&mut self.room()[filled..end.max(filled)])?;
        self.filled = end.max(filled);
        self.clusters.push(Placed { range: start..end, at: piece.guest });
        Ok(())
    }

    /// Clusters so large that a buffer does not hold one.
    fn add_alone(
        &mut self,
        piece: &Piece,
        len: usize,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), Error> {
        let shared = usize::try_from(cursor.at.saturating_sub(piece.host)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        if let Some(buffer) = self.buffer.as_ref().filter(|_| shared <= self.filled) {
            bytes[..shared].copy_from_slice(&buffer[self.filled - shared..self.filled]);
        }
        cursor.skip_to(piece.host)?;
        cursor.fill(&mut bytes[shared..])?;
        self.flush()?;
        // What the next cluster may share with this one.
        let tail = len.min(OVERLAP_MAX as usize);
        self.room()[..tail].copy_from_slice(&bytes[len - tail..]);
        self.filled = tail;
        let ticket = Some(self.ticket.another());
        self.flow.crew.submit(Job::Owned { bytes, at: piece.guest, compressed: true, ticket })
    }

    fn room(&mut self) -> &mut Buffer {
        self.buffer.get_or_insert_with(|| self.flow.pool.take())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.filled = 0;
        let clusters = std::mem::take(&mut self.clusters);
        match self.buffer.take() {
            Some(buffer) if !clusters.is_empty() => {
                let (buffer, ticket) = (buffer.into(), Some(self.ticket.another()));
                self.flow.crew.submit(Job::Clusters { buffer, clusters, ticket })
            }
            _ => Ok(()),
        }
    }
}
