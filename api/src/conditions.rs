//! Types and reasons of conditions.

/// Of a DataVolume: its PVC is bound.
pub const BOUND: &str = "Bound";
/// Of a DataVolume: a worker pod runs.
pub const RUNNING: &str = "Running";
/// Of a DataVolume or DataSource: it may be used.
pub const READY: &str = "Ready";
/// Of a StorageProfile: the storage is known.
pub const RECOGNIZED: &str = "Recognized";
/// Of a DataImportCron or CDI: a change is in progress.
pub const PROGRESSING: &str = "Progressing";
/// Of a DataImportCron: the newest image is imported.
pub const UP_TO_DATE: &str = "UpToDate";
/// Of a CDI: it works.
pub const AVAILABLE: &str = "Available";
/// Of an ObjectTransfer: it is complete.
pub const COMPLETE: &str = "Complete";

/// Values of `status`.
pub mod status {
    /// The condition holds.
    pub const TRUE: &str = "True";
    /// The condition does not hold.
    pub const FALSE: &str = "False";
    /// The state is not known.
    pub const UNKNOWN: &str = "Unknown";
}

/// Values of `reason`.
pub mod reason {
    /// The PVC is bound.
    pub const BOUND: &str = "Bound";
    /// The PVC is not bound yet.
    pub const PENDING: &str = "Pending";
    /// The PVC has lost its volume.
    pub const CLAIM_LOST: &str = "ClaimLost";
    /// There is no PVC.
    pub const NOT_FOUND: &str = "NotFound";
    /// A worker pod transfers data.
    pub const TRANSFER_RUNNING: &str = "TransferRunning";
    /// No node can run the worker pod.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// The limit of concurrent workers is reached.
    pub const QUEUED: &str = "Queued";
    /// The worker runs.
    pub const POD_RUNNING: &str = "Pod is running";
    /// The worker has succeeded.
    pub const COMPLETED: &str = "Completed";
    /// The worker failed.
    pub const ERROR: &str = "Error";
    /// The node of the worker does not report any more: whether the worker runs is not known.
    pub const NODE_LOST: &str = "NodeLost";
    /// The worker's pod is deleted for a taint of its node, and its end is not reported yet.
    pub const POD_EVICTED: &str = "PodEvicted";
    /// The kernel killed the worker because memory was exhausted.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// The worker's container image cannot be pulled.
    pub const IMAGE_PULL_FAILED: &str = "ImagePullFailed";
    /// The worker needs scratch space.
    pub const SCRATCH_SPACE_REQUIRED: &str = "Scratch space required";
    /// The scratch PVC is being created.
    pub const CREATING_SCRATCH_SPACE: &str = "CreatingScratchSpace";
    /// The image does not match its checksum.
    pub const CHECKSUM_ERROR: &str = "ChecksumError";
    /// No container image with VMware's library is configured.
    pub const AWAITING_VDDK: &str = "AwaitingVDDK";
    /// The storage is known.
    pub const RECOGNIZED_PROVISIONER: &str = "RecognizedProvisioner";
    /// The storage is not known.
    pub const UNRECOGNIZED_PROVISIONER: &str = "UnrecognizedProvisioner";
    /// The provisioner is known, but not the parameters of the class.
    pub const UNRECOGNIZED_PARAMETERS: &str = "UnrecognizedStorageClassParameters";
    /// A DataSource may be used.
    pub const READY: &str = "Ready";
    /// A DataSource refers to nothing yet.
    pub const NO_SOURCE: &str = "NoSource";
    /// The snapshot is being taken.
    pub const SNAPSHOT_NOT_READY: &str = "SnapshotNotReady";
    /// A DataSource points to one that points to another.
    pub const MAX_REFERENCE_DEPTH_REACHED: &str = "MaxReferenceDepthReached";
    /// A DataSource points to itself.
    pub const SELF_REFERENCE: &str = "SelfReference";
    /// A DataSource points to one of another namespace.
    pub const CROSS_NAMESPACE_REFERENCE: &str = "CrossNamespaceReference";
    /// The newest image is imported.
    pub const UP_TO_DATE: &str = "UpToDate";
    /// There is a newer image.
    pub const OUTDATED: &str = "Outdated";
    /// The newest image is being imported.
    pub const IMPORT_PROGRESSING: &str = "ImportProgressing";
    /// The import of the newest image is scheduled.
    pub const IMPORT_SCHEDULED: &str = "ImportScheduled";
    /// No import is in progress.
    pub const NO_IMPORT: &str = "NoImport";
    /// The newest image is not known yet.
    pub const NO_DIGEST: &str = "NoDigest";
    /// The source PVC may not be read.
    pub const NOT_AUTHORIZED: &str = "NotAuthorized";
    /// The newest image cannot be imported.
    pub const IMPORT_FAILED: &str = "ImportFailed";
    /// The source could not be polled for the newest image.
    pub const POLL_FAILED: &str = "PollFailed";
    /// The digest of the newest image has no known format.
    pub const ILLEGAL_DIGEST: &str = "IllegalDigest";
    /// The schedule cannot be parsed.
    pub const ILLEGAL_SCHEDULE: &str = "IllegalSchedule";
    /// The user has pinned an image.
    pub const PINNED: &str = "Pinned";
}
