//! The failures of a whole node, and of the network between the two. Only the second node fails: the first has the control plane.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::addresses::{API_PORT, BETWEEN_NODES_DEVICE, NODE};
use crate::chaos::Chaos;
use crate::node_id::NodeId;
use crate::processes::{Process, inside};
use crate::state::State;
use crate::{down, namespaces, node, shell, storage};

const PATIENCE: Duration = Duration::from_secs(30);
const SECOND: NodeId = NodeId::Second;

impl Chaos {
    /// Kills kubelet, containerd and all pods of the second node at once, with its mounts and its network, and detaches its
    /// volumes, as a fencing agent and the storage do on behalf of an administrator. What the programs had written and not synced
    /// is not lost, in contrast to a machine that loses power: the kernel is the same.
    ///
    /// # Errors
    /// When there is no second node, or something of it remains.
    pub fn kill_node(&self) -> Result<DeadNode> {
        let state = self.state().clone();
        let all = Process::all(&state)?;
        let first = Process::read(&state, &SECOND.record(namespaces::NAME))?;
        ensure!(first.is_running(), "the node {} is dead already", SECOND.name());
        first.signal(Signal::KILL)?;
        // From here on the node is started again when this is dropped.
        let dead = DeadNode { state, is_dead: true };
        for process in all.iter().filter(|process| process.node == SECOND) {
            process.wait_until_gone(PATIENCE)?;
        }
        down::wait_until_empty(&node::groups_of(&dead.state, SECOND)?)?;
        dead.detach_volumes()?;
        Ok(dead)
    }

    /// Drops packets between the second node and others.
    ///
    /// # Errors
    /// When there is no second node.
    pub fn cut_node(&self, from: CutFrom) -> Result<NodeCut> {
        let cut = NodeCut { state: self.state().clone(), rules: from.rules() };
        cut.change("--insert")?;
        Ok(cut)
    }
}

/// The second node after [`Chaos::kill_node`]. When this is dropped, it is started again.
#[derive(Debug)]
pub struct DeadNode {
    state: State,
    is_dead: bool,
}

impl DeadNode {
    /// Starts the node again. It becomes ready a little later.
    ///
    /// # Errors
    /// When its namespaces cannot be created or a program does not start.
    pub fn start(mut self) -> Result<()> {
        self.start_once()
    }

    fn start_once(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_dead) {
            return Ok(());
        }
        // The network of the node ends a little later than its processes.
        shell::wait("the end of the network of the node", PATIENCE, || {
            let words = ["link", "show", BETWEEN_NODES_DEVICE];
            let is_there = inside(&self.state, NodeId::First, "ip", &words)?.output()?;
            ensure!(!is_there.status.success(), "{BETWEEN_NODES_DEVICE} is still there");
            Ok(())
        })?;
        namespaces::create_second(&self.state)?;
        node::start_second_again(&self.state)
    }

    fn detach_volumes(&self) -> Result<()> {
        let devices = storage::devices_of(&self.state, SECOND)?;
        down::detach_all(|| down::loop_devices_over(&devices))?;
        storage::remove_device_records(&self.state, SECOND)
    }
}

impl Drop for DeadNode {
    fn drop(&mut self) {
        if let Err(error) = self.start_once() {
            eprintln!("cluster: cannot start {} again: {error:#}", SECOND.name());
        }
    }
}

/// What the second node does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutFrom {
    /// The API server; pods reach each other.
    ApiServer,
    /// The first node, and so everything.
    All,
}

impl CutFrom {
    /// Rules of iptables on the first node, through which all packets go: table, then chain and match.
    fn rules(self) -> Vec<(&'static str, Vec<String>)> {
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
        let incoming = format!("PREROUTING --in-interface {BETWEEN_NODES_DEVICE}");
        let outgoing = format!("POSTROUTING --out-interface {BETWEEN_NODES_DEVICE}");
        match self {
            Self::ApiServer => {
                let to_api = format!("{incoming} -p tcp -d {NODE} --dport {API_PORT}");
                vec![("raw", words(to_api))]
            }
            Self::All => vec![("raw", words(incoming)), ("mangle", words(outgoing))],
        }
    }
}

/// A network that is cut, until this is dropped.
#[derive(Debug)]
pub struct NodeCut {
    state: State,
    rules: Vec<(&'static str, Vec<String>)>,
}

impl NodeCut {
    fn change(&self, command: &str) -> Result<()> {
        for (table, rule) in &self.rules {
            let mut words = vec!["--wait", "--table", table, command];
            words.extend(rule.iter().map(String::as_str));
            words.extend(["--jump", "DROP"]);
            shell::output(&mut inside(&self.state, NodeId::First, "iptables", &words)?)?;
        }
        Ok(())
    }
}

impl Drop for NodeCut {
    fn drop(&mut self) {
        if let Err(error) = self.change("--delete") {
            eprintln!("cluster: cannot connect {} again: {error:#}", SECOND.name());
        }
    }
}
