//! One measured run of one command.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::sys;

/// The cost of a run, which includes making the disk durable.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// From start to end.
    pub wall: Duration,
    /// User and system time of the process and all its descendants. The kernel's own write-back threads, which
    /// buffered writers leave work to, are not in it.
    pub cpu: Duration,
    /// The largest resident set of any one of the processes.
    pub peak_rss_bytes: u64,
    /// What the processes wrote to storage: target, scratch files, all.
    pub written_bytes: u64,
    /// How often a thread gave its core up because it had to wait.
    pub waits: u64,
}

pub enum Outcome {
    Done(Cost),
    /// It was still running after the limit, and was ended.
    TimedOut,
    /// It ended with an error.
    Failed,
}

impl Outcome {
    /// The cost of a run within `limit` that left the right disk, or what went wrong.
    ///
    /// # Errors
    /// In words, for the report.
    pub fn verified(
        self,
        limit: Duration,
        verify: impl FnOnce() -> Result<()>,
    ) -> Result<Cost, String> {
        match self {
            Self::Done(cost) => match verify() {
                Ok(()) => Ok(cost),
                Err(error) => Err(format!("wrong: {error:#}")),
            },
            Self::TimedOut => Err(format!("ended after {} s", limit.as_secs())),
            Self::Failed => Err("failed".into()),
        }
    }
}

/// Runs `command` in a process group of its own, which is killed after `limit`.
///
/// # Errors
/// When it cannot be started, or the operating system does not report its cost.
pub fn measure(command: &mut Command, limit: Duration) -> Result<Outcome> {
    let written_before = written_by_children()?;
    let begin = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let group = Pid::from_child(&child);
    let (ended, watch) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let timed_out = watch.recv_timeout(limit).is_err();
        if timed_out {
            // An error means that it ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
        timed_out
    });
    let usage = sys::wait_with_usage(&child).context("cannot wait for a measured process")?;
    let wall = begin.elapsed();
    // After its time-out the watchdog no longer receives.
    let _ = ended.send(());
    let Ok(timed_out) = watchdog.join() else { bail!("the watchdog panicked") };
    if timed_out {
        return Ok(Outcome::TimedOut);
    }
    if !usage.success {
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done(Cost {
        wall,
        cpu: usage.cpu,
        peak_rss_bytes: usage.peak_rss_bytes,
        written_bytes: written_by_children()?.saturating_sub(written_before),
        waits: usage.waits,
    }))
}

/// Bytes that this process and all children it has waited for caused to be written to storage: Linux adds up both
/// direct writes and pages made dirty. Writes that were truncated away before they happened count all the same.
fn written_by_children() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io").context("cannot read /proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|count| count.parse().ok()).context("/proc/self/io has no write_bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Outcome {
        measure(Command::new("bash").args(["-c", script]), limit).unwrap()
    }

    #[test]
    fn the_cost_of_grandchildren_counts() {
        let script = "bash -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; true";
        let Outcome::Done(cost) = shell(script, Duration::from_secs(60)) else { panic!("no end") };
        assert!(cost.cpu > Duration::ZERO && cost.peak_rss_bytes > 0);
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_all_its_children() {
        let hung = shell("sleep 1000 | sleep 1000", Duration::from_millis(50));
        assert!(matches!(hung, Outcome::TimedOut));
    }

    #[test]
    fn a_command_that_fails_has_no_cost() {
        assert!(matches!(shell("exit 3", Duration::from_secs(60)), Outcome::Failed));
    }
}
