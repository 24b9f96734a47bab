//! A real Kubernetes of one node, or two, on this machine, for tests and to try things.
//!
//! Each node runs in a PID, a mount and a network namespace whose first process is ours. Processes, mounts and packet filters in them
//! end with that process. What outlives it (loop devices, control groups, some kernel settings) is found by the name of the state
//! folder or recorded before it is changed, so that `down` cleans up after an `up` that was killed at any point.

mod addresses;
mod chaos;
mod control_plane;
mod debian;
mod down;
pub mod guest;
mod image;
mod in_use;
mod kubevirt;
mod launcher;
mod machine;
mod namespaces;
mod node;
mod node_failures;
mod node_id;
mod pki;
mod pod;
mod processes;
mod shell;
mod state;
mod storage;
mod tools;
mod up;
mod upstream;

pub use chaos::Chaos;
pub use down::down;
pub use image::{load, load_program, load_programs, push};
pub use in_use::InUse;
pub use kubevirt::{NAMESPACE as KUBEVIRT_NAMESPACE, install as install_kubevirt};
pub use launcher::{IMAGE as LAUNCHER_IMAGE, NODE_IMAGE, kubevirt_images, launcher_image};
pub use machine::{enter_network, outer_network, run_in_network};
pub use namespaces::{first_process, is_up};
pub use node_failures::{CutFrom, DeadNode, NodeCut};
pub use node_id::NodeId;
pub use pki::{Certificate, certificate};
pub use pod::processes_of_pod;
pub use processes::{Process, spawn_from_record};

pub use state::State;
use tools::cache;
pub use tools::{Group, KUBERNETES, KUBEVIRT, KUBEVIRT_ALL, NODE, REFERENCE, Tools, VIRTCTL};
pub use up::{Mode, kubectl, logs, status, up};
pub use upstream::{
    VERSION as UPSTREAM_VERSION, load_upstream_images, upstream_image, upstream_operator_manifest,
};
