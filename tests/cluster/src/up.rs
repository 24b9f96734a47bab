//! The cluster as a whole: brings it up, and reports its state.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::down::{self, Settings};
use crate::in_use::InUse;
use crate::node_id::NodeId;
use crate::processes::Process;
use crate::shell;
use crate::state::State;
use crate::tools::{KUBERNETES, NODE, Tools};
use crate::{control_plane, namespaces, node, pki, storage};

/// Names the program that made the cluster; it starts the others.
pub(crate) const PROGRAM: &str = "program";

/// How much of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A node that runs pods.
    Whole,
    /// Two of them, and storage that differs between them.
    TwoNodes,
    /// A simulated node, with pods and volumes that do nothing: for thousands of objects.
    ControlPlane,
}

/// First removes the cluster that is there, if all of its programs were killed.
///
/// # Errors
/// When a cluster is running. Else names what is missing, or the program that did not start; what was created remains for
/// inspection; `down` removes it.
pub fn up(state: &State, mode: Mode) -> Result<()> {
    if state.exists() {
        if is_running(state)? {
            bail!("there is a cluster in {}: `cluster down` first", state.folder().display());
        }
        eprintln!(
            "removing the cluster in {}: none of its programs runs",
            state.folder().display()
        );
        down::down(state)?;
    }
    let tools = Tools::ready(&[KUBERNETES, NODE])?;
    let begin = Instant::now();
    state.create()?;
    // Until its first program runs, another `up` could take this cluster for one that was killed.
    let _in_use = InUse::hold(state)?;
    let us = shell::own_program()?;
    state.write(PROGRAM, &us.display().to_string())?;
    Settings::read(state)?.write(state)?;
    namespaces::create(state)?;
    if mode == Mode::TwoNodes {
        namespaces::create_second(state)?;
    }
    pki::make(state)?;
    control_plane::start(state, &tools, mode)?;
    storage::define(state, &tools)?;
    storage::classes(state, &tools, mode)?;
    match mode {
        Mode::Whole | Mode::TwoNodes => {
            node::start(state, &tools)?;
            storage::drivers(state, &tools)?;
            storage::local_volumes(state, &tools)?;
        }
        Mode::ControlPlane => node::simulate(state, &tools)?,
    }
    for node in state.nodes() {
        wait_for_node(state, &tools, node)?;
    }
    wait_for_account(state, &tools)?;
    eprintln!(
        "the cluster is up after {} s; KUBECONFIG={}",
        begin.elapsed().as_secs(),
        state.kubeconfig().display()
    );
    Ok(())
}

/// Whether any of its programs runs. None does once the machine was restarted or all processes on it were killed.
fn is_running(state: &State) -> Result<bool> {
    Ok(Process::all(state)?.iter().any(Process::is_running))
}

fn wait_for_node(state: &State, tools: &Tools, node: NodeId) -> Result<()> {
    let mut wait = kubectl(state, tools)?;
    wait.args(["wait", "--for=condition=Ready", "--timeout=60s", &format!("node/{}", node.name())]);
    shell::wait("the node", Duration::from_secs(90), || {
        let mut get = kubectl(state, tools)?;
        shell::output(get.args(["get", "node", node.name()]))
    })?;
    shell::output(&mut wait).map(|_| ())
}

/// Without it no pod can be created.
fn wait_for_account(state: &State, tools: &Tools) -> Result<()> {
    shell::wait("the default service account", Duration::from_secs(60), || {
        let mut get = kubectl(state, tools)?;
        shell::output(get.args(["get", "serviceaccount", "default"]))
    })
    .map(|_| ())
}

/// kubectl, with the administrator's permissions.
///
/// # Errors
/// When it was not built.
pub fn kubectl(state: &State, tools: &Tools) -> Result<Command> {
    let mut command = Command::new(tools.path("kubectl")?);
    command.env("KUBECONFIG", state.kubeconfig());
    Ok(command)
}

/// A table of the programs: name, pid, memory, and whether it runs.
///
/// # Errors
/// When no cluster is there, or a program of it is not running.
pub fn status(state: &State) -> Result<String> {
    if !state.exists() {
        bail!("there is no cluster in {}", state.folder().display());
    }
    let (mut table, mut dead) = (String::new(), Vec::new());
    for process in Process::all(state)? {
        let pid = process.pid.unwrap_or_default();
        let life = if process.is_running() { "running" } else { "not running" };
        if !process.is_running() {
            dead.push(process.name.clone());
        }
        table += &format!("{:<26} {pid:>8} {:>6} MiB  {life}\n", process.name, memory(pid));
    }
    let loops = down::loop_devices(state)?.len();
    table += &format!("{loops} loop devices; KUBECONFIG={}\n", state.kubeconfig().display());
    if dead.is_empty() {
        return Ok(table);
    }
    bail!("{table}not running: {}", dead.join(", "))
}

/// Resident, in MiB; 0 if it is gone.
fn memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() >> 10
}

/// The log of a program of the cluster.
///
/// # Errors
/// Names the logs there are.
pub fn logs(state: &State, name: &str) -> Result<String> {
    if let Ok(bytes) = fs::read(state.path("logs").join(format!("{name}.log"))) {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    let names: Vec<_> = Process::all(state)?.into_iter().map(|process| process.name).collect();
    bail!("there is no log of {name}; there are: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_runs_as_long_as_one_of_its_programs() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::in_folder(folder.path().join("state"));
        state.create().unwrap();
        assert!(!is_running(&state).unwrap());
        let mut killed = Process::new("etcd".into(), NodeId::First, vec![]);
        killed.is_now(std::process::id()).unwrap();
        killed.started = killed.started.map(|ticks| ticks + 1);
        killed.write(&state).unwrap();
        assert!(!is_running(&state).unwrap());
        let mut running = Process::new("kubelet".into(), NodeId::First, vec![]);
        running.is_now(std::process::id()).unwrap();
        running.write(&state).unwrap();
        assert!(is_running(&state).unwrap());
        let error = up(&state, Mode::Whole).unwrap_err().to_string();
        assert!(error.contains("`cluster down` first"), "{error}");
    }
}
