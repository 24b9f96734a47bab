//! Tracks which segments of an import are complete, and makes them durable by checkpoints.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::counting_sink::CountingSink;
use crate::error::Error;
use crate::journal::Journal;

/// The complete segments. A checkpoint makes them durable in the sink first, and only then writes them to the journal.
pub struct CompletionTracker {
    checkpoints: Option<Checkpoints>,
    done: Mutex<Ranges>,
}

struct Checkpoints {
    journal: Journal,
    sink: CountingSink,
    every: Duration,
    last: Mutex<Instant>,
}

impl CompletionTracker {
    /// Tracks nothing durable: the import cannot be resumed.
    pub fn untracked() -> Self {
        Self { checkpoints: None, done: Mutex::default() }
    }

    /// Starts with the segments `done` and writes `journal` at intervals of `every`.
    pub fn new(
        journal: Journal,
        sink: CountingSink,
        every: Duration,
        done: Vec<Range<u64>>,
    ) -> Self {
        let last = Mutex::new(Instant::now());
        let done = Mutex::new(Ranges(done.into_iter().map(|r| (r.start, r.end)).collect()));
        Self { checkpoints: Some(Checkpoints { journal, sink, every, last }), done }
    }

    /// Whether an earlier process, or this one, completed the segment.
    pub fn has(&self, unit: u64) -> bool {
        self.lock().has(unit)
    }

    /// The segment with this number. `keep` false: a restarted process repeats it in any case.
    pub fn segment(self: &Arc<Self>, number: u64, keep: bool) -> Arc<Segment> {
        Arc::new(Segment {
            completion: Arc::clone(self),
            number: keep.then_some(number),
            open: AtomicUsize::new(0),
        })
    }

    fn finished(&self, unit: u64) -> Result<(), Error> {
        self.lock().add(unit);
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        // A segment that completes during a checkpoint is left to the thread that writes the checkpoint.
        while let Some(mut last) = checkpoints.last.try_lock() {
            if last.elapsed() < checkpoints.every {
                break;
            }
            let done = self.lock().list();
            checkpoints.sink.sync()?;
            checkpoints.journal.store(&done).map_err(|source| Error::Target {
                what: "write the journal",
                path: checkpoints.journal.path().to_owned(),
                source,
            })?;
            *last = Instant::now();
            drop(last);
            if self.lock().list() == done {
                break;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.done.lock()
    }
}

/// A part of an import that is complete when each of its jobs is.
pub struct Segment {
    completion: Arc<CompletionTracker>,
    /// `None`: never recorded.
    number: Option<u64>,
    open: AtomicUsize,
}

impl Segment {
    /// Counts another job. Only while one is open, or as the first.
    pub fn add_job(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// One of its jobs has been written to the sink.
    ///
    /// # Errors
    /// When this was the last one, a checkpoint was due, and failed.
    pub fn finish_job(&self) -> Result<(), Error> {
        let was = self.open.fetch_sub(1, Ordering::AcqRel);
        match (was, self.number) {
            (1, Some(number)) => self.completion.finished(number),
            _ => Ok(()),
        }
    }
}

/// A set of numbers as ranges that neither touch nor overlap: start → end.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn has(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    fn add(&mut self, number: u64) {
        if self.has(number) {
            return;
        }
        let end = self.0.remove(&(number + 1)).unwrap_or(number + 1);
        match self.0.range_mut(..=number).next_back() {
            Some((_, before)) if *before == number => *before = end,
            _ => {
                self.0.insert(number, end);
            }
        }
    }

    fn list(&self) -> Vec<Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set(numbers in proptest::collection::vec(0_u64..40, 0..60)) {
            let mut ranges = Ranges::default();
            numbers.iter().for_each(|number| ranges.add(*number));
            for number in 0..45 {
                prop_assert_eq!(ranges.has(number), numbers.contains(&number));
            }
            let list = ranges.list();
            prop_assert!(list.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", list);
        }
    }
}
