//! The long-running programs: started in the namespaces of the cluster, recorded, found again by PID and start time.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use crate::node_id::NodeId;
use crate::shell;
use crate::state::State;

/// A program of the cluster, as it is and was started.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its log and its record have this name.
    pub name: String,
    /// In whose namespaces it runs.
    pub node: NodeId,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// In the PID namespace of this machine, not of the cluster. `None` while it is being started.
    pub pid: Option<i32>,
    /// In clock ticks since boot: another process may have its PID by now.
    pub started: Option<u64>,
}

impl Process {
    /// One that has not been started.
    pub(crate) fn new(name: String, node: NodeId, words: Vec<String>) -> Self {
        Self { name, node, words, pid: None, started: None }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn read(state: &State, name: &str) -> Result<Self> {
        let path = record(state, name);
        let text =
            fs::read(&path).with_context(|| format!("the cluster has no program named {name}"))?;
        Self::parse(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Every record, by name.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn all(state: &State) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(state.path("processes"))? {
            let path = entry?.path();
            // One that was being written when `up` was killed is empty, and its process ends with the namespaces.
            if let Some(process) = Self::parse(&fs::read(path)?) {
                all.push(process);
            }
        }
        all.sort_by(|a: &Self, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Whether it runs; a zombie does not. A killed process whose first thread has ended already is shown as a zombie although
    /// its other threads still hold its files and sockets: it runs.
    pub fn is_running(&self) -> bool {
        let Some((pid, (state, started))) =
            self.pid.and_then(|pid| Some((pid, state_and_start(pid)?)))
        else {
            return false;
        };
        let has_ended = matches!(state, 'Z' | 'X') && threads(pid) <= 1;
        Some(started) == self.started && !has_ended
    }

    /// Sends a signal, if it is running.
    ///
    /// # Errors
    /// When that is not allowed.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = self.pid.filter(|_| self.is_running()).and_then(Pid::from_raw) else {
            return Ok(());
        };
        match kill_process(pid, signal) {
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal {}", self.name)),
        }
    }

    /// Waits until it is gone.
    ///
    /// # Errors
    /// When it remains.
    pub fn wait_until_gone(&self, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        while self.is_running() {
            if begin.elapsed() > patience {
                bail!("{} (process {}) does not end", self.name, self.pid.unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until a signal has stopped all of its threads: a running thread stops when it next enters the kernel.
    pub(crate) fn wait_until_stopped(&self, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        while self.is_running() && !self.has_stopped() {
            if begin.elapsed() > patience {
                bail!("{} (process {}) does not stop", self.name, self.pid.unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn has_stopped(&self) -> bool {
        let threads = format!("/proc/{}/task", self.pid.unwrap_or_default());
        let Ok(threads) = fs::read_dir(threads) else { return false };
        // `tid (name) state …`; a thread may end at any time.
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    pub(crate) fn write(&self, state: &State) -> Result<()> {
        let record = json!({
            "name": self.name, "node": self.node.name(), "words": self.words, "pid": self.pid,
            "started": self.started,
        });
        state.write(&format!("processes/{}.json", self.name), &format!("{record:#}")).map(|_| ())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let record: Value = serde_json::from_slice(text).ok()?;
        let words = record["words"].as_array()?.iter();
        Some(Self {
            name: record["name"].as_str()?.to_owned(),
            node: record["node"].as_str().map_or(Some(NodeId::First), NodeId::named)?,
            words: words.map(|word| word.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            pid: record["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()),
            started: record["started"].as_u64(),
        })
    }

    /// Records its PID and start time.
    pub(crate) fn is_now(&mut self, pid: u32) -> Result<()> {
        let pid = i32::try_from(pid).context("pids are small")?;
        self.pid = Some(pid);
        self.started = state_and_start(pid).map(|(_, started)| started);
        Ok(())
    }
}

fn record(state: &State, name: &str) -> PathBuf {
    state.path("processes").join(format!("{name}.json"))
}

/// How many threads of a process have not been reaped; its first one is, with the process.
fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// State and start time of a process.
fn state_and_start(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold any character.
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.nth(18)?.parse().ok()?))
}

/// Starts a program in the namespaces of a node, its output in the log of its name there.
///
/// # Errors
/// When it cannot be started.
pub fn start(state: &State, node: NodeId, name: &str, words: Vec<String>) -> Result<()> {
    let process = Process::new(node.record(name), node, words);
    process.write(state)?;
    restart(state, &process.name)
}

/// Starts a program again as it was started before.
///
/// # Errors
/// When it cannot be started.
pub fn restart(state: &State, name: &str) -> Result<()> {
    // Only a process with a single thread can enter a mount namespace, and it cannot leave: a process of its own.
    let us = fs::read_to_string(state.path(crate::up::PROGRAM)).context("there is no cluster")?;
    let mut command = Command::new(us);
    command.args(["spawn", name]).env("CDI_CLUSTER_STATE", state.folder());
    let pid = shell::output(&mut command)?;
    let mut process = Process::read(state, name)?;
    process.is_now(pid.trim().parse().context("a pid is a number")?)?;
    process.write(state)
}

/// What `cluster spawn NAME` does: enters the namespaces, starts the recorded program, returns its PID on this machine. The /proc
/// in the namespaces does not show that one, so the caller records it.
///
/// # Errors
/// When any of that fails.
pub fn spawn_from_record(state: &State, name: &str) -> Result<u32> {
    let process = Process::read(state, name)?;
    let log_path = state.path("logs").join(format!("{name}.log"));
    let log = File::options()
        .create(true)
        .append(true)
        .open(&log_path)
        .with_context(|| format!("cannot write {}", log_path.display()))?;
    enter(state, process.node)?;
    let (program, words) = process.words.split_first().context("a record without a program")?;
    let child = Command::new(program)
        .args(words)
        .current_dir(state.folder())
        // Some read files in their home, which must not be ours.
        .env("HOME", state.folder())
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    Ok(child.id())
}

/// The first process in the namespaces of a node.
fn first_pid(state: &State, node: NodeId) -> Result<i32> {
    let first = Process::read(state, &node.record(crate::namespaces::NAME))?;
    let running = first.pid.filter(|_| first.is_running());
    running.with_context(|| format!("the node {} is not running", node.name()))
}

/// Moves this process into the namespaces of a node; programs that it starts belong there.
///
/// # Errors
/// When the node is not running.
pub fn enter(state: &State, node: NodeId) -> Result<()> {
    let pid = first_pid(state, node)?;
    for (name, kind) in [
        ("net", LinkNameSpaceType::Network),
        ("pid", LinkNameSpaceType::ProcessID),
        ("mnt", LinkNameSpaceType::Mount),
    ] {
        let file = File::open(Path::new("/proc").join(pid.to_string()).join("ns").join(name))?;
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(kind))
            .with_context(|| format!("cannot enter the namespace {name}"))?;
    }
    Ok(())
}

/// A command that runs in the namespaces of a node, for programs that end by themselves.
///
/// # Errors
/// When the node is not running.
pub fn inside(state: &State, node: NodeId, program: &str, words: &[&str]) -> Result<Command> {
    let pid = first_pid(state, node)?;
    let mut command = Command::new("nsenter");
    command.args(["--target", &pid.to_string(), "--mount", "--net", "--pid", "--", program]);
    command.args(words);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distinguished_from_another_with_its_pid() {
        let mut us = Process::new("us".into(), NodeId::First, vec![]);
        assert!(!us.is_running());
        us.is_now(std::process::id()).unwrap();
        assert!(us.is_running());
        us.started = us.started.map(|ticks| ticks + 1);
        assert!(!us.is_running());
    }

    #[test]
    fn a_zombie_does_not_run() {
        let mut child = Command::new("true").spawn().unwrap();
        let mut process = Process::new("true".into(), NodeId::First, vec![]);
        process.is_now(child.id()).unwrap();
        process.wait_until_gone(Duration::from_secs(10)).unwrap();
        child.wait().unwrap();
    }
}
