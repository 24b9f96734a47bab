//! Breaks a running cluster on purpose, and repairs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::node_id::NodeId;
use crate::pod::processes_of_pod;
use crate::processes::{self, Process, inside};
use crate::shell;
use crate::state::State;

const PATIENCE: Duration = Duration::from_secs(30);

/// Limits of memory that are tried, in bytes.
const LIMIT_MIN: u64 = 1 << 20;
const LIMIT_MAX: u64 = 256 << 20;
const LIMIT_STEP: usize = 128 << 10;

/// What can be done to a running cluster. A fault that lasts is repaired when its guard is dropped.
#[derive(Clone, Debug)]
pub struct Chaos {
    state: State,
}

impl Chaos {
    /// For the cluster of this state directory.
    pub fn new(state: State) -> Self {
        Self { state }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Kills a program of the cluster as a crash would; it stays dead.
    ///
    /// # Errors
    /// When there is none of that name, or it does not die.
    pub fn kill(&self, name: &str) -> Result<()> {
        let process = Process::read(&self.state, name)?;
        process.signal(Signal::KILL)?;
        process.wait_until_gone(PATIENCE)
    }

    /// Kills a program and starts it again, as its supervisor would.
    ///
    /// # Errors
    /// As [`Chaos::kill`], and when it does not start.
    pub fn restart(&self, name: &str) -> Result<()> {
        self.kill(name)?;
        processes::restart(&self.state, name)
    }

    /// Stops a program without ending it: connections to it stay open, and requests get no response.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn pause(&self, name: &str) -> Result<Paused> {
        let process = Process::read(&self.state, name)?;
        process.signal(Signal::STOP)?;
        let paused = Paused(process);
        paused.0.wait_until_stopped(PATIENCE)?;
        Ok(paused)
    }

    /// Takes a pod's network device down: no packet reaches it or leaves it.
    ///
    /// # Errors
    /// When no pod has that address.
    pub fn cut(&self, address: &str) -> Result<Cut> {
        for node in self.state.nodes() {
            if let Some(port) = self.port(node, address)? {
                let cut = Cut { state: self.state.clone(), node, port };
                cut.set("down")?;
                return Ok(cut);
            }
        }
        bail!("no pod has the address {address}")
    }

    /// The node's end of the virtual cable into the pod with this address, if the pod is there.
    fn port(&self, node: NodeId, address: &str) -> Result<Option<String>> {
        let ip = |words: &[&str]| shell::output(&mut inside(&self.state, node, "ip", words)?);
        for line in ip(&["netns", "list"])?.lines() {
            let name = line.split_whitespace().next().unwrap_or_default();
            // A pod may end at any time.
            let device = ["-oneline", "address", "show", "dev", "eth0"];
            let Ok(addresses) = ip(&[&["-netns", name][..], &device].concat()) else { continue };
            if !addresses.contains(&format!(" {address}/")) {
                continue;
            }
            // `2: eth0@if7: …` and, at the other end, `7: veth1a2b@if2: …`
            let here = ip(&["-netns", name, "-oneline", "link", "show", "dev", "eth0"])?;
            let index = here.split_once("@if").and_then(|(_, rest)| rest.split_once(':'));
            let (index, _) = index.context("a pod's eth0 has another end")?;
            let all = ip(&["-oneline", "link"])?;
            let prefix = format!("{index}: ");
            let there = all.lines().find_map(|line| line.strip_prefix(&prefix)?.split_once('@'));
            let there = there.context("the other end is in the node's network namespace")?;
            return Ok(Some(there.0.to_owned()));
        }
        Ok(None)
    }

    /// Kills the processes of a container, found by the program they run and the pod they belong to.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill_in_pod(&self, pod_uid: &str) -> Result<()> {
        for pid in running_processes(pod_uid)? {
            let pid = rustix::process::Pid::from_raw(pid).context("0 is no process")?;
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        Ok(())
    }

    /// Limits a pod's containers to the memory that they have now: the kernel ends those that request more.
    ///
    /// # Errors
    /// When it has no processes, or their memory cannot be limited.
    pub fn starve(&self, pod_uid: &str) -> Result<()> {
        for pid in running_processes(pod_uid)? {
            let (group, version) = control_group(pid, "memory")?;
            let file = if version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
            let limit = group.join(file);
            // The kernel reclaims what it can; it refuses a limit below the rest, or ends the process at once.
            let accepted = |bytes: u64| std::fs::write(&limit, bytes.to_string()).is_ok();
            let mut limits = (LIMIT_MIN..LIMIT_MAX).step_by(LIMIT_STEP);
            let found = limits.find(|bytes| accepted(*bytes));
            found.with_context(|| format!("{} takes no limit", limit.display()))?;
        }
        Ok(())
    }

    /// Slows the disks of a pod's running containers down, for as long as they run: the kernel delays what they read and write
    /// past the page cache.
    ///
    /// # Errors
    /// When it has no processes, or their devices cannot be limited.
    pub fn slow_disks(&self, pod_uid: &str, bytes_per_second: u64) -> Result<()> {
        let pids = running_processes(pod_uid)?;
        let devices = loop_devices()?;
        for pid in pids {
            let (group, version) =
                control_group(pid, "blkio").or_else(|_| control_group(pid, "io"))?;
            for device in &devices {
                let limits = if version == 1 {
                    let limit = format!("{device} {bytes_per_second}");
                    let files =
                        ["blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device"];
                    files.map(|file| (file, limit.clone())).to_vec()
                } else {
                    let limit = format!("{device} wbps={bytes_per_second} rbps={bytes_per_second}");
                    vec![("io.max", limit)]
                };
                for (file, limit) in limits {
                    let path = group.join(file);
                    std::fs::write(&path, &limit)
                        .with_context(|| format!("{} refuses {limit}", path.display()))?;
                }
            }
        }
        Ok(())
    }
}

/// At least one process.
fn running_processes(pod_uid: &str) -> Result<Vec<i32>> {
    let pids = processes_of_pod(pod_uid)?;
    anyhow::ensure!(!pids.is_empty(), "no process of the pod {pod_uid} is running");
    Ok(pids)
}

/// The folder of a process's control group for a controller, and the version of control groups.
fn control_group(pid: i32, controller: &str) -> Result<(PathBuf, u8)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let found = text.lines().find_map(|line| {
        // `number:controllers:path`, without controllers in version 2.
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let root = Path::new("/sys/fs/cgroup");
        if controllers.split(',').any(|name| name == controller) {
            return Some((root.join(controller).join(path), 1));
        }
        let group = root.join(path);
        let controllers_file = std::fs::read_to_string(group.join("cgroup.controllers")).ok();
        let is_there = |all: String| all.split_whitespace().any(|name| name == controller);
        (controllers.is_empty() && controllers_file.is_some_and(is_there)).then_some((group, 2))
    });
    found
        .with_context(|| format!("the process {pid} has no control group for {controller}: {text}"))
}

/// The numbers of the loop devices with a file, as control groups name devices: `major:minor`.
fn loop_devices() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block").context("cannot list devices")? {
        let folder = entry?.path();
        if folder.join("loop/backing_file").exists() {
            found.push(std::fs::read_to_string(folder.join("dev"))?.trim().to_owned());
        }
    }
    Ok(found)
}

/// A program that is stopped; it continues when this is dropped.
#[derive(Debug)]
pub struct Paused(Process);

impl Drop for Paused {
    fn drop(&mut self) {
        if let Err(error) = self.0.signal(Signal::CONT) {
            eprintln!("cluster: cannot continue {}: {error:#}", self.0.name);
        }
    }
}

/// A pod whose network device is down, until this is dropped.
#[derive(Debug)]
pub struct Cut {
    state: State,
    node: NodeId,
    port: String,
}

impl Cut {
    fn set(&self, state: &str) -> Result<()> {
        let words = ["link", "set", "dev", &self.port, state];
        shell::output(&mut inside(&self.state, self.node, "ip", &words)?).map(|_| ())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Err(error) = self.set("up") {
            eprintln!("cluster: cannot bring {} up again: {error:#}", self.port);
        }
    }
}
