//! The route by ranges: a planner emits runs of the source that hold guest data, several readers fetch them.

use bytes::{Buf, Bytes};
use crossbeam_channel::{Receiver, Sender, bounded};
use formats::index::PieceKind;
use parking_lot::Mutex;

use super::TransferContext;
use super::cluster_batch::ClusterBatch;
use super::run_planner::{Emit, Run};
use crate::concurrency_limiter::ConcurrencyLimiter;
use crate::error::Error;
use crate::feeder::Feeder;
use crate::io_counters::count_copied;
use crate::jobs::SegmentGuard;
use crate::source::ByteStream;

impl Run {
    fn source_range(&self) -> std::ops::Range<u64> {
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

/// Fetches every run that `plan` emits and submits its data, except runs that an earlier process completed. Returns once
/// all jobs are done, with the guest bytes of those completed before.
///
/// # Errors
/// The first of any reader, of the workers, or of the planner.
pub fn transfer_runs(
    context: &TransferContext<'_>,
    plan: impl FnOnce(Emit<'_>) -> Result<(), Error>,
) -> Result<u64, Error> {
    /// Readers at first: one run is fetched while another is decoded.
    const READERS_AT_FIRST: usize = 2;
    let readers = context.source.facts().streams_max.max(READERS_AT_FIRST);
    let limiter = ConcurrencyLimiter::new(READERS_AT_FIRST, readers);
    let failure = Mutex::new(None);
    let fail = |error| {
        record_failure(&mut failure.lock(), error);
        limiter.fail();
    };
    let mut resumed = 0;
    std::thread::scope(|scope| {
        let (runs, waiting) = bounded(readers);
        for index in 0..readers {
            let (limiter, fail, waiting) = (&limiter, &fail, waiting.clone());
            let reader = move || {
                if let Err(error) = read_runs(context, limiter, index, &waiting) {
                    fail(error);
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, reader) {
                fail(Error::Thread(error));
            }
        }
        drop(waiting);
        if let Err(error) = emit_runs(context, plan, &runs, &mut resumed) {
            fail(error);
        }
    });
    match failure.into_inner() {
        // No reader has received the cause, so the worker pool still has it.
        Some(Error::Stopped) => context.workers.drain().and(Err(Error::Stopped)),
        Some(error) => Err(error),
        None => context.workers.drain().map(|()| resumed),
    }
}

/// Keeps the first failure, but a cause replaces [`Error::Stopped`]: the worker pool hands the cause to one reader and
/// `Stopped` to the others, and one of those may come first.
fn record_failure(failure: &mut Option<Error>, error: Error) {
    if matches!(failure, None | Some(Error::Stopped)) {
        *failure = Some(error);
    }
}

fn emit_runs(
    context: &TransferContext<'_>,
    plan: impl FnOnce(Emit<'_>) -> Result<(), Error>,
    runs: &Sender<Run>,
    resumed: &mut u64,
) -> Result<(), Error> {
    plan(&mut |run: Run| {
        if context.completion.has(run.number) {
            context.progress.add_resumed(run.guest_len());
            *resumed += run.guest_len();
            return Ok(());
        }
        runs.send(run).map_err(|_| Error::Stopped)
    })
}

fn read_runs(
    context: &TransferContext<'_>,
    limiter: &ConcurrencyLimiter,
    index: usize,
    waiting: &Receiver<Run>,
) -> Result<(), Error> {
    while limiter.wait_for_permit(index) {
        let Ok(run) = waiting.recv() else {
            limiter.close();
            break;
        };
        fetch_run(context, limiter, &run)?;
    }
    Ok(())
}

fn fetch_run(
    context: &TransferContext<'_>,
    limiter: &ConcurrencyLimiter,
    run: &Run,
) -> Result<(), Error> {
    let keep = !run.touches_guest_before(context.held_back);
    let guard = SegmentGuard::new(context.completion.segment(run.number, keep));
    let range = run.source_range();
    let mut cursor = Cursor {
        stream: context.source.open(range.start, Some(range.end)),
        at: range.start,
        chunk: Bytes::new(),
        context,
        limiter,
    };
    let mut feeder = Feeder::new(&context.workers, &context.pool, &guard);
    let mut clusters = ClusterBatch::new(context, &guard);
    for piece in &run.pieces {
        match piece.kind {
            PieceKind::Plain => {
                cursor.skip_to(piece.host)?;
                feeder.seek(piece.guest)?;
                let mut left = piece.host_len;
                while left > 0 {
                    let part = cursor.next_chunk(left)?;
                    left -= part.len() as u64;
                    feeder.push(part)?;
                }
            }
            PieceKind::Compressed => clusters.add(piece, &mut cursor)?,
        }
    }
    feeder.flush()?;
    clusters.flush()?;
    guard.complete()
}

/// A position in the source while a run is read.
pub struct Cursor<'a> {
    stream: Box<dyn ByteStream>,
    at: u64,
    chunk: Bytes,
    context: &'a TransferContext<'a>,
    limiter: &'a ConcurrencyLimiter,
}

impl Cursor<'_> {
    /// Offset in the source of the next byte.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next bytes, at least one and at most `len`.
    pub fn next_chunk(&mut self, len: u64) -> Result<Bytes, Error> {
        if self.chunk.is_empty() {
            let next = self.stream.next().map_err(|error| self.context.source_failed(error))?;
            self.chunk = next.ok_or_else(|| {
                let text = format!("it ended at byte {}, in the middle of a range", self.at);
                self.context.source_failed(text.into())
            })?;
            self.context.progress.add_read(self.chunk.len() as u64);
            if !self.limiter.record_received(self.chunk.len() as u64) {
                return Err(Error::Stopped);
            }
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.chunk.len());
        self.at += len as u64;
        Ok(self.chunk.split_to(len))
    }

    /// Discards what lies before `at`. Never goes back.
    pub fn skip_to(&mut self, at: u64) -> Result<(), Error> {
        while self.at < at {
            self.next_chunk(at - self.at)?;
        }
        Ok(())
    }

    /// Fills `out`.
    pub fn read_exact(&mut self, mut out: &mut [u8]) -> Result<(), Error> {
        while !out.is_empty() {
            let mut part = self.next_chunk(out.len() as u64)?;
            let (now, later) = out.split_at_mut(part.len());
            count_copied(now.len());
            part.copy_to_slice(now);
            out = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_of_a_failure_is_reported_in_any_order() {
        type Make = fn() -> Error;
        let (cause, stopped, later): (Make, Make, Make) = (
            || Error::Thread(std::io::ErrorKind::StorageFull.into()),
            || Error::Stopped,
            || Error::Panicked,
        );
        let table: [(&str, &[Make], Make); 6] = [
            ("only the cause", &[cause], cause),
            ("the cause first", &[cause, stopped], cause),
            ("a stopped reader first", &[stopped, cause], cause),
            ("between two stopped readers", &[stopped, cause, stopped], cause),
            ("two causes", &[cause, later], cause),
            ("no cause", &[stopped, stopped], stopped),
        ];
        for (case, errors, expected) in table {
            let mut failure = None;
            errors.iter().for_each(|make| record_failure(&mut failure, make()));
            assert_eq!(failure.unwrap().to_string(), expected().to_string(), "{case}");
        }
    }
}
