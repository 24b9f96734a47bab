//! Where things are in a worker's pod: mounts, devices, files and ports.

/// A volume with a file system.
pub const DATA: &str = "/data";
/// The disk in it.
pub const DISK: &str = "/data/disk.img";
/// A volume that is a block device. That it exists is what tells the two apart.
pub const BLOCK_DEVICE: &str = "/dev/cdi-block-volume";
/// Scratch space, where the controller gave some.
pub const SCRATCH: &str = "/scratch";
/// A folder as old as the pod: what a device holds so far is noted there, for a container that is started again.
pub const JOURNAL: &str = "/journal";
/// In that of an upload server: how the file begins that is there once the volume is complete. The UID of whom it is for follows.
pub const COMPLETE_MARK: &str = "complete-";
/// What an earlier attempt of the reference importer may have left in scratch space.
pub const SCRATCH_IMAGE: &str = "/scratch/tmpimage";
/// Certificates of the user.
pub const CERTS: &str = "/certs";
/// Certificates of the cluster's proxy.
pub const PROXY_CERTS: &str = "/proxycerts";
/// Folders of secret headers, one header a file.
pub const EXTRA_HEADERS: &str = "/extraheaders";
/// The folder of Google's credentials.
pub const GOOGLE: &str = "/google";
/// VMware's library, put there by a container before.
pub const VDDK_LIBRARY: &str = "/opt/vmware-vix-disklib-distrib";
/// More settings for it, where the user gave some.
pub const VDDK_CONFIG: &str = "/vddk-args/vddk-config-file";
/// Where sockets between this container's programs lie.
pub const SOCKETS: &str = "/tmp";
/// What the two containers of a node pull share.
pub const SHARED: &str = "/shared";
/// Made by the container that serves the image.
pub const READY_FILE: &str = "/shared/ready";
/// Made by the importer.
pub const DONE_FILE: &str = "/shared/done";
/// The disk as the container beside serves it, before its name is known.
pub const NODE_PULL_ENDPOINT: &str = "http://localhost:8100/disk.img";
/// Last words of a container.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// Where every worker serves its metrics, by TLS.
pub const METRICS_PORT: u16 = 8443;
/// The name of that port in the pod.
pub const METRICS_PORT_NAME: &str = "metrics";
