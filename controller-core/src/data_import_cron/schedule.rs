//! When to poll for a newer image: schedules with the five fields of cron, in UTC.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use croner::Cron;
use croner::parser::CronParser;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// Longest accepted schedule, in bytes. Lists in a longer one would take time to parse.
const LENGTH_MAX: usize = 512;
/// The next time is searched within five years. A schedule may be well-formed and never match, such as the fifth Monday
/// of a month that is its first day, and the library would try each day until the year 5000.
const HORIZON_DAYS: usize = 5 * 366;
/// Number of parsed schedules in the cache.
const CACHED_MAX: usize = 1024;
/// Shortest time between polls, also for a schedule with seconds.
const INTERVAL_MIN: SignedDuration = SignedDuration::from_secs(10);
/// Longest delay by which crons with the same schedule are spread.
const SPREAD_MAX: SignedDuration = SignedDuration::from_mins(5);
/// The delay is at most this fraction of the time until the next poll.
const SPREAD_PART: i64 = 10;

/// A parsed schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    hours: Vec<u16>,
    minutes: Vec<u16>,
    seconds: Vec<u16>,
}

type Parsed = Result<Arc<Schedule>, BadSchedule>;

/// Recently parsed schedules, by their text: each reconcile of a cron needs its schedule several times.
static CACHED: LazyLock<Mutex<HashMap<String, Parsed>>> = LazyLock::new(Mutex::default);

/// A schedule that cannot be parsed or never matches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no cron schedule: {because}")]
pub struct BadSchedule {
    text: String,
    because: String,
}

impl Schedule {
    /// The same as [`Schedule::parse`], with a cache.
    ///
    /// # Errors
    /// [`BadSchedule`].
    pub fn cached(text: &str) -> Result<Arc<Self>, BadSchedule> {
        if text.len() > LENGTH_MAX {
            return Self::parse(text).map(Arc::new); // rejected at once, and not cached
        }
        let mut cached = CACHED.lock();
        if let Some(known) = cached.get(text) {
            return known.clone();
        }
        let parsed = Self::parse(text).map(Arc::new);
        if cached.len() >= CACHED_MAX {
            cached.clear();
        }
        cached.insert(text.to_owned(), parsed.clone());
        parsed
    }

    /// Parses a schedule for use from `now` on.
    ///
    /// # Errors
    /// [`BadSchedule`]; also if it has no time within five years.
    pub fn parse_for_use(text: &str, now: Timestamp) -> Result<Arc<Self>, BadSchedule> {
        let schedule = Self::cached(text)?;
        match schedule.next(now) {
            Some(_) => Ok(schedule),
            None => Err(BadSchedule {
                text: text.chars().take(80).collect(),
                because: "it has no time within five years".into(),
            }),
        }
    }

    /// Parses minute, hour, day of the month, month and day of the week, with `*`, lists, ranges and steps, also from a
    /// start (`8/12`), with names of months and days, and with `L`, `W` and `#`. A sixth field is the year, and of
    /// seven the first is the second, as in upstream CDI.
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
        let cron = parser.parse(&whole).map_err(|error| refuse(error.to_string()))?;
        let [hours, minutes, seconds] =
            [&cron.pattern.hours, &cron.pattern.minutes, &cron.pattern.seconds]
                .map(|field| field.values());
        Ok(Self { cron, hours, minutes, seconds })
    }

    /// The first time after `after`, within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.next_counted(after).0
    }

    /// The same, and how many days were tried.
    fn next_counted(&self, after: Timestamp) -> (Option<Timestamp>, usize) {
        // Whole seconds: the first one after `after` is the first that may match.
        let begin = after.as_second().checked_add(1).and_then(|at| Timestamp::from_second(at).ok());
        let Some(begin) = begin else { return (None, 0) };
        let begin = TimeZone::UTC.to_datetime(begin);
        let Some(first) = self.first_time(Time::midnight()) else { return (None, 0) };
        let mut date = begin.date();
        for day in 0..HORIZON_DAYS {
            let time = if day == 0 { self.first_time(begin.time()) } else { Some(first) };
            if let Some(time) = time
                && self.has_date(date, first)
            {
                return (TimeZone::UTC.to_timestamp(date.to_datetime(time)).ok(), day + 1);
            }
            match date.tomorrow() {
                Ok(tomorrow) => date = tomorrow,
                Err(_) => return (None, day + 1),
            }
        }
        (None, HORIZON_DAYS)
    }

    /// Whether it matches on this day, at one of its times of day.
    fn has_date(&self, date: Date, time: Time) -> bool {
        let at: DateTime = date.to_datetime(time);
        self.cron.is_time_matching(&at).unwrap_or(false)
    }

    /// The first time of a day that is not before `from`.
    fn first_time(&self, from: Time) -> Option<Time> {
        let whole = |number: i8| u16::try_from(number).unwrap_or_default();
        let from = (whole(from.hour()), whole(from.minute()), whole(from.second()));
        let hours = self.hours.iter().filter(|hour| **hour >= from.0);
        let minutes = |hour: u16| {
            self.minutes.iter().filter(move |minute| (hour, **minute) >= (from.0, from.1))
        };
        for &hour in hours {
            for &minute in minutes(hour) {
                let second = self.seconds.iter().find(|second| (hour, minute, **second) >= from);
                if let Some(&second) = second {
                    let [hour, minute, second] =
                        [hour, minute, second].map(|part| i8::try_from(part).unwrap_or(i8::MAX));
                    return Time::new(hour, minute, second, 0).ok();
                }
            }
        }
        None
    }

    /// When `name` has to poll next: the first time after `after`, plus a delay that is constant for the name, so that
    /// crons with the same schedule do not poll a registry in the same second.
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
    fn schedule_next_times_table() {
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
            // Either of the two day fields has to match.
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
    fn invalid_schedules_are_rejected() {
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
        let message = Schedule::parse("61 * * * *").unwrap_err().to_string();
        assert!(message.starts_with("\"61 * * * *\" is no cron schedule: "), "{message}");
    }

    #[test]
    fn crons_with_the_same_schedule_are_spread_by_constant_offsets() {
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
    fn schedule_with_seconds_polls_at_the_minimum_interval() {
        let schedule = Schedule::parse("* * * * * * *").unwrap();
        let now = at("2026-11-21T20:00:00Z");
        assert_eq!(schedule.next_for("a", now), Some(now + INTERVAL_MIN));
    }

    /// These schedules are well-formed, and the library would try a million days or hours: a denial of service.
    #[test]
    fn search_for_a_schedule_that_never_matches_ends_after_five_years() {
        let now = at("2026-11-21T20:00:00Z");
        for text in ["0 0 1 * +MON#5", "0 0 30 2 *", "* * * * * 2040", "0 0 1 1 * 2026"] {
            let schedule = Schedule::parse(text).unwrap();
            let (next, days) = schedule.next_counted(now);
            assert_eq!((next, days), (None, HORIZON_DAYS), "{text}");
            assert_eq!(schedule.next_for("a", now), None, "{text}");
            let message = Schedule::parse_for_use(text, now).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("{text:?} is no cron schedule: it has no time within five years")
            );
        }
        for text in ["0 0 29 2 *", "0 0 1 1 * 2031", "* * * * *"] {
            assert!(Schedule::parse_for_use(text, now).is_ok(), "{text}");
        }
        for text in [", * * * *", "* , * * *"] {
            if let Ok(schedule) = Schedule::parse(text) {
                assert_eq!(schedule.next_counted(now), (None, 0), "{text}: no time of day");
            }
        }
    }

    #[test]
    fn schedule_text_is_parsed_once() {
        let text = "7 7 7 7 *";
        let first = Schedule::cached(text).unwrap();
        assert!(Arc::ptr_eq(&first, &Schedule::cached(text).unwrap()));
        assert!(Schedule::cached("61 * * * *").is_err());
        let long = format!("{} * * * *", "1,".repeat(LENGTH_MAX));
        assert!(Schedule::cached(&long).is_err());
        for number in 0..2 * CACHED_MAX {
            let _ = Schedule::cached(&format!("{number} x"));
        }
        assert!(CACHED.lock().len() <= CACHED_MAX);
    }

    /// A schedule of five fields, each of a usual form.
    fn usual() -> impl Strategy<Value = String> {
        let field = |least: u32, most: u32| {
            prop_oneof![
                3 => Just("*".to_owned()),
                2 => (least..=most).prop_map(|at| at.to_string()),
                1 => (1..=9_u32).prop_map(|step| format!("*/{step}")),
                1 => (least..=most, least..=most)
                    .prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
                1 => (least..=most, least..=most).prop_map(|(a, b)| format!("{a},{b}")),
            ]
        };
        (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6))
            .prop_map(|(a, b, c, d, e)| format!("{a} {b} {c} {d} {e}"))
    }

    proptest! {
        /// Compares with the library's own search, for schedules where that ends soon.
        #[test]
        fn the_next_time_is_the_one_that_the_library_finds(
            text in usual(),
            seconds in 1_700_000_000_i64..2_000_000_000,
        ) {
            let schedule = Schedule::parse(&text).unwrap();
            let after = Timestamp::from_second(seconds).unwrap();
            let begin = TimeZone::UTC.to_datetime(after);
            let expected = schedule.cron.find_next_occurrence(&begin, false).unwrap();
            let expected = TimeZone::UTC.to_timestamp(expected).unwrap();
            prop_assert_eq!(schedule.next(after), Some(expected), "{} {}", text, after);
        }

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
