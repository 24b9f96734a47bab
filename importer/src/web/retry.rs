//! When to retry: the only module that decides it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, SystemTime};

use runtime::chain;

use crate::error::{Error, Next};
use crate::secret::RedactedUrl;

/// How often and how soon a request is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts without one new byte before giving up. At least 1.
    pub attempts_max: u32,
    /// Before the second attempt; doubles from there.
    pub delay_first: Duration,
    pub delay_max: Duration,
    /// The longest that a server may make us wait with `Retry-After`.
    pub retry_after_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            delay_first: Duration::from_millis(500),
            delay_max: Duration::from_secs(30),
            retry_after_max: Duration::from_secs(300),
        }
    }
}

impl RetryPolicy {
    /// How long to wait after the `failures`-th failure in a row (1 for the first). `jitter` is between 0 and 1 and
    /// moves the delay between half and the whole of its nominal length.
    fn delay(&self, failures: u32, jitter: f64, retry_after: Option<Duration>) -> Duration {
        if let Some(delay) = retry_after {
            // Late rather than early: spreads clients that were refused at the same time.
            let delay = delay.min(self.retry_after_max);
            return delay + self.delay_first.mul_f64(jitter);
        }
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let nominal = self.delay_first.saturating_mul(doubled).min(self.delay_max);
        nominal.mul_f64(0.5 + jitter / 2.0)
    }
}

/// Counts the attempts since the last new byte.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    /// In a row, of this part of the source.
    failures: u32,
    /// Of them, those since any part of the source had a new byte.
    fruitless: u32,
    dice: RandomState,
}

impl Attempts {
    pub(crate) fn new(policy: &RetryPolicy) -> Self {
        Self { policy: policy.clone(), failures: 0, fruitless: 0, dice: RandomState::new() }
    }

    /// A new byte came.
    pub(crate) fn progress(&mut self) {
        (self.failures, self.fruitless) = (0, 0);
    }

    /// A new byte of another part of the source came: the server responds, but not to every request.
    pub(super) fn other_progress(&mut self) {
        self.fruitless = 0;
    }

    /// Notes a failure: how long to wait before the next attempt, or `None` to stop.
    pub(super) fn after(&mut self, error: &Error) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        self.fruitless += 1;
        let retry_after = match error.next() {
            Next::Fail => return None,
            Next::Retry => None,
            Next::RetryAfter(delay) => Some(delay),
        };
        let attempts_max = self.policy.attempts_max;
        // No longer than without the progress of other parts, after which this one would soon wait for minutes.
        let failures = self.failures.min(attempts_max.saturating_sub(1));
        let again = self.fruitless < attempts_max;
        again.then(|| self.policy.delay(failures, self.jitter(), retry_after))
    }

    /// Counts a failure to get byte `at` of `url`, and waits until the next attempt. The error: why there is none.
    pub(super) async fn wait_after(
        &mut self,
        error: Error,
        url: &RedactedUrl,
        at: u64,
    ) -> Result<(), Error> {
        let delay = self.delay_after(error, url, at)?;
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// As [`Self::wait_after`], on a thread that may block.
    pub(crate) fn sleep_after(
        &mut self,
        error: Error,
        url: &RedactedUrl,
        at: u64,
    ) -> Result<(), Error> {
        let delay = self.delay_after(error, url, at)?;
        std::thread::sleep(delay);
        Ok(())
    }

    fn delay_after(&mut self, error: Error, url: &RedactedUrl, at: u64) -> Result<Duration, Error> {
        let Some(delay) = self.after(&error) else {
            return Err(match error.next() {
                Next::Fail => error,
                Next::Retry | Next::RetryAfter(_) => {
                    let (url, attempts) = (url.clone(), self.fruitless);
                    Error::GaveUp { url, at, attempts, source: Box::new(error) }
                }
            });
        };
        tracing::info!(
            "{}; requesting byte {at} again in {:.1} seconds",
            chain(&error),
            delay.as_secs_f64()
        );
        Ok(delay)
    }

    /// How long a connection may be silent now: longer while nothing works, for a server may be slow to start.
    pub(super) fn patience(&self, stall_timeout: Duration) -> Duration {
        const PATIENCE_MAX: Duration = Duration::from_secs(600); // as upstream CDI
        let doubled = stall_timeout.saturating_mul(2_u32.saturating_pow(self.failures));
        doubled.min(PATIENCE_MAX.max(stall_timeout))
    }

    /// Between 0 and 1. Each `RandomState` has its own keys, which is random enough to spread requests.
    fn jitter(&self) -> f64 {
        let mut hasher = self.dice.build_hasher();
        hasher.write_u32(self.failures);
        (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Reads `Retry-After`: seconds, or a date. A date that has passed means now.
pub(super) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::TransportError;

    fn status(status: u16, retry_after: Option<Duration>) -> Error {
        let url = RedactedUrl::of_text("http://host/");
        Error::Status { url, status, reason: "", retry_after, hint: "" }
    }

    #[test]
    fn delays_double_up_to_their_limit_within_their_jitter() {
        let policy = RetryPolicy::default();
        let ms = Duration::from_millis;
        let table = [
            (1, 0.0, None, ms(250)),
            (1, 1.0, None, ms(500)),
            (2, 1.0, None, ms(1000)),
            (4, 1.0, None, ms(4000)),
            (7, 1.0, None, ms(30_000)),
            (u32::MAX, 1.0, None, ms(30_000)),
            (1, 0.0, Some(ms(7000)), ms(7000)),
            (1, 1.0, Some(ms(7000)), ms(7500)),
            (1, 0.0, Some(Duration::MAX), ms(300_000)),
        ];
        for (failures, jitter, retry_after, expected) in table {
            assert_eq!(
                policy.delay(failures, jitter, retry_after),
                expected,
                "{failures} {retry_after:?}"
            );
        }
    }

    #[test]
    fn attempts_are_counted_from_the_last_new_byte() {
        let mut attempts =
            Attempts::new(&RetryPolicy { attempts_max: 3, ..RetryPolicy::default() });
        let broken = || Error::Transport {
            url: RedactedUrl::of_text("http://host/"),
            source: TransportError::Short { host: "host".into(), missing: 1 },
        };
        assert!(attempts.after(&broken()).is_some());
        assert!(attempts.after(&status(503, None)).is_some());
        attempts.progress();
        assert!(attempts.after(&broken()).is_some());
        assert!(attempts.after(&status(429, None)).is_some());
        assert_eq!(attempts.after(&broken()), None);
    }

    #[test]
    fn progress_of_other_parts_allows_more_attempts_after_the_same_delays() {
        let policy = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
        let longest = policy.delay(2, 1.0, None);
        let mut attempts = Attempts::new(&policy);
        for _ in 0..100 {
            attempts.other_progress();
            assert!(attempts.after(&status(503, None)).unwrap() <= longest);
            assert!(attempts.after(&status(503, None)).unwrap() <= longest);
        }
        assert_eq!(attempts.after(&status(503, None)), None);
    }

    #[test]
    fn a_refusal_ends_at_once() {
        assert_eq!(Attempts::new(&RetryPolicy::default()).after(&status(404, None)), None);
    }

    /// How long it takes to give up, on virtual time, and the error in the end.
    async fn give_up(error: impl Fn() -> Error) -> (Duration, Error) {
        let mut attempts = Attempts::new(&RetryPolicy::default());
        let (start, url) = (tokio::time::Instant::now(), RedactedUrl::of_text("http://host/"));
        loop {
            if let Err(last) = attempts.wait_after(error(), &url, 7).await {
                return (start.elapsed(), last);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retries_end_after_seconds_and_report_their_count() {
        let (elapsed, error) = give_up(|| status(503, None)).await;
        // Four waits of nominally 0.5, 1, 2 and 4 seconds, each at least half as long.
        assert!((3750..=7510).contains(&elapsed.as_millis()), "{elapsed:?}");
        let expected = "gave up on http://host/ at byte 7 after 5 attempts without progress";
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_respected() {
        let minute = Duration::from_secs(60);
        let (elapsed, _) = give_up(|| status(429, Some(minute))).await;
        assert!(
            elapsed >= 4 * minute && elapsed <= 4 * minute + Duration::from_secs(3),
            "{elapsed:?}"
        );
        let (elapsed, _) = give_up(|| status(429, Some(1000 * minute))).await;
        assert!(elapsed < 21 * minute, "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_passed_on_as_it_is_and_at_once() {
        let (elapsed, error) = give_up(|| status(404, None)).await;
        assert!(elapsed.is_zero() && matches!(error, Error::Status { status: 404, .. }), "{error}");
    }

    #[test]
    fn patience_grows_with_failures_and_is_bounded() {
        let mut attempts = Attempts::new(&RetryPolicy::default());
        let minute = Duration::from_secs(60);
        assert_eq!(attempts.patience(minute), minute);
        attempts.failures = 1;
        assert_eq!(attempts.patience(minute), 2 * minute);
        attempts.failures = 40;
        assert_eq!(attempts.patience(minute), 10 * minute);
        assert_eq!(attempts.patience(60 * minute), 60 * minute);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 08:00:00 GMT").unwrap();
        let seconds = |n| Some(Duration::from_secs(n));
        let table = [
            ("0", seconds(0)),
            (" 120 ", seconds(120)),
            ("Sat, 21 Nov 2026 08:01:30 GMT", seconds(90)),
            ("Sat, 21 Nov 2026 07:00:00 GMT", seconds(0)),
            ("99999999999999999999999", seconds(u64::from(u32::MAX))),
            ("", None),
            ("-1", None),
            ("soon", None),
        ];
        for (value, expected) in table {
            assert_eq!(retry_after(value, now), expected, "{value:?}");
        }
    }
}
