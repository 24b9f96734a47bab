//! Programs run as a user runs them, measured from outside: exit, output, wall and CPU time, peak memory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sys;
use crate::tool::{require_tool, skip};

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
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

    /// Itself, having succeeded.
    ///
    /// # Panics
    /// When it failed, with what it said.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.success(), "{}: {}{}", self.status, self.stdout, self.stderr);
        self
    }

    /// What it complained, having failed by an exit code and not by a signal.
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
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot run {what}: {error}"));
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self { child, what, started: Instant::now(), stdout, stderr, peak_rss: 0, reaped: false }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The memory that it has had resident so far, in bytes.
    pub fn peak_rss(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        // A process between fork and exec still shows this one's memory.
        let own_name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        if status.lines().next().is_some_and(|line| line.ends_with(own_name.trim())) {
            return 0;
        }
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }

    /// Kills it at once, as a lost node would, and waits for its end.
    pub fn kill(mut self) -> Finished {
        // It may have ended by itself; the status then says so.
        let _ = sys::signal(self.pid(), libc::SIGKILL);
        self.wait_inner(Duration::from_secs(60))
    }

    /// Asks it to stop: SIGTERM, SIGINT.
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

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A killed program's pipe ends early; what came is what there is.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A control group with limits like a pod's, page cache included. Removed on drop, after its processes have ended.
#[derive(Debug)]
pub struct Cgroup {
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// A group with at most so much memory in bytes and this share of a CPU in thousandths. `None`, said aloud, where
    /// groups cannot be made: no root, no control group file system.
    pub fn new(memory: u64, milli_cpu: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("testkit-{}-{}", std::process::id(), unique());
        let period = 100_000; // microseconds, the kernel's default
        let quota = (milli_cpu * period / 1000).to_string();
        let mut group = Self { folders: Vec::new() };
        let made = if root.join("cgroup.controllers").exists() {
            group.add(
                root.join(&name),
                &[("memory.max", memory.to_string()), ("cpu.max", format!("{quota} {period}"))],
            )
        } else {
            let limit = ("memory.limit_in_bytes", memory.to_string());
            let cpu = [("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota)];
            group
                .add(root.join("memory").join(&name), &[limit])
                .and_then(|()| group.add(root.join("cpu").join(&name), &cpu))
        };
        if let Err(error) = made {
            skip(&format!("no control group can be made: {error}"));
            return None;
        }
        Some(group)
    }

    /// The same command, run inside.
    pub fn enclose(&self, command: &Command) -> Option<Command> {
        let mut enclosed = require_tool("sh")?.command(["-c"]);
        let joins = self
            .folders
            .iter()
            .map(|folder| format!("echo $$ > {}/cgroup.procs && ", folder.display()));
        enclosed.arg(joins.collect::<String>() + "exec \"$0\" \"$@\"");
        enclosed.arg(command.get_program()).args(command.get_args());
        Some(enclosed)
    }

    /// How often a process inside was killed for lack of memory.
    pub fn out_of_memory_kills(&self) -> u64 {
        let texts = self.folders.iter().flat_map(|folder| {
            ["memory.events", "memory.oom_control"]
                .map(|name| std::fs::read_to_string(folder.join(name)))
        });
        let count = |text: String| {
            text.lines()
                .find_map(|line| line.strip_prefix("oom_kill "))
                .and_then(|count| count.parse().ok())
        };
        texts.flatten().find_map(count).unwrap_or(0)
    }

    fn add(&mut self, folder: PathBuf, settings: &[(&str, String)]) -> std::io::Result<()> {
        std::fs::create_dir(&folder)?;
        self.folders.push(folder.clone());
        settings.iter().try_for_each(|(name, value)| std::fs::write(folder.join(name), value))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Left behind while a process inside still runs: nothing a test can do about it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A number nobody else in this process has.
pub(crate) fn unique() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn exit_output_and_memory_are_seen() {
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
    fn a_killed_program_ends_by_the_signal() {
        let Some(sleep) = require_tool("sleep") else { return };
        let finished = Running::start(&mut sleep.command(["60"])).kill();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&finished.status),
            Some(libc::SIGKILL)
        );
    }

    #[test]
    fn a_group_holds_its_process_to_its_limits() {
        let Some(group) = Cgroup::new(64 << 20, 500) else { return };
        let Some(sh) = require_tool("sh") else { return };
        let command = sh.command(["-c", "cat /proc/self/cgroup"]);
        let finished = run(&mut group.enclose(&command).unwrap(), LIMIT).expect_success();
        assert!(finished.stdout.contains("testkit-"), "{}", finished.stdout);
        assert_eq!(group.out_of_memory_kills(), 0);
    }
}
