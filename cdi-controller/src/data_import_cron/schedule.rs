//! When to look for a newer image: the five fields of cron, in UTC.

use croner::Cron;
use croner::parser::CronParser;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// No schedule is longer; the lists in one could be.
const LENGTH_MAX: usize = 1024;
/// Nobody looks again sooner, whatever a schedule with seconds says.
const INTERVAL_MIN: SignedDuration = SignedDuration::from_secs(10);
/// How far apart those are spread that have the same schedule.
const SPREAD_MAX: SignedDuration = SignedDuration::from_mins(5);
/// And at most this part of the time until the next look.
const SPREAD_PART: i64 = 10;

/// A schedule that can be understood.
#[derive(Clone, Debug)]
pub struct Schedule(Cron);

/// A schedule that cannot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no cron schedule: {because}")]
pub struct BadSchedule {
    text: String,
    because: String,
}

impl Schedule {
    /// Reads minute, hour, day of the month, month and day of the week, with `*`, lists, ranges and steps, also from a
    /// start (`8/12`), with names of months and days, and with `L`, `W` and `#`. A sixth field is the year, and of seven
    /// the first is the second: so the importer that came before read them.
    ///
    /// # Errors
    /// [`BadSchedule`].
    pub fn parse(text: &str) -> Result<Self, BadSchedule> {
        let refuse = |because: String| {
            let text = text.chars().take(80).collect();
            BadSchedule { text, because }
        };
        if text.len() > LENGTH_MAX {
            return Err(refuse(format!("it is longer than {LENGTH_MAX} bytes")));
        }
        let with_year = text.split_whitespace().count() == 6;
        let whole = if with_year { format!("0 {text}") } else { text.to_owned() };
        let parser = CronParser::builder().sloppy_ranges(true).build();
        parser.parse(&whole).map(Self).map_err(|error| refuse(error.to_string()))
    }

    /// The first time after this one. `None`: never.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = TimeZone::UTC.to_datetime(after);
        let next: DateTime = self.0.find_next_occurrence(&after, false).ok()?;
        TimeZone::UTC.to_timestamp(next).ok()
    }

    /// When `name` is to look next: at the first time after this one, and some seconds later that are its own, so that a
    /// hundred with one schedule do not ask one registry in the same second.
    pub fn next_for(&self, name: &str, after: Timestamp) -> Option<Timestamp> {
        let next = self.next(after)?.max(after.checked_add(INTERVAL_MIN).ok()?);
        let interval = self.next(next).map_or(SPREAD_MAX, |later| later.duration_since(next));
        let spread = SPREAD_MAX.as_secs().min(interval.as_secs() / SPREAD_PART);
        let late = i64::try_from(hash(name) % (spread.unsigned_abs() + 1)).ok()?;
        next.checked_add(SignedDuration::from_secs(late)).ok()
    }
}

/// FNV-1a, 64 bits: the same in every process and version.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_schedule_says_when_it_is_time_again() {
        // Schedule, a time, the next ones.
        let table: [(&str, &str, &[&str]); 17] = [
            (
                "0 */12 * * *",
                "2026-11-21T20:00:00Z",
                &["2026-11-22T00:00:00Z", "2026-11-22T12:00:00Z"],
            ),
            (
                "1 */12 * * *",
                "2026-11-21T12:00:59Z",
                &["2026-11-21T12:01:00Z", "2026-11-22T00:01:00Z"],
            ),
            (
                "55 8/12 * * *",
                "2026-11-21T00:00:00Z",
                &["2026-11-21T08:55:00Z", "2026-11-21T20:55:00Z", "2026-11-22T08:55:00Z"],
            ),
            (
                "30 1 * * 1",
                "2026-11-21T20:00:00Z",
                &["2026-11-23T01:30:00Z", "2026-11-30T01:30:00Z"],
            ),
            ("* * * * *", "2026-12-31T23:59:59.5Z", &["2027-01-01T00:00:00Z"]),
            (
                "*/20 5-6 * * *",
                "2026-11-21T05:30:00Z",
                &["2026-11-21T05:40:00Z", "2026-11-21T06:00:00Z"],
            ),
            ("0 0 29 2 *", "2026-11-21T20:00:00Z", &["2028-02-29T00:00:00Z"]),
            (
                "0 0 L * *",
                "2026-02-01T00:00:00Z",
                &["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"],
            ),
            ("0 0 15W * *", "2026-11-01T00:00:00Z", &["2026-11-16T00:00:00Z"]),
            ("0 0 * * 5#2", "2026-11-01T00:00:00Z", &["2026-11-13T00:00:00Z"]),
            (
                "0 0 1 jan,JUL *",
                "2026-11-01T00:00:00Z",
                &["2027-01-01T00:00:00Z", "2027-07-01T00:00:00Z"],
            ),
            ("0 12 * * MON-FRI", "2026-11-21T00:00:00Z", &["2026-11-23T12:00:00Z"]),
            // Either day will do.
            (
                "0 0 1 * 0",
                "2026-11-21T00:00:00Z",
                &["2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z", "2026-12-01T00:00:00Z"],
            ),
            ("0 0 * * 7", "2026-11-21T00:00:00Z", &["2026-11-22T00:00:00Z"]),
            ("@daily", "2026-11-21T00:00:00Z", &["2026-11-22T00:00:00Z"]),
            ("0 0 1 1 * 2030", "2026-11-21T00:00:00Z", &["2030-01-01T00:00:00Z"]),
            ("0 0 30 2 *", "2026-11-21T00:00:00Z", &[]),
        ];
        for (text, from, expected) in table {
            let schedule = Schedule::parse(text).unwrap();
            let mut now = at(from);
            for next in expected {
                now = schedule.next(now).unwrap_or_else(|| panic!("{text}: never"));
                assert_eq!(now, at(next), "{text}");
            }
            assert_eq!(expected.is_empty(), schedule.next(at(from)).is_none(), "{text}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        let long = "1,".repeat(1000);
        for text in [
            "",
            " ",
            "now and then",
            "* * *",
            "61 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-3 * * * *",
            "-1 * * * *",
            "* * * * * * * *",
            "@fortnightly",
            long.as_str(),
        ] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
        let said = Schedule::parse("61 * * * *").unwrap_err().to_string();
        assert!(said.starts_with("\"61 * * * *\" is no cron schedule: "), "{said}");
    }

    #[test]
    fn a_hundred_with_one_schedule_are_spread_and_each_keeps_its_place() {
        let schedule = Schedule::parse("0 */12 * * *").unwrap();
        let now = at("2026-11-21T20:00:00Z");
        let nominal = at("2026-11-22T00:00:00Z");
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..100 {
            let name = format!("images/cron-{number}");
            let next = schedule.next_for(&name, now).unwrap();
            assert_eq!(Some(next), schedule.next_for(&name, now));
            let late = next.duration_since(nominal);
            assert!(late >= SignedDuration::ZERO && late <= SPREAD_MAX, "{late}");
            // The one after is twelve hours later, to the second.
            let after = schedule.next_for(&name, next).unwrap();
            assert_eq!(after.duration_since(next), SignedDuration::from_hours(12));
            seen.insert(next);
        }
        assert!(seen.len() > 70, "{} times", seen.len());
    }

    #[test]
    fn a_schedule_with_seconds_does_not_make_a_storm() {
        let schedule = Schedule::parse("* * * * * * *").unwrap();
        let now = at("2026-11-21T20:00:00Z");
        assert_eq!(schedule.next_for("a", now), Some(now + INTERVAL_MIN));
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_a_schedule_or_none(text in "[-0-9*/,LW#?@a-z ]{0,40}|\\PC{0,20}") {
            let now = at("2026-11-21T20:00:00Z");
            if let Ok(schedule) = Schedule::parse(&text)
                && let Some(next) = schedule.next_for("a", now)
            {
                prop_assert!(next > now);
            }
        }
    }
}
