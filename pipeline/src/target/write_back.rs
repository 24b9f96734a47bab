//! Limits dirty pages in the page cache.
//!
//! By default the kernel collects gigabytes of dirty pages: they are charged to the pod, and the `fsync` at the end
//! takes as long as the import did. Here pages are written steadily, and dropped when they are durable.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;

use parking_lot::Mutex;
use rustix::fs::Advice;
use rustix::io::Errno;

use crate::io_counters::count_system_call;
use crate::sink::ALIGNMENT;
use crate::sys;

/// Bytes of dirty pages after which writing them is started.
const BATCH: u64 = 4 << 20;

/// Batches that may be in flight to storage. Adding another one waits for the oldest.
const BATCHES_UNDER_WAY: usize = 4;

/// Watches the pages of one file that were touched through the page cache.
#[derive(Default)]
pub struct WriteBack {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The smallest range that covers all pages touched since the last batch.
    touched: Range<u64>,
    /// Bytes of the pages in it that were touched.
    bytes: u64,
    under_way: VecDeque<Range<u64>>,
}

impl WriteBack {
    /// `range` of `file` was just read or written through the page cache. Usually returns at once, and
    /// sometimes waits for storage.
    ///
    /// # Errors
    /// When something written earlier could not be stored. It is lost, and no later call reports that.
    pub fn touched(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        let Some((batch, oldest)) = self.add(range) else { return Ok(()) };
        count_system_call();
        supported(sys::start_write_back(file, &batch))?;
        if let Some(oldest) = oldest {
            count_system_call();
            supported(sys::finish_write_back(file, &oldest))?;
            // Only advice, and only memory.
            let len = std::num::NonZero::new(oldest.end - oldest.start);
            count_system_call();
            let _ = rustix::fs::fadvise(file, oldest.start, len, Advice::DontNeed);
        }
        Ok(())
    }

    /// A full batch, and the one to wait for.
    fn add(&self, range: Range<u64>) -> Option<(Range<u64>, Option<Range<u64>>)> {
        // Whole pages, because only whole pages are ever dropped.
        const PAGE: u64 = ALIGNMENT as u64;
        let range = range.start / PAGE * PAGE..range.end.div_ceil(PAGE) * PAGE;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.bytes += range.end - range.start;
        state.touched = if state.touched.is_empty() {
            range
        } else {
            state.touched.start.min(range.start)..state.touched.end.max(range.end)
        };
        if state.bytes < BATCH {
            return None;
        }
        state.bytes = 0;
        let batch = std::mem::take(&mut state.touched);
        state.under_way.push_back(batch.clone());
        let full = state.under_way.len() > BATCHES_UNDER_WAY;
        Some((batch, full.then(|| state.under_way.pop_front()).flatten()))
    }
}

/// Some file systems and sandboxes lack the call. Then the kernel's defaults apply.
fn supported(result: io::Result<()>) -> io::Result<()> {
    const LACKING: [Errno; 4] = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::SPIPE];
    match result {
        Err(error)
            if LACKING
                .iter()
                .any(|lacking| error.raw_os_error() == Some(lacking.raw_os_error())) =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_the_hull_of_the_pages_that_filled_it() {
        let write_back = WriteBack::default();
        assert_eq!(write_back.add(10_000_000..10_000_001), None);
        assert_eq!(write_back.add(5000..5001), None);
        let (batch, oldest) = write_back.add(8192..8192 + BATCH).unwrap();
        assert_eq!((batch, oldest), (4096..10_002_432, None));
    }

    #[test]
    fn batches_in_flight_are_limited() {
        let write_back = WriteBack::default();
        let settled: Vec<_> =
            (0..7).map(|n| write_back.add(n * BATCH..(n + 1) * BATCH).unwrap().1).collect();
        assert_eq!(settled[..BATCHES_UNDER_WAY], vec![None; BATCHES_UNDER_WAY]);
        assert_eq!(settled[4..], [0, 1, 2].map(|n| Some(n * BATCH..(n + 1) * BATCH)));
    }
}
