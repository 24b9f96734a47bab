//! Programs run as a user runs them, measured from outside: exit, output, wall and CPU time, peak memory.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sys;

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit code or signal.
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// From start to end.
    pub wall: Duration,
    /// User and system time of it and its children.
    pub cpu: Duration,
    /// The most memory that was resident at a time, in bytes, as `VmHWM` counts it: mapped files included, page cache
    /// not. Looked at every 2 ms, so a peak in the last moment before the exit may be missed.
    pub peak_rss: u64,
}

impl Finished {
    /// Ended with code 0.
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// Returns it if it succeeded.
    ///
    /// # Panics
    /// When it failed, with its output.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.success(), "{}: {}{}", self.status, self.stdout, self.stderr);
        self
    }

    /// Its standard error, if it failed by an exit code and not by a signal.
    ///
    /// # Panics
    /// When it succeeded, panicked (101) or was killed.
    #[track_caller]
    pub fn expect_refusal(self) -> String {
        let code = self.status.code();
        assert!(
            code.is_some_and(|code| code != 0 && code != 101),
            "{}: {}{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self.stderr
    }
}

/// A program that runs. Killed on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    what: String,
    started: Instant,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    peak_rss: u64,
    reaped: bool,
}

impl Running {
    /// Starts it with its output collected.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        sys::respect_signals().expect("cannot change how signals are taken");
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot run {what}: {error}"));
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self { child, what, started: Instant::now(), stdout, stderr, peak_rss: 0, reaped: false }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The memory that it has had resident so far, in bytes.
    pub fn peak_rss(&self) -> u64 {
        peak_rss_of(self.pid())
    }

    /// Kills it at once, as a lost node would, and waits for its end.
    pub fn kill(mut self) -> Finished {
        // It may have ended by itself; the status then shows that.
        let _ = sys::signal(self.pid(), libc::SIGKILL);
        self.wait_inner(Duration::from_secs(60))
    }

    /// Sends it a signal: SIGTERM, SIGINT.
    pub fn signal(&self, signal: i32) {
        sys::signal(self.pid(), signal)
            .unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.what));
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended after `limit`: a hang is a failure, not a hung test.
    pub fn wait(mut self, limit: Duration) -> Finished {
        self.wait_inner(limit)
    }

    fn wait_inner(&mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let ended = loop {
            self.peak_rss = self.peak_rss.max(self.peak_rss());
            if let Some(ended) = sys::try_reap(self.pid()).expect("cannot wait for a child") {
                self.reaped = true;
                break ended;
            }
            assert!(Instant::now() < deadline, "{} still runs after {limit:?}", self.what);
            std::thread::sleep(Duration::from_millis(2));
        };
        let wall = self.started.elapsed();
        let text = |thread: Option<JoinHandle<String>>| {
            thread
                .map(|thread| thread.join().expect("a reader of output panicked"))
                .unwrap_or_default()
        };
        Finished {
            status: ended.status,
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
            wall,
            cpu: ended.user + ended.system,
            peak_rss: self.peak_rss,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            // Ended in between is as good.
            let _ = sys::signal(self.pid(), libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Runs a program to its end.
///
/// # Panics
/// When it cannot be started, or has not ended after `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    Running::start(command).wait(limit)
}

/// As [`Running::peak_rss`], of a process or thread: 0 as long as it executes this program. A process that is about to execute
/// another one still has the memory of this one, and the name of the thread that started it.
fn peak_rss_of(id: u32) -> u64 {
    let program = |of: &str| std::fs::read_link(format!("/proc/{of}/exe")).ok();
    // Before the status: later it executes the same one, or none.
    let executed = program(&id.to_string());
    if executed.is_none() || executed == program("self") {
        return 0;
    }
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A killed program's pipe ends early; the output so far is complete.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::require_tool;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn exit_code_output_and_peak_memory_are_recorded() {
        let Some(sh) = require_tool("sh") else { return };
        let finished =
            run(&mut sh.command(["-c", "echo out; echo err >&2; sleep 0.1; exit 3"]), LIMIT);
        assert_eq!(
            (finished.status.code(), &*finished.stdout, &*finished.stderr),
            (Some(3), "out\n", "err\n")
        );
        assert!((1..64 << 20).contains(&finished.peak_rss), "{}", finished.peak_rss);
        assert_eq!(finished.expect_refusal(), "err\n");
    }

    #[test]
    fn memory_before_a_program_is_executed_does_not_count() {
        // What a process between vfork and exec is: the memory of this one, with the name of a thread.
        let thread = std::thread::Builder::new().name("another name".to_owned());
        let peak = thread.spawn(|| {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            let id = link.file_name().unwrap().to_str().unwrap();
            peak_rss_of(id.parse().unwrap())
        });
        assert_eq!(peak.unwrap().join().unwrap(), 0);
    }

    #[test]
    fn a_killed_program_ends_by_the_signal() {
        let Some(sleep) = require_tool("sleep") else { return };
        let finished = Running::start(&mut sleep.command(["60"])).kill();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&finished.status),
            Some(libc::SIGKILL)
        );
    }
}
