//! Where the time of an import goes. The clock is read when a buffer, a chunk or a job changes hands, never for each block.
//!
//! ```text
//! source ── network wait ──► wire ── digest wait ──► decompression ──► jobs ── decoding, write wait ──► target ── sync
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

/// What a thread does or waits for: the fields of [`TimeSpent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    NetworkWait,
    DigestWait,
    Decompression,
    Decoding,
    WriteWait,
    Sync,
}

const COUNT: usize = Activity::Sync as usize + 1;

/// Where the time of an import went, in seconds of all threads together: the sum may exceed the wall time. What is none of
/// these (copying, finding zeroes between source and jobs, waiting for a free buffer) is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeSpent {
    /// Waiting for the source's next bytes, whether it is a server or a file.
    pub network_wait: f64,
    /// Waiting for the thread that calculates the digest.
    pub digest_wait: f64,
    /// Undoing the compression around an image or raw disk.
    pub decompression: f64,
    /// Undoing the compression of clusters inside an image.
    pub decoding: f64,
    /// Writing and zeroing, with the search for zeroes in what is written.
    pub write_wait: f64,
    /// Making data durable, at checkpoints and in the end.
    pub sync: f64,
}

impl TimeSpent {
    /// Each activity's name and seconds.
    pub fn by_activity(&self) -> [(&'static str, f64); COUNT] {
        [
            ("network_wait", self.network_wait),
            ("digest_wait", self.digest_wait),
            ("decompression", self.decompression),
            ("decoding", self.decoding),
            ("write_wait", self.write_wait),
            ("sync", self.sync),
        ]
    }
}

impl fmt::Display for TimeSpent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (activity, seconds) in self.by_activity() {
            write!(f, "{} {seconds:.2} s, ", activity.replace('_', " "))?;
        }
        f.write_str("all threads together")
    }
}

/// Time since any fixed point.
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// The sums of an import, added to by all of its threads.
pub struct ActivityTimes {
    clock: Clock,
    /// Nanoseconds, by [`Activity`].
    sums: [AtomicU64; COUNT],
}

impl Default for ActivityTimes {
    fn default() -> Self {
        let start = Instant::now();
        Self::with_clock(move || start.elapsed())
    }
}

impl ActivityTimes {
    /// With another clock than the system's.
    pub fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { clock: Box::new(clock), sums: Default::default() }
    }

    /// Counts all of `act` as `activity`.
    pub fn measure<T>(&self, activity: Activity, act: impl FnOnce() -> T) -> T {
        let mut lap = self.lap();
        let result = act();
        lap.charge(activity);
        result
    }

    /// Counts `act`, which reads the wire on this thread, as decompression, without what it waits for.
    pub fn measure_decompression<T>(&self, act: impl FnOnce() -> T) -> T {
        let waited = || self.sum(Activity::NetworkWait) + self.sum(Activity::DigestWait);
        let (start, waited_before) = ((self.clock)(), waited());
        let result = act();
        let elapsed = (self.clock)().saturating_sub(start);
        let waited = waited().saturating_sub(waited_before);
        self.add(Activity::Decompression, elapsed.saturating_sub(waited));
        result
    }

    /// Starts a measurement that alternates between activities.
    pub fn lap(&self) -> Lap<'_> {
        Lap { times: self, since: (self.clock)() }
    }

    /// The sums so far.
    pub fn spent(&self) -> TimeSpent {
        let seconds = |activity| self.sum(activity).as_secs_f64();
        TimeSpent {
            network_wait: seconds(Activity::NetworkWait),
            digest_wait: seconds(Activity::DigestWait),
            decompression: seconds(Activity::Decompression),
            decoding: seconds(Activity::Decoding),
            write_wait: seconds(Activity::WriteWait),
            sync: seconds(Activity::Sync),
        }
    }

    fn add(&self, activity: Activity, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sums[activity as usize].fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn sum(&self, activity: Activity) -> Duration {
        Duration::from_nanos(self.sums[activity as usize].load(Ordering::Relaxed))
    }
}

impl fmt::Debug for ActivityTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spent().fmt(f)
    }
}

/// One thread's time since the last charge.
pub struct Lap<'a> {
    times: &'a ActivityTimes,
    since: Duration,
}

impl Lap<'_> {
    /// The time since the last call was `activity`.
    pub fn charge(&mut self, activity: Activity) {
        let now = (self.times.clock)();
        self.times.add(activity, now.saturating_sub(self.since));
        self.since = now;
    }

    /// The time since the last call is not counted.
    pub fn restart(&mut self) {
        self.since = (self.times.clock)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A clock that moves only when a test moves it.
    fn stopped() -> (ActivityTimes, impl Fn(u64)) {
        let now = Arc::new(AtomicU64::new(5000));
        let clock = Arc::clone(&now);
        let times =
            ActivityTimes::with_clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
        (times, move |milliseconds| {
            now.fetch_add(milliseconds, Ordering::Relaxed);
        })
    }

    #[test]
    fn each_activity_has_its_own_sum() {
        let (times, pass) = stopped();
        pass(100);
        times.measure(Activity::NetworkWait, || pass(250));
        pass(100);
        times.measure(Activity::Sync, || pass(500));
        times.measure(Activity::NetworkWait, || pass(250));
        let expected = TimeSpent { network_wait: 0.5, sync: 0.5, ..TimeSpent::default() };
        assert_eq!(times.spent(), expected);
    }

    #[test]
    fn a_lap_is_divided_without_a_gap() {
        let (times, pass) = stopped();
        let mut lap = times.lap();
        for _ in 0..2 {
            pass(250);
            lap.charge(Activity::Decoding);
            pass(500);
            lap.charge(Activity::WriteWait);
        }
        let expected = TimeSpent { decoding: 0.5, write_wait: 1.0, ..TimeSpent::default() };
        assert_eq!(times.spent(), expected);
    }

    #[test]
    fn decompression_is_what_remains_of_reading_after_the_waits_inside() {
        let (times, pass) = stopped();
        times.measure(Activity::NetworkWait, || pass(1000)); // before
        times.measure_decompression(|| {
            pass(125);
            times.measure(Activity::NetworkWait, || pass(2000));
            times.measure(Activity::DigestWait, || pass(500));
            pass(125);
        });
        let expected = TimeSpent {
            network_wait: 3.0,
            digest_wait: 0.5,
            decompression: 0.25,
            ..TimeSpent::default()
        };
        assert_eq!(times.spent(), expected);
    }

    #[test]
    fn the_text_names_every_activity() {
        let spent = TimeSpent { network_wait: 4.714, sync: 0.196, ..TimeSpent::default() };
        assert_eq!(
            spent.to_string(),
            "network wait 4.71 s, digest wait 0.00 s, decompression 0.00 s, decoding 0.00 s, write wait 0.00 s, \
             sync 0.20 s, all threads together"
        );
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing() {
        let readings = AtomicU64::new(10);
        let clock = move || Duration::from_secs(readings.fetch_sub(1, Ordering::Relaxed));
        let times = ActivityTimes::with_clock(clock);
        times.measure(Activity::Sync, || ());
        times.measure_decompression(|| ());
        assert_eq!(times.spent(), TimeSpent::default());
    }
}
