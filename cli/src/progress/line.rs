//! Progress as a line of text: pure functions of what was counted.

use std::time::Duration;

use contract::ByteCount;
use pipeline::ProgressPhase;
use pipeline::progress::Snapshot;

/// What a line says.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// What is being made, or nothing.
    pub subject: &'a str,
    /// What the import is busy with, in a word.
    pub stage: &'a str,
    /// What was counted.
    pub snapshot: Snapshot,
    /// Bytes that come in per second.
    pub rate: Option<u64>,
    /// Time left, if nothing changes.
    pub left: Option<Duration>,
}

impl Moment<'_> {
    /// One line of at most `width` columns, with a bar if there is room for it. The most important comes first, and
    /// what does not fit is left out.
    pub fn bar(&self, width: usize) -> String {
        let mut line = join(self.subject, self.stage);
        let percent = percent(&self.snapshot);
        let parts: [String; 3] = [self.bytes(), self.speed(), self.left()];
        if let Some(percent) = &percent {
            line = join(&line, percent);
        }
        if line.len() > width {
            // The share alone is what people look for.
            return percent.unwrap_or(line).chars().take(width).collect();
        }
        let mut tail = String::new();
        for part in &parts {
            let longer = join(&tail, part);
            if join(&line, &longer).len() <= width {
                tail = longer;
            }
        }
        let room = width.saturating_sub(line.len() + tail.len() + 2 * SEPARATOR.len());
        match self.snapshot.fraction() {
            Some(fraction) if room >= BAR_MIN => {
                join(&join(&line, &bar(fraction, room.min(BAR_MAX))), &tail)
            }
            _ => join(&line, &tail),
        }
    }

    /// The same for a log: no bar, and as long as need be.
    pub fn plain(&self) -> String {
        let percent = percent(&self.snapshot).unwrap_or_default();
        let parts = [self.stage, &percent, &self.bytes(), &self.speed(), &self.left()];
        parts.iter().fold(self.subject.to_owned(), |line, part| join(&line, part))
    }

    fn bytes(&self) -> String {
        match self.snapshot.read {
            0 => String::new(),
            bytes => format!("{} read", ByteCount::new(bytes).human()),
        }
    }

    fn is_moving(&self) -> bool {
        self.snapshot.stage == ProgressPhase::Transferring
    }

    fn speed(&self) -> String {
        match self.rate {
            Some(rate) if self.is_moving() => format!("{}/s", ByteCount::new(rate).human()),
            _ => String::new(),
        }
    }

    fn left(&self) -> String {
        match self.left {
            Some(left) if self.is_moving() && left < LEFT_MAX => format!("{} left", clock(left)),
            _ => String::new(),
        }
    }
}

const SEPARATOR: &str = "  ";
const BAR_MIN: usize = 12;
const BAR_MAX: usize = 40;
/// Beyond that, an estimate is a guess.
const LEFT_MAX: Duration = Duration::from_secs(100 * 3600);

fn join(left: &str, right: &str) -> String {
    if left.is_empty() || right.is_empty() {
        return format!("{left}{right}");
    }
    format!("{left}{SEPARATOR}{right}")
}

/// Rounded down: 100 is said only when all is done.
fn percent(snapshot: &Snapshot) -> Option<String> {
    let tenths = (snapshot.fraction()? * 1000.0).floor() as u64;
    Some(format!("{}.{}%", tenths / 10, tenths % 10))
}

/// `[=====>    ]`, `width` columns wide.
fn bar(fraction: f64, width: usize) -> String {
    let inside = width.saturating_sub(2);
    let full = ((inside as f64 * fraction) as usize).min(inside);
    let tip = if full < inside { ">" } else { "" };
    format!("[{}{tip}{}]", "=".repeat(full), " ".repeat(inside - full - tip.len()))
}

/// `0:05`, `12:34`, `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// So much of 700 MiB on the wire.
    fn snapshot(read: u64) -> Snapshot {
        Snapshot {
            stage: ProgressPhase::Transferring,
            read,
            read_total: Some(700 * MIB),
            guest: 0,
            guest_total: None,
            written: 0,
            zero: 0,
        }
    }

    fn moment(snapshot: Snapshot) -> Moment<'static> {
        let left = Some(Duration::from_secs(30));
        Moment { subject: "", stage: "Importing", snapshot, rate: Some(40 * MIB), left }
    }

    #[test]
    fn a_wide_terminal_has_everything_and_a_narrow_one_the_share() {
        let moment = moment(snapshot(294 * MIB));
        for (width, expected) in [
            (
                200,
                "Importing  42.0%  [===============>                      ]  294 MiB read  40 MiB/s  0:30 left",
            ),
            (
                80,
                "Importing  42.0%  [==========>              ]  294 MiB read  40 MiB/s  0:30 left",
            ),
            (60, "Importing  42.0%  294 MiB read  40 MiB/s  0:30 left"),
            (45, "Importing  42.0%  294 MiB read  40 MiB/s"),
            (38, "Importing  42.0%  294 MiB read"),
            (30, "Importing  42.0%  294 MiB read"),
            (29, "Importing  42.0%  40 MiB/s"),
            (16, "Importing  42.0%"),
            (15, "42.0%"),
            (3, "42."),
            (0, ""),
        ] {
            assert_eq!(moment.bar(width), expected, "{width}");
        }
    }

    #[test]
    fn what_is_unknown_is_not_said() {
        let nothing = Snapshot { read_total: None, ..snapshot(0) };
        let connecting = Snapshot { stage: ProgressPhase::Connecting, ..nothing };
        let starting = Moment { stage: "Connecting", rate: None, left: None, ..moment(connecting) };
        assert_eq!(starting.bar(80), "Connecting");
        assert_eq!(starting.plain(), "Connecting");
        let endless = Snapshot { read: MIB, ..nothing };
        let endless = Moment { left: None, ..moment(endless) };
        assert_eq!(endless.bar(80), "Importing  1 MiB read  40 MiB/s");
        let stalled = Moment { rate: Some(0), left: None, ..moment(snapshot(350 * MIB)) };
        assert_eq!(stalled.plain(), "Importing  50.0%  350 MiB read  0 B/s");
        let slow = Moment { left: Some(LEFT_MAX), ..moment(snapshot(350 * MIB)) };
        assert_eq!(slow.plain(), "Importing  50.0%  350 MiB read  40 MiB/s");
    }

    #[test]
    fn all_is_said_to_be_done_only_when_it_is() {
        let almost = moment(snapshot(700 * MIB - 1));
        assert!(almost.plain().contains("99.9%"), "{}", almost.plain());
        let finishing = Snapshot { stage: ProgressPhase::Finishing, ..snapshot(700 * MIB) };
        let finishing = Moment { stage: "Finishing", ..moment(finishing) };
        assert_eq!(finishing.plain(), "Finishing  100.0%  700 MiB read");
    }

    #[test]
    fn a_volume_is_told_in_the_words_of_its_phases() {
        let moment = Moment {
            subject: "vm-images/fedora-root",
            stage: "ImportInProgress",
            ..moment(snapshot(350 * MIB))
        };
        assert_eq!(
            moment.plain(),
            "vm-images/fedora-root  ImportInProgress  50.0%  350 MiB read  40 MiB/s  0:30 left"
        );
        assert_eq!(moment.bar(50), "vm-images/fedora-root  ImportInProgress  50.0%");
        assert_eq!(moment.bar(40), "50.0%");
    }

    #[test]
    fn time_left_has_hours_when_it_needs_them() {
        for (seconds, expected) in [(0, "0:00"), (5, "0:05"), (754, "12:34"), (3723, "1:02:03")] {
            assert_eq!(clock(Duration::from_secs(seconds)), expected);
        }
    }

    proptest! {
        #[test]
        fn a_line_never_wraps(
            width in 0_usize..200,
            guest: u64,
            guest_total in proptest::option::of(any::<u64>()),
            read: u64,
            read_total in proptest::option::of(any::<u64>()),
            rate in proptest::option::of(any::<u64>()),
            seconds in proptest::option::of(any::<u64>()),
            subject in "[a-z/-]{0,60}",
        ) {
            let snapshot = Snapshot {
                stage: ProgressPhase::Transferring, read, read_total, guest, guest_total, written: 0, zero: 0,
            };
            let left = seconds.map(Duration::from_secs);
            let moment = Moment { subject: &subject, stage: "Importing", snapshot, rate, left };
            prop_assert!(moment.bar(width).len() <= width);
            let _ = moment.plain();
        }
    }
}
