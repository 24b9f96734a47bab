//! Limits how many streams of a source are read at a time: as many as increase the throughput.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Throughput is measured over at least this time.
const PERIOD: Duration = Duration::from_millis(300);

/// Throughput after a step, in per cent of before, that justifies its connections.
const WORTHWHILE_PERCENT: u64 = 115;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStep {
    /// Streams allowed from now on.
    pub allowed: usize,
    /// The search is over: more streams did not help.
    pub settled: bool,
}

/// Doubles the streams as long as that brings more bytes per second; takes a step back once when it does not.
/// `before` is the rate with half as many streams, 0 where nothing was measured yet.
pub fn next_limit(allowed: usize, max: usize, before: u64, now: u64) -> LimitStep {
    let worthwhile = before.saturating_mul(WORTHWHILE_PERCENT) / 100;
    if now < worthwhile {
        return LimitStep { allowed: allowed.div_ceil(2), settled: true };
    }
    let more = allowed.saturating_mul(2).min(max);
    LimitStep { allowed: more, settled: more == allowed }
}

/// Lets as many reading threads continue as [`next_limit`] allows.
pub struct ConcurrencyLimiter {
    max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    allowed: usize,
    settled: bool,
    closed: bool,
    failed: bool,
    rate_before: u64,
    bytes: u64,
    since: Instant,
}

impl ConcurrencyLimiter {
    /// Begins with `start` of at most `max` streams.
    pub fn new(start: usize, max: usize) -> Self {
        let max = max.max(1);
        let allowed = start.clamp(1, max);
        let state = State {
            allowed,
            settled: allowed == max,
            closed: false,
            failed: false,
            rate_before: 0,
            bytes: 0,
            since: Instant::now(),
        };
        Self { max, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until reader number `reader` (from 0) may read; false once the gate is closed.
    pub fn wait_for_permit(&self, reader: usize) -> bool {
        let mut state = self.lock();
        while !state.closed && reader >= state.allowed {
            self.changed.wait(&mut state);
        }
        !state.closed
    }

    /// Counts bytes of a reader. False once a reader or the planner has failed.
    pub fn record_received(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        state.bytes += bytes;
        let elapsed = state.since.elapsed();
        if state.settled || elapsed < PERIOD {
            return !state.failed;
        }
        let rate = u64::try_from(u128::from(state.bytes) * 1000 / elapsed.as_millis().max(1))
            .unwrap_or(u64::MAX);
        let next = next_limit(state.allowed, self.max, state.rate_before, rate);
        (state.allowed, state.settled) = (next.allowed, next.settled);
        (state.rate_before, state.bytes, state.since) = (rate, 0, Instant::now());
        self.changed.notify_all();
        !state.failed
    }

    /// There is nothing more to read. Current reads are completed.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Something failed. Current reads stop.
    pub fn fail(&self) {
        self.lock().failed = true;
        self.close();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_doubles_while_throughput_grows() {
        let table = [
            ("nothing measured yet", 2, 8, 0, 100, LimitStep { allowed: 4, settled: false }),
            ("each stream is throttled", 4, 8, 100, 200, LimitStep { allowed: 8, settled: false }),
            ("a fast link is full", 4, 8, 100, 101, LimitStep { allowed: 2, settled: true }),
            ("slower than before", 8, 16, 100, 50, LimitStep { allowed: 4, settled: true }),
            ("at the limit", 8, 8, 100, 200, LimitStep { allowed: 8, settled: true }),
            ("only one is allowed", 1, 1, 0, 5, LimitStep { allowed: 1, settled: true }),
        ];
        for (case, allowed, max, before, now, expected) in table {
            assert_eq!(next_limit(allowed, max, before, now), expected, "{case}");
        }
    }

    #[test]
    fn the_limit_stays_within_bounds() {
        for (allowed, max) in (1..20).flat_map(|max| (1..=max).map(move |allowed| (allowed, max))) {
            for (before, now) in [(0, 0), (0, 9), (9, 0), (9, 9), (u64::MAX, 1), (1, u64::MAX)] {
                let next = next_limit(allowed, max, before, now).allowed;
                assert!((1..=max).contains(&next), "{allowed} of {max}: {next}");
            }
        }
    }

    #[test]
    fn waiting_ends_when_the_limiter_is_closed() {
        let limiter = ConcurrencyLimiter::new(1, 4);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| limiter.wait_for_permit(3));
            limiter.close();
            assert!(!waiting.join().unwrap());
        });
    }
}
