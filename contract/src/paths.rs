//! Mounts, devices, files and ports of a worker's pod.

/// Mount of a volume with a file system.
pub const DATA: &str = "/data";
/// The disk in such a volume.
pub const DISK: &str = "/data/disk.img";
/// A volume that is a block device. Workers detect their kind of volume by its existence.
pub const BLOCK_DEVICE: &str = "/dev/cdi-block-volume";
/// Mount of scratch space, if the pod has some.
pub const SCRATCH: &str = "/scratch";
/// Mount of an emptyDir that survives restarts of the container: the journal of a device, and the completion mark.
pub const JOURNAL: &str = "/journal";
/// Prefix of an upload server's completion mark in [`JOURNAL`]; the UID of the target follows.
pub const COMPLETE_MARK: &str = "complete-";
/// Upstream's importer may have left this file.
pub const SCRATCH_IMAGE: &str = "/scratch/tmpimage";
/// Mount of the user's CA certificates.
pub const CERTS: &str = "/certs";
/// Mount of the CA certificates of the cluster's proxy.
pub const PROXY_CERTS: &str = "/proxycerts";
/// Mount of Secrets with headers, one header per file.
pub const EXTRA_HEADERS: &str = "/extraheaders";
/// Mount of Google's credentials.
pub const GOOGLE: &str = "/google";
/// VMware's library, copied there by an init container.
pub const VDDK_LIBRARY: &str = "/opt/vmware-vix-disklib-distrib";
/// User settings of that library, if there are some.
pub const VDDK_CONFIG: &str = "/vddk-args/vddk-config-file";
/// Directory of Unix sockets between the processes of the container.
pub const SOCKETS: &str = "/tmp";
/// Node pull: volume of both containers.
pub const SHARED: &str = "/shared";
/// Node pull: created by the container that serves the image.
pub const READY_FILE: &str = "/shared/ready";
/// Node pull: created by the importer.
pub const DONE_FILE: &str = "/shared/done";
/// Node pull: URL of the disk in the second container.
pub const NODE_PULL_ENDPOINT: &str = "http://localhost:8100/disk.img";
/// Termination message file of a container.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// Port of every worker's HTTPS metrics endpoint.
pub const METRICS_PORT: u16 = 8443;
/// Name of that port in the pod.
pub const METRICS_PORT_NAME: &str = "metrics";
