//! The namespaces of a node for processes, mounts and the network, and the virtual cables: between the first node and this machine,
//! and between the two nodes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::addresses::{
    BETWEEN_NODES, BETWEEN_NODES_DEVICE, BETWEEN_NODES_NETWORK, CABLE_PREFIX, HOST, HOST_DEVICE,
    NODE, NODE_DEVICE, PODS, SECOND_NODE, SECOND_NODE_PODS, SERVICES,
};
use crate::machine;
use crate::node_id::NodeId;
use crate::processes::{Process, inside};
use crate::shell::{self, output, program};
use crate::state::State;
use crate::up::PROGRAM;

/// The record of the first process in the namespaces.
pub const NAME: &str = "namespaces";
/// The argument that makes our program that first process.
pub const FIRST_PROCESS: &str = "first-process";
/// CNI's state, kubelet's device plugins and what KubeVirt keeps on a node, whose paths are fixed. On this machine the folders are
/// empty.
pub const MOUNT_POINTS: &[&str] =
    &["/var/lib/cni", "/var/lib/kubelet", "/var/lib/kubevirt-node-labeller"];

/// Written by the first process when mounts and network are set up.
fn ready_file(node: NodeId) -> String {
    format!("{}.ready", node.record(NAME))
}

/// Creates the namespaces of the first node, with a network to which this machine has a route.
///
/// # Errors
/// Names the privilege or kernel feature that is missing.
pub fn create(state: &State) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the cluster needs root: namespaces, mounts and loop devices");
    }
    machine::keep_network(state)?;
    create_sandbox(state, NodeId::First)?;
    cable(state)
}

/// Creates the namespaces of the second node, with a network that leads to the first one. Also after it was killed.
///
/// # Errors
/// As [`create`].
pub fn create_second(state: &State) -> Result<()> {
    create_sandbox(state, NodeId::Second)?;
    cable_between_nodes(state)
}

fn create_sandbox(state: &State, node: NodeId) -> Result<()> {
    let ready_file = state.path(&ready_file(node));
    if ready_file.exists() {
        fs::remove_file(&ready_file).context("cannot remove the mark of an earlier sandbox")?;
    }
    // A test that starts the second node again is another program.
    let us = fs::read_to_string(state.path(PROGRAM)).context("there is no cluster")?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--net"]);
    unshare.arg("--").arg(us).args([FIRST_PROCESS, node.name()]);
    unshare.env("CDI_CLUSTER_STATE", state.folder());
    let log_path = state.path("logs").join(format!("{}.log", node.record(NAME)));
    let log = fs::File::create(&log_path)?;
    unshare.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let parent = unshare.spawn().context("cannot start unshare, of the package util-linux")?;
    let printed = || fs::read_to_string(&log_path).unwrap_or_default().trim().to_owned();
    record_pids(state, node, parent.id())
        .with_context(|| format!("unshare printed: {}", printed()))?;
    shell::wait("the namespaces", Duration::from_secs(10), || {
        if ready_file.exists() {
            return Ok(());
        }
        bail!("cannot create namespaces for processes, mounts and the network: {}", printed())
    })
}

/// Whether there is a cluster.
pub fn is_up(state: &State) -> bool {
    Process::read(state, NAME).is_ok_and(|first| first.is_running())
}

/// Records `unshare` and its child, the first process in the namespaces.
fn record_pids(state: &State, node: NodeId, parent: u32) -> Result<()> {
    let mut keeper = Process::new(node.record("unshare"), node, vec![]);
    keeper.is_now(parent)?;
    keeper.write(state)?;
    let child = shell::wait("the first process", Duration::from_secs(10), || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let child = children.split_whitespace().next().context("not forked yet")?;
        child.parse::<u32>().context("a pid is a number")
    })?;
    let mut first = Process::new(node.record(NAME), node, vec![]);
    first.is_now(child)?;
    first.write(state)
}

/// The first process: sets up mounts and network, then reaps processes that end.
///
/// # Errors
/// When the kernel does not let it.
pub fn first_process(state: &State, node: &str) -> Result<()> {
    let node = NodeId::named(node).with_context(|| format!("there is no node {node}"))?;
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
    state.write(&ready_file(node), "")?;
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
    let node = |words: &[&str]| output(&mut inside(state, NodeId::First, "ip", words)?);
    node(&["address", "add", &node_address, "dev", NODE_DEVICE])?;
    node(&["link", "set", NODE_DEVICE, "up"])?;
    // Without a route the kernel refuses a packet to a service before kube-proxy's rules see it.
    node(&["route", "add", "default", "via", HOST])?;
    for network in [PODS, SERVICES] {
        host(&["route", "add", network, "via", NODE])?;
    }
    Ok(())
}

/// The same between the two nodes. All packets of the second node go through the first, so that this machine forwards none.
fn cable_between_nodes(state: &State) -> Result<()> {
    let second = Process::read(state, &NodeId::Second.record(NAME))?;
    let second = second.pid.context("the first process has no PID")?.to_string();
    // The PID is one of this machine, where `ip` has to run to find it.
    let create = ["link", "add", BETWEEN_NODES_DEVICE, "type", "veth", "peer", "name", NODE_DEVICE];
    let mut create = program("ip", &create);
    output(create.args(["netns", &second])).context("cannot connect the nodes (veth)")?;
    let first = Process::read(state, NAME)?.pid.context("the first process has no PID")?;
    let first = first.to_string();
    output(&mut program("ip", &["link", "set", BETWEEN_NODES_DEVICE, "netns", &first]))?;
    let prefix = |address: &str| format!("{address}/{CABLE_PREFIX}");
    let first = |words: &[&str]| output(&mut inside(state, NodeId::First, "ip", words)?);
    first(&["address", "add", &prefix(BETWEEN_NODES), "dev", BETWEEN_NODES_DEVICE])?;
    first(&["link", "set", BETWEEN_NODES_DEVICE, "up"])?;
    first(&["route", "add", SECOND_NODE_PODS, "via", SECOND_NODE])?;
    let second = |words: &[&str]| output(&mut inside(state, NodeId::Second, "ip", words)?);
    second(&["address", "add", &prefix(SECOND_NODE), "dev", NODE_DEVICE])?;
    second(&["link", "set", NODE_DEVICE, "up"])?;
    second(&["route", "add", "default", "via", BETWEEN_NODES])?;
    // It remains when the second node is killed.
    let route = ["route", "replace", BETWEEN_NODES_NETWORK, "via", NODE];
    output(&mut program("ip", &route)).map(|_| ())
}
