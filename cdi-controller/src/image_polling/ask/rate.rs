//! How often sources may be polled, whatever the annotations of their crons.
//!
//! An annotation requests a poll at once, and a new cron is polled at once. Both are allowed a few times in a row and then
//! at a limited rate, by cron and by namespace.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Between two polls of a cron, in the long run. Doubles with each failure in a row.
const CRON_INTERVAL: Duration = Duration::from_secs(10);
/// Where the doubling ends.
const CRON_INTERVAL_MAX: Duration = Duration::from_secs(600);
/// Polls of a cron that may follow each other without a pause.
const CRON_BURST: u32 = 5;
/// Between two polls of a namespace, in the long run.
const NAMESPACE_INTERVAL: Duration = Duration::from_secs(1);
/// Polls of a namespace without a pause: all crons of a large namespace may be due together.
const NAMESPACE_BURST: u32 = 500;
/// With so many entries, those without effect are removed.
const ENTRIES_MAX: usize = 1024;

/// When crons and namespaces were polled. By the monotonic clock.
#[derive(Debug, Default)]
pub struct PollRate {
    /// By UID.
    crons: HashMap<String, Instant>,
    namespaces: HashMap<String, Instant>,
}

impl PollRate {
    /// Counts a poll of this cron, which has failed so many times in a row, unless it comes too soon.
    ///
    /// # Errors
    /// How long to wait.
    pub fn try_begin(
        &mut self,
        uid: &str,
        namespace: &str,
        failures: u32,
        now: Instant,
    ) -> Result<(), Duration> {
        let tolerance = CRON_INTERVAL * (CRON_BURST - 1);
        let cron = conforms(self.crons.get(uid), tolerance, now)?;
        let tolerance = NAMESPACE_INTERVAL * (NAMESPACE_BURST - 1);
        let of_namespace = conforms(self.namespaces.get(namespace), tolerance, now)?;
        let interval = CRON_INTERVAL.saturating_mul(2_u32.saturating_pow(failures));
        put(&mut self.crons, uid, cron + interval.min(CRON_INTERVAL_MAX), now);
        put(&mut self.namespaces, namespace, of_namespace + NAMESPACE_INTERVAL, now);
        Ok(())
    }

    /// The cron is deleted. The polls of its namespace still count.
    pub fn forget(&mut self, uid: &str) {
        self.crons.remove(uid);
    }
}

/// From when on the next interval counts (generic cell rate algorithm), or how long to wait.
fn conforms(due: Option<&Instant>, tolerance: Duration, now: Instant) -> Result<Instant, Duration> {
    let due = due.copied().unwrap_or(now).max(now);
    let ahead = due.duration_since(now);
    if ahead <= tolerance { Ok(due) } else { Err(ahead.saturating_sub(tolerance)) }
}

fn put(all: &mut HashMap<String, Instant>, key: &str, due: Instant, now: Instant) {
    if all.len() >= ENTRIES_MAX && !all.contains_key(key) {
        all.retain(|_, due| *due > now);
    }
    all.insert(key.to_owned(), due);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many polls begin in an hour of one attempt each second, and what each attempt costs the clock.
    fn polls_in_an_hour(mut attempt: impl FnMut(u32, Instant) -> bool) -> u32 {
        let start = Instant::now();
        let times = (0..3600).map(|second| (second, start + Duration::from_secs(second.into())));
        times.map(|(second, now)| u32::from(attempt(second, now))).sum()
    }

    #[test]
    fn a_cron_has_a_burst_of_polls_and_then_six_a_minute() {
        let mut rate = PollRate::default();
        let now = Instant::now();
        let begun = (0..100).filter(|_| rate.try_begin("u", "a", 0, now).is_ok()).count();
        assert_eq!(begun, CRON_BURST as usize);
        assert_eq!(rate.try_begin("u", "a", 0, now), Err(CRON_INTERVAL));
        assert_eq!(rate.try_begin("other", "a", 0, now), Ok(()));
        assert_eq!(rate.try_begin("u", "a", 0, now + CRON_INTERVAL), Ok(()));
        let mut rate = PollRate::default();
        let begun = polls_in_an_hour(|_, now| rate.try_begin("u", "a", 0, now).is_ok());
        assert_eq!(begun, 360 + CRON_BURST - 1);
    }

    #[test]
    fn failures_lower_the_rate_of_a_cron() {
        let (mut rate, mut failures) = (PollRate::default(), 0);
        let begun = polls_in_an_hour(|_, now| {
            let begins = rate.try_begin("u", "a", failures, now).is_ok();
            failures += u32::from(begins);
            begins
        });
        assert!(begun <= 14, "{begun}");
        assert_eq!(rate.try_begin("v", "b", u32::MAX, Instant::now()), Ok(()), "no overflow");
    }

    #[test]
    fn new_crons_do_not_exceed_the_rate_of_their_namespace() {
        let mut rate = PollRate::default();
        let now = Instant::now();
        let begun = (0..10_000)
            .filter(|number| {
                let uid = format!("u{number}");
                let begins = rate.try_begin(&uid, "hostile", 0, now).is_ok();
                rate.forget(&uid);
                begins
            })
            .count();
        assert_eq!(begun, NAMESPACE_BURST as usize);
        assert_eq!(rate.try_begin("u", "other", 0, now), Ok(()));
        let later = now + 3 * NAMESPACE_INTERVAL;
        let begun = (0..10).filter(|n| rate.try_begin(&n.to_string(), "hostile", 0, later).is_ok());
        assert_eq!(begun.count(), 3);
    }

    #[test]
    fn nothing_is_kept_for_ever() {
        let (mut rate, mut now) = (PollRate::default(), Instant::now());
        for number in 0..10 * ENTRIES_MAX {
            let name = number.to_string();
            assert_eq!(rate.try_begin(&name, &name, 0, now), Ok(()));
            now += CRON_INTERVAL;
        }
        assert!(rate.crons.len() <= ENTRIES_MAX && rate.namespaces.len() <= ENTRIES_MAX);
    }
}
