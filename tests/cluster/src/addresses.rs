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
