//! Removes the whole cluster, also after an `up` that was killed half-way.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::addresses::HOST_DEVICE;
use crate::node_id::NodeId;
use crate::processes::Process;
use crate::shell::{self, program};
use crate::state::State;
use crate::{in_use, machine, namespaces, node};

/// Kernel settings that the kubelet changes for the whole machine, in spite of namespaces.
const CHANGED_BY_KUBELET: &[&str] = &[
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];
const SETTINGS: &str = "settings.json";
const PATIENCE: Duration = Duration::from_secs(30);

/// Kernel settings as they were.
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// Those that there are, or those from before another cluster that is up.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(state: &State) -> Result<Self> {
        if let Some(other) = machine::others(state)?.first() {
            let path = other.join(SETTINGS);
            let text =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let values = serde_json::from_slice(&text);
            return Ok(Self(values.with_context(|| format!("cannot parse {}", path.display()))?));
        }
        let mut values = Vec::new();
        for name in CHANGED_BY_KUBELET {
            let path = Path::new("/proc/sys").join(name);
            if path.exists() {
                let value = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                values.push(((*name).to_owned(), value.trim().to_owned()));
            }
        }
        Ok(Self(values))
    }

    /// Keeps them for `down`.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn write(&self, state: &State) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.0).context("settings are plain data")?;
        state.write(SETTINGS, &text).map(|_| ())
    }

    fn restore(state: &State) -> Result<()> {
        // An `up` that did not come this far changed nothing.
        let Ok(text) = fs::read(state.path(SETTINGS)) else { return Ok(()) };
        let Ok(before) = serde_json::from_slice::<Vec<(String, String)>>(&text) else {
            return Ok(());
        };
        for (name, value) in before {
            let path = Path::new("/proc/sys").join(&name);
            let now = fs::read_to_string(&path).unwrap_or_default();
            if now.trim() != value {
                fs::write(&path, &value).with_context(|| format!("cannot restore {name}"))?;
            }
        }
        Ok(())
    }
}

/// Removes the cluster. Nothing to remove is success.
///
/// # Errors
/// When a test uses it; nothing is removed then. When something remains; the later steps are executed nevertheless.
pub fn down(state: &State) -> Result<()> {
    if !state.exists() {
        return Ok(());
    }
    in_use::ensure_unused(state)?;
    let mut failures = Vec::new();
    let mut attempt = |result: Result<()>| failures.extend(result.err());
    attempt(end_processes(state));
    attempt(remove_cable());
    attempt(detach(state));
    attempt(remove_control_groups(state));
    let is_alone = machine::others(state)?.is_empty();
    if is_alone {
        attempt(Settings::restore(state));
        for folder in namespaces::MOUNT_POINTS {
            let _ = fs::remove_dir(folder); // only if it is empty
        }
    }
    if failures.is_empty() {
        return state.remove();
    }
    let causes: Vec<_> = failures.iter().map(|error| format!("{error:#}")).collect();
    anyhow::bail!("cannot remove all of the cluster:\n  {}", causes.join("\n  "))
}

/// With its first process a PID namespace ends: the kernel kills all in it, containers too, and removes mounts and network.
fn end_processes(state: &State) -> Result<()> {
    let mut all = Process::all(state)?;
    let is_first = |process: &Process| process.name == process.node.record(namespaces::NAME);
    all.sort_by_key(|process| !is_first(process));
    for process in &all {
        process.signal(Signal::KILL)?;
    }
    for process in &all {
        process.wait_until_gone(PATIENCE)?;
    }
    end_unrecorded_namespaces(state)?;
    wait_until_empty(&node::groups(state)?)
}

/// Waits for the processes of containers, which are not our children: they die with their namespace, but not at once.
pub(crate) fn wait_until_empty(groups: &[PathBuf]) -> Result<()> {
    shell::wait("the containers", PATIENCE, || {
        let left: usize = groups.iter().map(|group| members(group)).sum();
        anyhow::ensure!(left == 0, "{left} processes of containers are left");
        Ok(())
    })
}

/// After an `up` that was killed between creating the namespaces and recording them.
fn end_unrecorded_namespaces(state: &State) -> Result<()> {
    for (pid, _) in machine::first_processes()?.iter().filter(|(_, of)| of == state.folder()) {
        let mut process = Process::new(namespaces::NAME.into(), NodeId::First, vec![]);
        process.is_now(*pid)?;
        process.signal(Signal::KILL)?;
        process.wait_until_gone(PATIENCE)?;
    }
    Ok(())
}

/// The processes in a control group and below.
fn members(group: &Path) -> usize {
    let here = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    here.lines().count() + below(group).iter().map(|group| members(group)).sum::<usize>()
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn remove_control_groups(state: &State) -> Result<()> {
    for group in node::groups(state)? {
        remove_group(&group)?;
    }
    Ok(())
}

fn remove_group(group: &Path) -> Result<()> {
    for inner in below(group) {
        remove_group(&inner)?;
    }
    if !group.exists() {
        return Ok(());
    }
    // The kernel needs some time to release one whose last process has just ended.
    shell::wait("a control group", Duration::from_secs(5), || {
        fs::remove_dir(group).with_context(|| format!("cannot remove {}", group.display()))
    })
}

/// The cable is removed with the network namespace, unless that was never complete.
fn remove_cable() -> Result<()> {
    // Not by /sys, which shows the network that it was mounted in.
    let there = || shell::output(&mut program("ip", &["link", "show", HOST_DEVICE])).is_ok();
    let gone = shell::wait("the network", Duration::from_secs(5), || {
        anyhow::ensure!(!there(), "{HOST_DEVICE} is still there");
        Ok(())
    });
    if gone.is_err() && there() {
        shell::output(&mut program("ip", &["link", "delete", HOST_DEVICE]))?;
    }
    Ok(())
}

/// Loop devices over files of the state folder, and those over these: kubelet keeps a device busy by another one over it.
///
/// # Errors
/// When the kernel's list cannot be read.
pub fn loop_devices(state: &State) -> Result<Vec<PathBuf>> {
    with_those_above(|device| device.backing.starts_with(state.folder()))
}

/// These loop devices, if they are attached, and those over them.
pub(crate) fn loop_devices_over(devices: &[PathBuf]) -> Result<Vec<PathBuf>> {
    with_those_above(|device| devices.contains(&device.path))
}

fn with_those_above(is_wanted: impl Fn(&LoopDevice) -> bool) -> Result<Vec<PathBuf>> {
    let columns = ["--list", "--raw", "--noheadings", "--output", LOOP_COLUMNS];
    let text = shell::output(&mut program("losetup", &columns))?;
    let all: Vec<_> = text.lines().filter_map(LoopDevice::parse).collect();
    let mut ours: Vec<&LoopDevice> = Vec::new();
    loop {
        let is_ours = |device: &LoopDevice| {
            is_wanted(device) || ours.iter().any(|below| below.is_below(device))
        };
        let is_new = |device: &LoopDevice| !ours.iter().any(|known| known.path == device.path);
        let more: Vec<_> = all.iter().filter(|device| is_new(device) && is_ours(device)).collect();
        if more.is_empty() {
            return Ok(ours.into_iter().map(|device| device.path.clone()).collect());
        }
        ours.extend(more);
    }
}

const LOOP_COLUMNS: &str = "NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE";

struct LoopDevice {
    path: PathBuf,
    /// Device and inode of the backing file: without the mounts of the namespaces, its path identifies nothing.
    over: (String, String),
    backing: PathBuf,
}

impl LoopDevice {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (path, device, inode) = (words.next()?, words.next()?, words.next()?);
        Some(Self {
            path: path.into(),
            // losetup pads the column, and escapes blanks as in C.
            over: (device.replace("\\x20", ""), inode.to_owned()),
            backing: words.next().unwrap_or_default().into(),
        })
    }

    /// Whether the other one is over this one.
    fn is_below(&self, other: &Self) -> bool {
        let Ok(here) = fs::metadata(&self.path) else { return false };
        let device = format!("{}:{}", rustix::fs::major(here.dev()), rustix::fs::minor(here.dev()));
        other.over == (device, here.ino().to_string())
    }
}

fn detach(state: &State) -> Result<()> {
    detach_all(|| loop_devices(state))
}

/// Detaches the loop devices of a list, those on top first, until the list is empty.
pub(crate) fn detach_all(list: impl Fn() -> Result<Vec<PathBuf>>) -> Result<()> {
    shell::wait("loop devices", Duration::from_secs(10), || {
        let devices = list()?;
        for device in devices.iter().rev() {
            shell::output(program("losetup", &["--detach"]).arg(device))?;
        }
        anyhow::ensure!(devices.is_empty(), "{} loop devices are still there", devices.len());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_losetup_names_the_backing_file() {
        let padded = r"/dev/loop5 \x20\x20\x200:6\x20\x20 98 /";
        let device = LoopDevice::parse(padded).unwrap();
        assert_eq!(device.path, Path::new("/dev/loop5"));
        assert_eq!(device.over, ("0:6".to_owned(), "98".to_owned()));
        assert_eq!(device.backing, Path::new("/"));
        assert!(LoopDevice::parse("").is_none());
    }
}
