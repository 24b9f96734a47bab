//! Addresses and names of the room. Private ones that this machine routes nowhere else.

/// This machine's end of the cable into the room.
pub const HOST: &str = "10.98.0.1";
/// The room's end: the node's address, and the API server's.
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
/// Where the API server listens, on every address of the room.
pub const API_PORT: u16 = 6443;
/// The image registry, plain HTTP, at the node's address.
pub const REGISTRY_PORT: u16 = 5000;
/// What the node is called.
pub const NODE_NAME: &str = "cdi-node";
