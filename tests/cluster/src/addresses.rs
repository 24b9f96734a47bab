//! Addresses and names in the cluster. Private ones that this machine routes nowhere else.

/// This machine's end of the virtual cable into the cluster's namespaces.
pub const HOST: &str = "10.98.0.1";
/// The cluster's end: the address of the node and of the API server.
pub const NODE: &str = "10.98.0.2";
/// The prefix of both.
pub const CABLE_PREFIX: &str = "30";
/// The two ends as devices.
pub const HOST_DEVICE: &str = "cdi-host";
/// See [`HOST_DEVICE`].
pub const NODE_DEVICE: &str = "cdi-node";
/// Pods.
pub const PODS: &str = "10.97.0.0/16";
/// Those on the first node, a part of [`PODS`].
pub const NODE_PODS: &str = "10.97.0.0/24";
/// Services; the first is the API server itself.
pub const SERVICES: &str = "10.96.0.0/16";
/// See [`SERVICES`].
pub const API_SERVICE: &str = "10.96.0.1";
/// Where the API server listens, on every address of the node.
pub const API_PORT: u16 = 6443;
/// The image registry, plain HTTP, at the node's address.
pub const REGISTRY_PORT: u16 = 5000;
/// The name of the node.
pub const NODE_NAME: &str = "cdi-node";

/// The second node: its name, and its end of the virtual cable between the nodes.
pub const SECOND_NODE_NAME: &str = "cdi-node-2";
/// See [`SECOND_NODE_NAME`].
pub const SECOND_NODE: &str = "10.98.0.6";
/// The first node's end of that cable, by which all packets of the second go.
pub const BETWEEN_NODES: &str = "10.98.0.5";
/// The network of both ends.
pub const BETWEEN_NODES_NETWORK: &str = "10.98.0.4/30";
/// The first node's end as a device.
pub const BETWEEN_NODES_DEVICE: &str = "cdi-next";
/// Pods on the second node, a part of [`PODS`].
pub const SECOND_NODE_PODS: &str = "10.97.1.0/24";
