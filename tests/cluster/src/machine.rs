//! Additional clusters. A cluster with a name (`CDI_CLUSTER`) gets a network namespace that is to it what this
//! machine's network is to the first cluster: the end of the virtual cable, the routes to pods and Services, and the servers of
//! tests are in there. So all addresses stay the same.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

use crate::namespaces::FIRST_PROCESS;
use crate::node_id::NodeId;
use crate::processes::Process;
use crate::shell::{output, own_program, program};
use crate::state::State;

/// Set to the name of the cluster for processes in its outer network namespace.
const ENTERED: &str = "CDI_CLUSTER_ENTERED";
/// The argument that makes our program a process that only keeps the outer network namespace, and the name of its record.
pub const KEEPER: &str = "outer-network";

/// Runs this process again, with the same arguments, in the outer network namespace of a cluster with a name. Returns if that is
/// where it runs, if the cluster has no name, or if it is not up; `create` makes a namespace then.
///
/// # Errors
/// When the namespace cannot be made or entered.
pub fn enter_network(state: &State, create: bool) -> Result<()> {
    let Some(name) = state.name() else { return Ok(()) };
    if std::env::var_os(ENTERED).is_some_and(|entered| entered == name) {
        return Ok(());
    }
    let keeper = Process::read(state, KEEPER).ok().filter(Process::is_running);
    let mut command = match keeper.and_then(|keeper| keeper.pid) {
        Some(pid) => program("nsenter", &[&format!("--net=/proc/{pid}/ns/net")]),
        None if create => program("unshare", &["--net"]),
        None => return Ok(()),
    };
    let us = own_program()?;
    command.arg("--").arg(us).args(std::env::args_os().skip(1)).env(ENTERED, name);
    Err(command.exec()).context("cannot start nsenter or unshare, of the package util-linux")
}

/// Starts a process that keeps the outer network namespace of a cluster with a name, where it is created, until `down`.
///
/// # Errors
/// When it cannot be started.
pub fn keep_network(state: &State) -> Result<()> {
    if state.name().is_none() {
        return Ok(());
    }
    output(&mut program("ip", &["link", "set", "lo", "up"]))?;
    let us = own_program()?;
    let mut command = Command::new(us);
    command.arg(KEEPER).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.process_group(0).spawn().context("cannot start our own program")?;
    let mut keeper = Process::new(KEEPER.into(), NodeId::First, vec![]);
    keeper.is_now(child.id())?;
    keeper.write(state)
}

/// Keeps the network namespace that this process is in, and does nothing else.
pub fn outer_network() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs a program in the outer network namespace: tests that serve what pods of this cluster read.
///
/// # Errors
/// When it cannot be started.
pub fn run_in_network(state: &State, words: &[&str]) -> Result<ExitStatus> {
    let (name, arguments) = words.split_first().context("`run` takes a program")?;
    if state.name().is_some() {
        output(&mut program("ip", &["link", "set", "lo", "up"]))?;
    }
    let mut command = program(name, arguments);
    command.status().with_context(|| format!("cannot start {name}"))
}

/// The state folders of other clusters that are up.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn others(state: &State) -> Result<Vec<PathBuf>> {
    let all = first_processes()?.into_iter().map(|(_, folder)| folder);
    Ok(all.filter(|folder| folder != state.folder()).collect())
}

/// The first process of each cluster that is up, and the cluster's state folder.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn first_processes() -> Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // A process may end at any time.
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if !read("cmdline").split('\0').any(|word| word == FIRST_PROCESS) {
            continue;
        }
        let environment = read("environ");
        let mut variables = environment.split('\0');
        if let Some(folder) = variables.find_map(|one| one.strip_prefix("CDI_CLUSTER_STATE=")) {
            found.push((pid, folder.into()));
        }
    }
    Ok(found)
}
