//! A real Kubernetes of one node on this machine, for tests and for a first look.
//!
//! All of it lives in one room: a process, mount and network namespace whose first process is ours. What runs there,
//! mounts there and filters packets there is gone when that process is; what outlives it (loop devices, control groups,
//! a few kernel settings) is found by the state folder's name or written down before it is changed, so that `down` cleans
//! up after an `up` that was killed at any point.

mod addresses;
mod chaos;
mod control_plane;
mod down;
mod image;
mod node;
mod pki;
mod pod;
mod processes;
mod room;
mod shell;
mod state;
mod storage;
mod tools;
mod up;

pub use chaos::Chaos;
pub use down::down;
pub use image::{load, load_program, load_programs, push};
pub use pki::{Certificate, certificate};
pub use pod::processes_of_pod;
pub use processes::{Process, spawn_from_record};
pub use room::{first_process, is_up};
pub use state::State;
pub use tools::{Group, KUBERNETES, NODE, REFERENCE, Tools, VIRTCTL};
pub use up::{Mode, kubectl, logs, status, up};
