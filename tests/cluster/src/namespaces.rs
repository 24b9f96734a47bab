//! The namespaces of the cluster for processes, mounts and the network, and the virtual cable between them and this machine.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::addresses::{CABLE_PREFIX, HOST, HOST_DEVICE, NODE, NODE_DEVICE, PODS, SERVICES};
use crate::machine;
use crate::processes::{Process, inside};
use crate::shell::{self, output, program};
use crate::state::State;

/// The record of the first process in the namespaces.
pub const NAME: &str = "namespaces";
/// The argument that makes our program that first process.
pub const FIRST_PROCESS: &str = "first-process";
/// CNI's state, kubelet's device plugins and what KubeVirt keeps on a node, whose paths are fixed. On this machine the folders are
/// empty.
pub const MOUNT_POINTS: &[&str] =
    &["/var/lib/cni", "/var/lib/kubelet", "/var/lib/kubevirt-node-labeller"];
/// Written by the first process when mounts and network are set up.
const READY: &str = "namespaces.ready";

/// Creates the namespaces, with a network to which this machine has a route.
///
/// # Errors
/// Names the privilege or kernel feature that is missing.
pub fn create(state: &State) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the cluster needs root: namespaces, mounts and loop devices");
    }
    machine::keep_network(state)?;
    let us = std::env::current_exe().context("cannot find our own program")?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--net"]);
    unshare.arg("--").arg(us).arg(FIRST_PROCESS).env("CDI_CLUSTER_STATE", state.folder());
    let log = fs::File::create(state.path("logs").join("namespaces.log"))?;
    unshare.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let parent = unshare.spawn().context("cannot start unshare, of the package util-linux")?;
    record_pids(state, parent.id())?;
    let ready = || -> Result<()> {
        if state.path(READY).exists() {
            return Ok(());
        }
        let log = fs::read_to_string(state.path("logs/namespaces.log")).unwrap_or_default();
        bail!("cannot create namespaces for processes, mounts and the network: {}", log.trim())
    };
    shell::wait("the namespaces", Duration::from_secs(10), ready)?;
    cable(state)
}

/// Whether there is a cluster.
pub fn is_up(state: &State) -> bool {
    Process::read(state, NAME).is_ok_and(|first| first.is_running())
}

/// Records `unshare` and its child, the first process in the namespaces.
fn record_pids(state: &State, parent: u32) -> Result<()> {
    let mut keeper = Process { name: "unshare".into(), words: vec![], pid: None, started: None };
    keeper.is_now(parent)?;
    keeper.write(state)?;
    let child = shell::wait("the first process", Duration::from_secs(10), || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let child = children.split_whitespace().next().context("not forked yet")?;
        child.parse::<u32>().context("a pid is a number")
    });
    let log = fs::read_to_string(state.path("logs/namespaces.log")).unwrap_or_default();
    let child = child.with_context(|| format!("unshare printed: {}", log.trim()))?;
    let mut first = Process { name: NAME.into(), words: vec![], pid: None, started: None };
    first.is_now(child)?;
    first.write(state)
}

/// The first process: sets up mounts and network, then reaps processes that end.
///
/// # Errors
/// When the kernel does not let it.
pub fn first_process(state: &State) -> Result<()> {
    // Mounts of pods are shared among the cluster's programs, and stay in here.
    mount(&["--make-rshared", "/"])?;
    mount(&["-t", "proc", "proc", "/proc"])?;
    // Sockets, locks and named network namespaces; kubelet's links to logs; and the folders that `down` removes.
    for folder in ["/run", "/var/log"].iter().chain(MOUNT_POINTS) {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {folder}"))?;
        mount(&["-t", "tmpfs", "tmpfs", folder])?;
    }
    output(&mut program("ip", &["link", "set", "lo", "up"]))?;
    // The network namespace has its own; that of the machine stays as it is.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot forward packets")?;
    state.write(READY, "")?;
    loop {
        // The parents of the programs are outside or have ended, so the programs are our children.
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn mount(words: &[&str]) -> Result<()> {
    output(&mut program("mount", words)).map(|_| ())
}

/// Creates a pair of virtual network devices, one end in the network namespace, and routes to pods and services through it.
fn cable(state: &State) -> Result<()> {
    let first =
        Process::read(state, NAME)?.pid.context("the first process has no PID")?.to_string();
    let host = |words: &[&str]| output(&mut program("ip", words));
    let host_address = format!("{HOST}/{CABLE_PREFIX}");
    let node_address = format!("{NODE}/{CABLE_PREFIX}");
    host(&[
        "link",
        "add",
        HOST_DEVICE,
        "type",
        "veth",
        "peer",
        "name",
        NODE_DEVICE,
        "netns",
        &first,
    ])
    .context("cannot create virtual network devices (veth)")?;
    host(&["address", "add", &host_address, "dev", HOST_DEVICE])?;
    host(&["link", "set", HOST_DEVICE, "up"])?;
    let node = |words: &[&str]| output(&mut inside(state, "ip", words)?);
    node(&["address", "add", &node_address, "dev", NODE_DEVICE])?;
    node(&["link", "set", NODE_DEVICE, "up"])?;
    // Without a route the kernel refuses a packet to a service before kube-proxy's rules see it.
    node(&["route", "add", "default", "via", HOST])?;
    for network in [PODS, SERVICES] {
        host(&["route", "add", network, "via", NODE])?;
    }
    Ok(())
}
