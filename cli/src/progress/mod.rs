//! Progress on stderr: a bar on a terminal, a line now and then in a log.

mod line;
mod meter;

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pipeline::progress::Snapshot;
use pipeline::{Progress, ProgressPhase};

use line::ProgressState;
use meter::Meter;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One line, overwritten.
    Bar,
    /// A line per tenth of the work, or every ten seconds.
    Lines,
    Silent,
}

impl Style {
    /// A bar if stderr is a terminal, unless `no_bar`.
    pub fn for_stderr(silent: bool, no_bar: bool) -> Self {
        match (silent, stderr().is_terminal() && !no_bar) {
            (true, _) => Self::Silent,
            (false, true) => Self::Bar,
            (false, false) => Self::Lines,
        }
    }
}

/// The displayed name of a phase.
pub type PhaseName = fn(ProgressPhase) -> &'static str;

pub fn plain_phase_name(stage: ProgressPhase) -> &'static str {
    match stage {
        ProgressPhase::Connecting => "Connecting",
        ProgressPhase::Transferring => "Importing",
        ProgressPhase::Finishing => "Finishing",
        ProgressPhase::Done => "Done",
    }
}

/// As the phase of a DataVolume.
pub fn data_volume_phase_name(stage: ProgressPhase) -> &'static str {
    match stage {
        ProgressPhase::Connecting => "ImportScheduled",
        ProgressPhase::Transferring | ProgressPhase::Finishing => "ImportInProgress",
        ProgressPhase::Done => "Succeeded",
    }
}

const BAR_EVERY: Duration = Duration::from_millis(200);
const LINES_EVERY: Duration = Duration::from_millis(500);

/// Runs `work` and shows its progress. The bar is cleared when this returns.
pub fn watch<T>(
    progress: &Arc<Progress>,
    style: Style,
    subject: &str,
    phase_name: PhaseName,
    work: impl FnOnce() -> T,
) -> T {
    let every = match style {
        Style::Bar => BAR_EVERY,
        Style::Lines => LINES_EVERY,
        Style::Silent => return work(),
    };
    let (finished, ticks) = channel::<()>();
    let began = Instant::now();
    let mut view = View::new(style, subject, phase_name);
    // Before the work, so that a log has its first line even if the work is fast.
    show(&view.render(Duration::ZERO, progress.snapshot(), columns()));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The sender is dropped when the work ends or panics.
            while ticks.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                show(&warnings(progress, style));
                show(&view.render(began.elapsed(), progress.snapshot(), columns()));
            }
            show(view.clear());
            show(&warnings(progress, style));
        });
        let _finished = finished;
        work()
    })
}

/// One line per new warning; each replaces the progress bar.
fn warnings(progress: &Progress, style: Style) -> String {
    let begin = if style == Style::Bar { CLEAR } else { "" };
    progress.take_warnings().iter().map(|text| format!("{begin}warning: {text}\n")).collect()
}

// A closed terminal is no reason to stop.
fn show(text: &str) {
    let mut stderr = stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Columns of the terminal on stderr; it may be resized at any time.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}

/// Decides what to write, and when. Pure: the clock is an argument.
struct View<'a> {
    style: Style,
    subject: &'a str,
    phase_name: PhaseName,
    /// Received bytes.
    received: Meter,
    /// Completed parts of [`WORK`].
    worked: Meter,
    /// The last printed line: time, phase, tenth.
    printed: Option<(Duration, ProgressPhase, u64)>,
}

/// Back to the start of the line, and clear it to its end (ECMA-48 EL).
const CLEAR: &str = "\r\x1b[K";
/// Resolution of the completed fraction.
const WORK: u64 = 1 << 40;
const QUIET_MAX: Duration = Duration::from_secs(10);

impl<'a> View<'a> {
    fn new(style: Style, subject: &'a str, phase_name: PhaseName) -> Self {
        let (received, worked) = (Meter::default(), Meter::default());
        Self { style, subject, phase_name, received, worked, printed: None }
    }

    /// What to write at `now`; mostly nothing for [`Style::Lines`].
    fn render(&mut self, now: Duration, snapshot: Snapshot, columns: usize) -> String {
        let rate = self.received.observe(now, snapshot.read);
        let left = snapshot.fraction().and_then(|fraction| self.left(now, fraction));
        let stage = (self.phase_name)(snapshot.stage);
        let due = self.is_due(now, &snapshot);
        let moment = ProgressState { subject: self.subject, stage, snapshot, rate, left };
        match self.style {
            // A cursor behind the last column would wrap on some terminals.
            Style::Bar => format!("{CLEAR}{}", moment.bar(columns.saturating_sub(1))),
            Style::Lines if due => format!("{}\n", moment.plain()),
            Style::Lines | Style::Silent => String::new(),
        }
    }

    /// Remaining time at the rate of the last seconds.
    fn left(&mut self, now: Duration, fraction: f64) -> Option<Duration> {
        let done = (fraction * WORK as f64) as u64;
        let pace = self.worked.observe(now, done)?;
        Some(Duration::from_secs(WORK.saturating_sub(done).div_ceil(pace.max(1))))
    }

    fn is_due(&mut self, now: Duration, snapshot: &Snapshot) -> bool {
        let tenth = (snapshot.fraction().unwrap_or_default() * 10.0) as u64;
        let due = self.printed.is_none_or(|(at, stage, last)| {
            (self.phase_name)(stage) != (self.phase_name)(snapshot.stage)
                || tenth > last
                || now.saturating_sub(at) >= QUIET_MAX
        });
        // The caller prints the end.
        let due = due && snapshot.stage != ProgressPhase::Done;
        if due {
            self.printed = Some((now, snapshot.stage, tenth));
        }
        due
    }

    fn clear(&self) -> &'static str {
        if self.style == Style::Bar { CLEAR } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(stage: ProgressPhase, read: u64) -> Snapshot {
        Snapshot {
            stage,
            read,
            read_total: Some(1000),
            guest: 0,
            guest_total: None,
            written: 0,
            zero: 0,
        }
    }

    fn view(style: Style) -> View<'static> {
        View::new(style, "", plain_phase_name)
    }

    #[test]
    fn log_has_a_line_per_phase_per_tenth_and_per_ten_seconds() {
        let mut view = view(Style::Lines);
        let mut printed = Vec::new();
        for (second, stage, read) in [
            (0, ProgressPhase::Connecting, 0),
            (1, ProgressPhase::Connecting, 0),
            (2, ProgressPhase::Transferring, 10),
            (3, ProgressPhase::Transferring, 90),
            (4, ProgressPhase::Transferring, 100),
            (5, ProgressPhase::Transferring, 450),
            (14, ProgressPhase::Transferring, 451),
            (15, ProgressPhase::Transferring, 452),
            (16, ProgressPhase::Finishing, 1000),
            (17, ProgressPhase::Done, 1000),
        ] {
            let text = view.render(Duration::from_secs(second), snapshot(stage, read), 80);
            printed.extend(text.lines().map(|line| format!("{second}: {line}")));
        }
        let expected = [
            "0: Connecting  0.0%",
            "2: Importing  1.0%  10 B read  5 B/s  3:19 left",
            "4: Importing  10.0%  100 B read  25 B/s  0:37 left",
            "5: Importing  45.0%  450 B read  90 B/s  0:07 left",
            "15: Importing  45.2%  452 B read  0 B/s  45:41 left",
            "16: Finishing  100.0%  1000 B read",
        ];
        assert_eq!(printed, expected);
    }

    #[test]
    fn bar_is_overwritten_and_cleared() {
        let mut view = view(Style::Bar);
        let text = view.render(Duration::ZERO, snapshot(ProgressPhase::Transferring, 500), 20);
        assert_eq!(text, "\r\x1b[KImporting  50.0%");
        assert_eq!(view.clear(), "\r\x1b[K");
        let text = view.render(Duration::ZERO, snapshot(ProgressPhase::Transferring, 500), 60);
        assert_eq!(text, "\r\x1b[KImporting  50.0%  [=============>             ]  500 B read");
    }

    #[test]
    fn finishing_data_volume_is_in_progress() {
        assert_eq!(data_volume_phase_name(ProgressPhase::Finishing), "ImportInProgress");
        let mut view = View::new(Style::Lines, "a/b", data_volume_phase_name);
        let first = view.render(Duration::ZERO, snapshot(ProgressPhase::Transferring, 1000), 80);
        assert!(first.starts_with("a/b  ImportInProgress  100.0%"), "{first}");
        let second =
            view.render(Duration::from_secs(1), snapshot(ProgressPhase::Finishing, 1000), 80);
        assert_eq!(second, "", "no change");
    }

    #[test]
    fn result_of_the_work_is_returned() {
        let progress = Arc::new(Progress::default());
        assert_eq!(watch(&progress, Style::Silent, "", plain_phase_name, || 42), 42);
        assert_eq!(watch(&progress, Style::Lines, "", plain_phase_name, || 43), 43);
    }
}
