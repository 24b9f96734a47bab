//! What tests of every crate need, and no product code: disks whose bytes are all different, qemu-img and the system's
//! compressors as oracles, a web server and a proxy that fail on purpose, loop devices, file systems, and processes
//! measured from outside.
//!
//! An oracle shares no code with what it checks: this crate depends on no other crate of the workspace. A fixture fails by
//! panicking, with a message on what it was doing. Without a program that it needs, a test is skipped; in CI it fails
//! ([`skip`]).

pub mod archive;
pub mod block_options;
pub mod cgroup;
pub mod compress;
pub mod disk;
pub mod filesystem;
pub mod http;
pub mod imageio;
pub mod loop_device;
pub mod nbd;
pub mod network;
pub mod network_storage;
pub mod old_kernel;
pub mod openstack;
pub mod port;
pub mod process;
pub mod proxy;
pub mod qcow2_options;
pub mod qemu_img;
mod random;
pub mod raw_client;
pub mod sandbox;
pub mod stub;
mod sys;
mod tls;
pub mod tool;
pub mod vsphere;

pub use archive::{ova, tar};
pub use block_options::{BlockOptions, block_options};
pub use cgroup::Cgroup;
pub use compress::{Compressor, Pieces, compress};
pub use disk::{Fill, SparseDisk, pattern, short_runs, sparse_disk};
pub use filesystem::{FileSystem, FileSystemKind};
pub use http::{Fault, FaultServer, Request};
pub use imageio::{Ovirt, OvirtState};
pub use loop_device::LoopDevice;
pub use nbd::NbdServer;
pub use network::in_own_network;
pub use network_storage::{DirectIo, FullAt, NetworkFileSystem, NetworkRules};
pub use old_kernel::{without_landlock, without_seccomp};
pub use openstack::{Openstack, OpenstackState};
pub use port::ReservedPort;
pub use process::{Finished, Running};
pub use proxy::Proxy;
pub use qcow2_options::{Change, Qcow2Options, qcow2_options};
pub use qemu_img::{Image, QemuImg};
pub use random::Random;
pub use raw_client::{Connection, RawClient, RawResponse, post_head};
pub use stub::{Stub, StubRequest, StubResponse};
pub use tls::ServerCertificate;
pub use tool::{
    Tool, cdi, cdi_cloner, cdi_containerimage_server, cdi_controller, cdi_importer,
    cdi_uploadserver, reference, require_tool, skip,
};
pub use vsphere::{Vsphere, VsphereState};

/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// 2^30 bytes.
pub const GIB: u64 = 1 << 30;
