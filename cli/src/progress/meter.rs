//! Measures the rate of a counter.

use std::collections::VecDeque;
use std::time::Duration;

/// The rate over the last seconds. The time is an argument.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    samples: VecDeque<(Duration, u64)>,
}

/// Long enough to be steady, short enough to show a change.
const WINDOW: Duration = Duration::from_secs(5);
/// A shorter interval is not meaningful.
const ELAPSED_MIN: Duration = Duration::from_millis(400);

impl Meter {
    /// Records that the counter is `amount` at `now`. Returns the rate per second, once known.
    pub fn observe(&mut self, now: Duration, amount: u64) -> Option<u64> {
        if self.samples.back().is_some_and(|(_, before)| amount < *before) {
            self.samples.clear(); // the counter was reset
        }
        self.samples.push_back((now, amount));
        // The oldest sample is the last one that is at least a window old.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW) {
            self.samples.pop_front();
        }
        let (began, before) = *self.samples.front()?;
        let elapsed = now.checked_sub(began).filter(|elapsed| *elapsed >= ELAPSED_MIN)?;
        Some(((amount - before) as f64 / elapsed.as_secs_f64()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        let mut meter = Meter::default();
        assert_eq!(meter.observe(at(0), 0), None);
        assert_eq!(meter.observe(at(100), 100), None);
        assert_eq!(meter.observe(at(1000), 1000), Some(1000));
        for second in 2..=20 {
            assert_eq!(meter.observe(at(second * 1000), second * 1000), Some(1000));
        }
        assert_eq!(meter.observe(at(25_000), 20_000), Some(0), "stalled");
    }

    #[test]
    fn shrinking_counter_resets_the_rate() {
        let mut meter = Meter::default();
        meter.observe(at(0), 0);
        assert_eq!(meter.observe(at(1000), 5000), Some(5000));
        assert_eq!(meter.observe(at(2000), 100), None);
        assert_eq!(meter.observe(at(3000), 200), Some(100));
    }

    #[test]
    fn number_of_samples_is_bounded() {
        let mut meter = Meter::default();
        for tick in 0..10_000 {
            meter.observe(at(tick * 200), tick);
        }
        assert!(meter.samples.len() <= 27, "{}", meter.samples.len());
    }
}
