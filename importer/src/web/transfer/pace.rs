//! The number of connections of a transfer. One is best: it loads the server least, and on a fast link it is fastest.
//! More help if each is slow by itself, because of its distance or of a limit of the server. So more are tried and
//! measured, and closed again if they do not help.

use std::time::Duration;

/// What happened in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Interval {
    /// Bytes that were received.
    pub(super) bytes: u64,
    /// How long it lasted.
    pub(super) elapsed: Duration,
    /// How long the reader had nothing to read.
    pub(super) waited: Duration,
}

/// The number of connections, and what is known about the right one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pace {
    streams: usize,
    streams_max: usize,
    /// Bytes per second before the number was last raised: not yet decided whether that helped.
    rate_before: Option<f64>,
    /// Bytes per second in the interval before.
    last_rate: Option<f64>,
    /// Intervals in which nothing is decided.
    rest: u32,
    /// Intervals to rest after the next raise that does not help.
    rest_after_failure: u32,
}

/// The reader has to be idle for this share of the time before more connections can help.
const IDLE_SHARE: f64 = 0.5;
/// Twice the connections have to bring at least so much more to be kept. A rate that grows by more from one interval to the
/// next is still growing by itself, as in the slow start of a connection: nothing is raised meanwhile.
const GAIN: f64 = 1.2;
/// Bytes per second above which processors and disks are the limit, not connections.
const RATE_ENOUGH: f64 = 400.0 * 1024.0 * 1024.0;
/// A new connection's first interval is not representative: it includes the handshake and the slow start.
const REST_AFTER_RAISE: u32 = 1;
const REST_AFTER_FAILURE: u32 = 8;
const REST_MAX: u32 = 256;
/// As long as each raise may help, intervals are so much shorter: a small image would be complete before the fourth raise.
const HASTE: u32 = 5;
/// But not shorter than so many round trips: a new connection reaches its speed only after about nine, two of them for the
/// handshake and the request, and the others for the slow start to a MiB.
const RESPONSES: u32 = 10;
/// A server whose first byte takes so long is far away.
const FAR: Duration = Duration::from_millis(20);
/// What a transfer from a server far away begins with: each connection waits for a round trip per segment, and
/// one that is added later delays all others until it has its speed.
const STREAMS_FAR: usize = 4;

impl Pace {
    pub(super) fn new(streams_max: usize) -> Self {
        Self {
            streams: 1,
            streams_max: streams_max.max(1),
            rate_before: None,
            last_rate: None,
            rest: 0,
            rest_after_failure: REST_AFTER_FAILURE,
        }
    }

    /// The number of connections there should be.
    pub(super) fn streams(&self) -> usize {
        self.streams
    }

    /// Before the first interval. `response_time`: from the first request to the first byte of its response.
    pub(super) fn start(&mut self, response_time: Duration) {
        if response_time >= FAR {
            self.streams = STREAMS_FAR.min(self.streams_max);
            self.rest = REST_AFTER_RAISE;
        }
    }

    /// The length of the next interval, at most `usual`. `response_time`: from a request to the first byte of its response.
    pub(super) fn interval(&self, usual: Duration, response_time: Duration) -> Duration {
        // It grows with each raise that does not help.
        let has_failed = self.rest_after_failure > REST_AFTER_FAILURE;
        let is_settled = has_failed || self.streams >= self.streams_max;
        if is_settled { usual } else { (RESPONSES * response_time).clamp(usual / HASTE, usual) }
    }

    /// More than one failed: one will have to do.
    pub(super) fn settle_for_one(&mut self) {
        (self.streams, self.streams_max, self.rate_before) = (1, 1, None);
    }

    /// Draws the conclusions from `interval`.
    pub(super) fn after(&mut self, interval: &Interval) {
        let seconds = interval.elapsed.as_secs_f64().max(f64::EPSILON);
        let rate = interval.bytes as f64 / seconds;
        let is_growing = self.last_rate.is_none_or(|last| rate > last * GAIN);
        self.last_rate = Some(rate);
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let idle = interval.waited.as_secs_f64() >= IDLE_SHARE * seconds;
        if idle && is_growing {
            self.rate_before = self.rate_before.filter(|before| rate < before * GAIN);
            return;
        }
        if let Some(before) = self.rate_before.take()
            && idle
            && rate < before * GAIN
        {
            self.streams = (self.streams / 2).max(1);
            self.rest = self.rest_after_failure;
            self.rest_after_failure = (self.rest_after_failure * 4).min(REST_MAX);
            return;
        }
        if idle && rate < RATE_ENOUGH && self.streams < self.streams_max {
            self.streams = (self.streams * 2).min(self.streams_max);
            self.rate_before = Some(rate);
            self.rest = REST_AFTER_RAISE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// The number of connections after each interval, in which `rates` megabytes came to a reader that waited for
    /// `share` of the time.
    fn course(streams_max: usize, share: f64, rates: &[u64]) -> Vec<usize> {
        let mut pace = Pace::new(streams_max);
        let elapsed = Duration::from_secs(1);
        let waited = elapsed.mul_f64(share);
        let intervals = rates.iter().map(|rate| Interval { bytes: rate * MB, elapsed, waited });
        intervals
            .map(|interval| {
                pace.after(&interval);
                pace.streams()
            })
            .collect()
    }

    #[test]
    fn pace_decision_table() {
        type Case<'a> = (&'a str, usize, f64, &'a [u64], &'a [usize]);
        let table: [Case; 11] = [
            (
                "each brings more",
                8,
                0.9,
                &[10, 10, 20, 20, 40, 40, 80, 80],
                &[1, 2, 2, 4, 4, 8, 8, 8],
            ),
            ("no more than before", 8, 0.9, &[10, 10, 10, 10], &[1, 2, 2, 1]),
            (
                "four are no better than two",
                8,
                0.9,
                &[10, 10, 20, 20, 20, 21, 21],
                &[1, 2, 2, 4, 4, 2, 2],
            ),
            ("the first one is still growing", 8, 0.9, &[1, 2, 4, 8, 8], &[1, 1, 1, 1, 2]),
            ("a new one takes its time", 8, 0.9, &[10, 10, 5, 8, 10, 10], &[1, 2, 2, 2, 2, 1]),
            ("the reader is the limit", 8, 0.4, &[10, 10, 10], &[1, 1, 1]),
            ("a fast link", 8, 1.0, &[1000, 1000, 1000], &[1, 1, 1]),
            ("only one allowed", 1, 1.0, &[10, 10], &[1, 1]),
            ("an odd limit", 3, 0.9, &[10, 10, 20, 20, 40, 40], &[1, 2, 2, 3, 3, 3]),
            ("nothing came", 8, 1.0, &[0, 0, 0, 0], &[1, 2, 2, 4]),
            ("a limit of none means one", 0, 1.0, &[10, 10], &[1, 1]),
        ];
        for (case, max, share, rates, expected) in table {
            assert_eq!(course(max, share, rates), expected, "{case}");
        }
    }

    #[test]
    fn a_raise_that_helped_until_the_reader_was_the_limit_is_kept() {
        let mut pace = Pace::new(8);
        let interval = |rate, share| Interval {
            bytes: rate * MB,
            elapsed: Duration::from_secs(1),
            waited: Duration::from_secs_f64(share),
        };
        for (rate, share) in [(10, 0.9), (10, 0.9), (10, 0.9), (11, 0.1)] {
            pace.after(&interval(rate, share));
        }
        assert_eq!(pace.streams(), 2);
    }

    #[test]
    fn servers_far_away_get_several_requests_at_once() {
        let cases = [(8, 0, 1), (8, 19, 1), (8, 20, 4), (8, 300, 4), (3, 50, 3), (1, 50, 1)];
        for (streams_max, milliseconds, expected) in cases {
            let mut pace = Pace::new(streams_max);
            pace.start(Duration::from_millis(milliseconds));
            assert_eq!(pace.streams(), expected, "{milliseconds} ms, at most {streams_max}");
        }
    }

    #[test]
    fn failed_raises_are_repeated_at_growing_intervals() {
        let course = course(2, 0.9, &[10; 300]);
        let raises: Vec<usize> =
            (1..course.len()).filter(|&n| course[n - 1] == 1 && course[n] == 2).collect();
        assert_eq!(raises, [1, 12, 47, 178]);
    }

    #[test]
    fn intervals_are_as_long_as_some_round_trips() {
        let (pace, usual) = (Pace::new(4), Duration::from_millis(500));
        for (response, expected) in [(0, 100), (10, 100), (25, 250), (50, 500), (2000, 500)] {
            let found = pace.interval(usual, Duration::from_millis(response));
            assert_eq!(found, Duration::from_millis(expected), "{response} ms");
        }
    }

    #[test]
    fn intervals_are_short_until_more_connections_do_not_help() {
        let usual = Duration::from_millis(500);
        let interval = |rate| Interval {
            bytes: rate * MB,
            elapsed: Duration::from_secs(1),
            waited: Duration::from_secs(1),
        };
        let mut pace = Pace::new(4);
        for (rate, expected) in [(10, 100), (10, 100), (20, 100), (20, 500), (20, 500), (20, 500)] {
            pace.after(&interval(rate));
            let found = pace.interval(usual, Duration::from_millis(10));
            assert_eq!(found, Duration::from_millis(expected), "{pace:?}");
        }
        assert_eq!(pace.streams(), 2);
    }

    #[test]
    fn pace_that_settled_for_one_connection_keeps_it() {
        let mut pace = Pace::new(8);
        let starved =
            Interval { bytes: MB, elapsed: Duration::from_secs(1), waited: Duration::from_secs(1) };
        pace.after(&starved);
        pace.settle_for_one();
        for _ in 0..300 {
            pace.after(&starved);
        }
        assert_eq!(pace.streams(), 1);
    }
}
