//! Counters of an import, for a progress bar, a metrics page, a log line.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::activity_times::{ActivityTimes, TimeSpent};

/// What the import does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ProgressPhase {
    /// Connecting to the source and probing it.
    Connecting = 0,
    /// Reading, decoding and writing: all at once.
    Transferring = 1,
    /// Making the result durable and giving it its name.
    Finishing = 2,
    /// The disk is complete and durable.
    Done = 3,
}

/// Shared by reference; all methods take `&self` and are cheap enough for every buffer.
#[derive(Debug, Default)]
pub struct Progress {
    stage: AtomicU8,
    /// Wire bytes received.
    read: AtomicU64,
    /// Wire bytes there will be, 0 while unknown.
    read_total: AtomicU64,
    /// Guest bytes done, as data or as zeroes.
    guest: AtomicU64,
    /// Guest bytes there will be (the virtual size), 0 while unknown.
    guest_total: AtomicU64,
    /// Bytes of data written to the target.
    written: AtomicU64,
    /// Guest bytes that are zero and were not written as data.
    zero: AtomicU64,
    warnings: Mutex<Vec<String>>,
    times: ActivityTimes,
}

/// The values of [`Progress`] at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What the import does.
    pub stage: ProgressPhase,
    /// Wire bytes received.
    pub read: u64,
    /// Wire bytes there will be.
    pub read_total: Option<u64>,
    /// Guest bytes done, as data or as zeroes.
    pub guest: u64,
    /// The virtual size.
    pub guest_total: Option<u64>,
    /// Bytes of data written to the target.
    pub written: u64,
    /// Guest bytes that are zero and were not written as data.
    pub zero: u64,
}

impl Snapshot {
    /// Share of the work done, 0 to 1; never less than it was.
    ///
    /// Zeroes cost next to nothing: if an index lists them first, nine tenths of a sparse disk would be done at once. So
    /// work is data written against all data, or wire bytes if their share is larger: for a stream it is unknown which
    /// bytes will be zero.
    pub fn fraction(&self) -> Option<f64> {
        if self.stage == ProgressPhase::Done {
            return Some(1.0);
        }
        let data = |all: u64| all.saturating_sub(self.zero);
        let by_data = self.guest_total.map(|total| share(data(self.guest), data(total)));
        let by_wire = self.read_total.map(|total| share(self.read, total));
        match (by_data, by_wire) {
            (Some(data), Some(wire)) => Some(data.max(wire)),
            (data, wire) => data.or(wire),
        }
    }
}

fn share(done: u64, total: u64) -> f64 {
    if done >= total { 1.0 } else { done as f64 / total as f64 }
}

impl Progress {
    /// With another clock than the system's for [`Self::time_spent`].
    pub fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { times: ActivityTimes::with_clock(clock), ..Self::default() }
    }

    /// Where the time has gone so far.
    pub fn time_spent(&self) -> TimeSpent {
        self.times.spent()
    }

    pub(crate) fn times(&self) -> &ActivityTimes {
        &self.times
    }

    /// Enters a later stage; an earlier one is ignored.
    pub fn enter(&self, stage: ProgressPhase) {
        self.stage.fetch_max(stage as u8, Ordering::Relaxed);
    }

    /// Logs a warning and keeps it for [`Self::take_warnings`]. The import continues.
    pub fn warn(&self, text: String) {
        tracing::warn!("{text}");
        self.warnings.lock().push(text);
    }

    /// The warnings since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// More wire bytes were received.
    pub fn add_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many wire bytes there will be.
    pub fn set_read_total(&self, bytes: u64) {
        self.read_total.store(bytes, Ordering::Relaxed);
    }

    /// So many guest bytes there will be.
    pub fn set_guest_total(&self, bytes: u64) {
        self.guest_total.store(bytes, Ordering::Relaxed);
    }

    /// So many of them need nothing, because the target has them from an earlier import.
    pub fn lower_guest_total(&self, bytes: u64) {
        self.guest_total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// More guest bytes are in place as data.
    pub fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
        self.guest.fetch_add(bytes, Ordering::Relaxed);
    }

    /// More guest bytes are known to be zero, and need no data.
    pub fn add_zero(&self, bytes: u64) {
        self.zero.fetch_add(bytes, Ordering::Relaxed);
        self.guest.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Nothing is in place any more: the image is read a second time, in another order.
    pub fn start_over(&self) {
        for counter in [&self.guest, &self.written, &self.zero] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Guest bytes that an earlier process had already put in place.
    pub fn add_resumed(&self, bytes: u64) {
        self.guest.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All counters at about one moment.
    pub fn snapshot(&self) -> Snapshot {
        let known = |value: u64| (value > 0).then_some(value);
        Snapshot {
            stage: match self.stage.load(Ordering::Relaxed) {
                0 => ProgressPhase::Connecting,
                1 => ProgressPhase::Transferring,
                2 => ProgressPhase::Finishing,
                _ => ProgressPhase::Done,
            },
            read: self.read.load(Ordering::Relaxed),
            read_total: known(self.read_total.load(Ordering::Relaxed)),
            guest: self.guest.load(Ordering::Relaxed),
            guest_total: known(self.guest_total.load(Ordering::Relaxed)),
            written: self.written.load(Ordering::Relaxed),
            zero: self.zero.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(read: u64, guest: u64, zero: u64) -> Snapshot {
        Snapshot {
            stage: ProgressPhase::Transferring,
            read,
            read_total: Some(100),
            guest,
            guest_total: Some(1000),
            written: guest - zero,
            zero,
        }
    }

    #[test]
    fn the_share_of_the_work_is_data_or_wire_whichever_is_further() {
        for (case, snapshot, expected) in [
            ("nothing yet", snapshot(0, 0, 0), 0.0),
            ("an index with mostly zeroes", snapshot(1, 900, 900), 0.01),
            ("half of the data", snapshot(50, 950, 900), 0.5),
            ("an earlier process did half of the data", snapshot(0, 950, 900), 0.5),
            ("a stream that begins with zeroes", snapshot(90, 500, 500), 0.9),
            ("a stream that begins with data", snapshot(50, 500, 0), 0.5),
            ("everything", snapshot(100, 1000, 900), 1.0),
            ("nothing but zeroes", snapshot(0, 1000, 1000), 1.0),
            ("retries read more than there is", snapshot(200, 10, 0), 1.0),
        ] {
            assert_eq!(snapshot.fraction(), Some(expected), "{case}");
        }
        let unknown = Snapshot { read_total: None, guest_total: None, ..snapshot(5, 5, 0) };
        assert_eq!(unknown.fraction(), None);
        let wire_only = Snapshot { guest_total: None, ..snapshot(25, 5, 0) };
        assert_eq!(wire_only.fraction(), Some(0.25));
        assert_eq!(Snapshot { stage: ProgressPhase::Done, ..unknown }.fraction(), Some(1.0));
    }
}
