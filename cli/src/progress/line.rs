//! Progress as a line of text. Pure.

use std::time::Duration;

use contract::ByteCount;
use pipeline::ProgressPhase;
use pipeline::progress::Snapshot;

/// The content of a progress line.
#[derive(Clone, Copy, Debug)]
pub struct ProgressState<'a> {
    /// The disk, or empty.
    pub subject: &'a str,
    /// The phase's name.
    pub stage: &'a str,
    pub snapshot: Snapshot,
    /// Received bytes per second.
    pub rate: Option<u64>,
    /// Estimated remaining time.
    pub left: Option<Duration>,
}

impl ProgressState<'_> {
    /// One line of at most `width` columns, with a bar if it fits. The most important parts come first, and
    /// those that do not fit are omitted.
    pub fn bar(&self, width: usize) -> String {
        let mut line = join(self.subject, self.stage);
        let percent = percent(&self.snapshot);
        let parts: [String; 3] = [self.bytes(), self.speed(), self.left()];
        if let Some(percent) = &percent {
            line = join(&line, percent);
        }
        if line.len() > width {
            // The percentage matters most.
            return percent.unwrap_or(line).chars().take(width).collect();
        }
        let mut tail = String::new();
        for part in &parts {
            let longer = join(&tail, part);
            if join(&line, &longer).len() <= width {
                tail = longer;
            }
        }
        let bar_width = width.saturating_sub(line.len() + tail.len() + 2 * SEPARATOR.len());
        match self.snapshot.fraction() {
            Some(fraction) if bar_width >= BAR_MIN => {
                join(&join(&line, &bar(fraction, bar_width.min(BAR_MAX))), &tail)
            }
            _ => join(&line, &tail),
        }
    }

    /// For a log: no bar, any length.
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
/// Longer estimates are not shown.
const LEFT_MAX: Duration = Duration::from_secs(100 * 3600);

fn join(left: &str, right: &str) -> String {
    if left.is_empty() || right.is_empty() {
        return format!("{left}{right}");
    }
    format!("{left}{SEPARATOR}{right}")
}

/// Rounded down: 100 means complete.
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

    /// `read` of 700 MiB.
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

    fn state(snapshot: Snapshot) -> ProgressState<'static> {
        let left = Some(Duration::from_secs(30));
        ProgressState { subject: "", stage: "Importing", snapshot, rate: Some(40 * MIB), left }
    }

    #[test]
    fn narrow_terminal_shows_the_percentage_first() {
        let state = state(snapshot(294 * MIB));
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
            assert_eq!(state.bar(width), expected, "{width}");
        }
    }

    #[test]
    fn unknown_values_are_omitted() {
        let nothing = Snapshot { read_total: None, ..snapshot(0) };
        let connecting = Snapshot { stage: ProgressPhase::Connecting, ..nothing };
        let starting =
            ProgressState { stage: "Connecting", rate: None, left: None, ..state(connecting) };
        assert_eq!(starting.bar(80), "Connecting");
        assert_eq!(starting.plain(), "Connecting");
        let endless = Snapshot { read: MIB, ..nothing };
        let endless = ProgressState { left: None, ..state(endless) };
        assert_eq!(endless.bar(80), "Importing  1 MiB read  40 MiB/s");
        let stalled = ProgressState { rate: Some(0), left: None, ..state(snapshot(350 * MIB)) };
        assert_eq!(stalled.plain(), "Importing  50.0%  350 MiB read  0 B/s");
        let slow = ProgressState { left: Some(LEFT_MAX), ..state(snapshot(350 * MIB)) };
        assert_eq!(slow.plain(), "Importing  50.0%  350 MiB read  40 MiB/s");
    }

    #[test]
    fn hundred_percent_means_complete() {
        let almost = state(snapshot(700 * MIB - 1));
        assert!(almost.plain().contains("99.9%"), "{}", almost.plain());
        let finishing = Snapshot { stage: ProgressPhase::Finishing, ..snapshot(700 * MIB) };
        let finishing = ProgressState { stage: "Finishing", ..state(finishing) };
        assert_eq!(finishing.plain(), "Finishing  100.0%  700 MiB read");
    }

    #[test]
    fn data_volume_phases_are_used_for_apply() {
        let state = ProgressState {
            subject: "vm-images/fedora-root",
            stage: "ImportInProgress",
            ..state(snapshot(350 * MIB))
        };
        assert_eq!(
            state.plain(),
            "vm-images/fedora-root  ImportInProgress  50.0%  350 MiB read  40 MiB/s  0:30 left"
        );
        assert_eq!(state.bar(50), "vm-images/fedora-root  ImportInProgress  50.0%");
        assert_eq!(state.bar(40), "50.0%");
    }

    #[test]
    fn remaining_time_has_hours_if_needed() {
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
            let state = ProgressState { subject: &subject, stage: "Importing", snapshot, rate, left };
            prop_assert!(state.bar(width).len() <= width);
            let _ = state.plain();
        }
    }
}
