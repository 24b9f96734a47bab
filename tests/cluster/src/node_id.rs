//! The nodes that a cluster can have. The first one has the control plane and the names and paths of a cluster with one node; those
//! of the second are derived here.

use std::path::PathBuf;

use crate::addresses::{
    NODE, NODE_NAME, NODE_PODS, SECOND_NODE, SECOND_NODE_NAME, SECOND_NODE_PODS,
};
use crate::namespaces;
use crate::processes::Process;
use crate::state::State;

/// A node. Each has a sandbox of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeId {
    /// Runs the control plane too.
    First,
    /// Of `cluster up --nodes 2`.
    Second,
}

impl NodeId {
    /// Every node that a cluster can have.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// As Kubernetes names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => NODE_NAME,
            Self::Second => SECOND_NODE_NAME,
        }
    }

    /// The node that Kubernetes names so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|node| node.name() == name)
    }

    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::First => NODE,
            Self::Second => SECOND_NODE,
        }
    }

    /// The network of its pods.
    pub(crate) fn pods(self) -> &'static str {
        match self {
            Self::First => NODE_PODS,
            Self::Second => SECOND_NODE_PODS,
        }
    }

    /// The name of a program's record and log: `kubelet`, `kubelet-2`.
    pub(crate) fn record(self, program: &str) -> String {
        match self {
            Self::First => program.to_owned(),
            Self::Second => format!("{program}-2"),
        }
    }

    /// A file or folder of the node's own, in the state folder.
    pub(crate) fn file(self, name: &str) -> String {
        match self {
            Self::First => name.to_owned(),
            Self::Second => format!("node-2/{name}"),
        }
    }
}

impl State {
    /// The nodes of the cluster, one that was killed included.
    pub fn nodes(&self) -> Vec<NodeId> {
        let is_recorded =
            |node: &NodeId| Process::read(self, &node.record(namespaces::NAME)).is_ok();
        NodeId::ALL.into_iter().filter(is_recorded).collect()
    }

    /// A path in the kubelet's folder on a node.
    pub fn kubelet_path(&self, node: NodeId, name: &str) -> PathBuf {
        self.path(&node.file("kubelet")).join(name)
    }

    pub(crate) fn node_text(&self, node: NodeId, name: &str) -> String {
        self.text(&node.file(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_files_of_the_nodes_differ() {
        for name in ["kubelet", "containerd.toml"] {
            assert_eq!(
                (NodeId::First.record(name), NodeId::First.file(name)),
                (name.into(), name.into())
            );
            assert_ne!(NodeId::Second.record(name), name);
            assert_ne!(NodeId::Second.file(name), name);
        }
        for node in NodeId::ALL {
            assert_eq!(NodeId::named(node.name()), Some(node));
        }
        assert_eq!(NodeId::named("another"), None);
    }
}
