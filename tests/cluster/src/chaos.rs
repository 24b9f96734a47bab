//! Breaking a running cluster on purpose, and mending it again.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::processes::{self, Process, inside};
use crate::shell;
use crate::state::State;

const PATIENCE: Duration = Duration::from_secs(30);

/// What can be done to the cluster that is up. Each fault that lasts is mended when its guard is dropped.
#[derive(Clone, Debug)]
pub struct Chaos {
    state: State,
}

impl Chaos {
    /// For the cluster of this state folder.
    pub fn new(state: State) -> Self {
        Self { state }
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

    /// Stops a program without ending it: connections to it stay open and nobody answers.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn pause(&self, name: &str) -> Result<Paused> {
        let process = Process::read(&self.state, name)?;
        process.signal(Signal::STOP)?;
        Ok(Paused(process))
    }

    /// Drops every packet from and to a pod's address.
    ///
    /// # Errors
    /// When the rules cannot be made.
    pub fn cut(&self, address: &str) -> Result<Cut> {
        let cut = Cut { state: self.state.clone(), address: address.to_owned() };
        cut.change("--insert")?;
        Ok(cut)
    }

    /// Kills the processes of a container, found by the program they run and the pod they belong to.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill_in_pod(&self, pod_uid: &str) -> Result<()> {
        let pids = self.processes_of(pod_uid)?;
        anyhow::ensure!(!pids.is_empty(), "no process of the pod {pod_uid} is running");
        for pid in pids {
            let pid = rustix::process::Pid::from_raw(pid).context("0 is no process")?;
            // It may have ended by itself, which is as good.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        Ok(())
    }

    /// The processes in a pod's control group, its pause aside.
    fn processes_of(&self, pod_uid: &str) -> Result<Vec<i32>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").context("cannot read /proc")? {
            let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
            let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
            // A process may end between the two.
            let (Ok(groups), Ok(words)) = (read("cgroup"), read("cmdline")) else { continue };
            let ours = groups.contains(crate::node::CONTROL_GROUP) && groups.contains(pod_uid);
            if ours && !words.trim_end_matches('\0').ends_with("testpod") {
                found.push(pid);
            }
        }
        Ok(found)
    }
}

/// A program that is stopped; it goes on when this is dropped.
#[derive(Debug)]
pub struct Paused(Process);

impl Drop for Paused {
    fn drop(&mut self) {
        if let Err(error) = self.0.signal(Signal::CONT) {
            eprintln!("cluster: {} stays paused: {error:#}", self.0.name);
        }
    }
}

/// A pod without a network; it has one again when this is dropped.
#[derive(Debug)]
pub struct Cut {
    state: State,
    address: String,
}

impl Cut {
    fn change(&self, how: &str) -> Result<()> {
        // Before routing and on the way out: packets between pods of one bridge never pass FORWARD.
        for (chain, direction) in [
            ("PREROUTING", "--source"),
            ("PREROUTING", "--destination"),
            ("OUTPUT", "--destination"),
        ] {
            let rule = ["--table", "raw", how, chain, direction, &self.address, "--jump", "DROP"];
            shell::output(&mut inside(&self.state, "iptables", &rule)?)?;
        }
        Ok(())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Err(error) = self.change("--delete") {
            eprintln!("cluster: {} stays cut off: {error:#}", self.address);
        }
    }
}
