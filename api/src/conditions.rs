//! Types and reasons of conditions.

/// Of a DataVolume: its claim is bound.
pub const BOUND: &str = "Bound";
/// Of a DataVolume: a worker is at it.
pub const RUNNING: &str = "Running";
/// Of a DataVolume or DataSource: it may be used.
pub const READY: &str = "Ready";
/// Of a StorageProfile: the storage is known.
pub const RECOGNIZED: &str = "Recognized";
/// Of a DataImportCron or CDI: something is being done.
pub const PROGRESSING: &str = "Progressing";
/// Of a DataImportCron: the newest image is there.
pub const UP_TO_DATE: &str = "UpToDate";
/// Of a CDI: it works.
pub const AVAILABLE: &str = "Available";
/// Of a CDI: it does not work as it should.
pub const DEGRADED: &str = "Degraded";
/// Of an ObjectTransfer: it is done.
pub const COMPLETE: &str = "Complete";

/// Values of `status`.
pub mod status {
    /// It is so.
    pub const TRUE: &str = "True";
    /// It is not.
    pub const FALSE: &str = "False";
    /// Nobody can tell.
    pub const UNKNOWN: &str = "Unknown";
}

/// Values of `reason`.
pub mod reason {
    /// The claim is bound.
    pub const BOUND: &str = "Bound";
    /// The claim is not bound yet.
    pub const PENDING: &str = "Pending";
    /// The claim has lost its volume.
    pub const CLAIM_LOST: &str = "ClaimLost";
    /// There is no claim.
    pub const NOT_FOUND: &str = "NotFound";
    /// A worker is at it.
    pub const TRANSFER_RUNNING: &str = "TransferRunning";
    /// No node takes the worker.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// So many workers are at work that this one has to wait.
    pub const QUEUED: &str = "Queued";
    /// The worker runs.
    pub const POD_RUNNING: &str = "Pod is running";
    /// The worker is done.
    pub const COMPLETED: &str = "Completed";
    /// The worker failed.
    pub const ERROR: &str = "Error";
    /// The kernel ended the worker for want of memory.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// The worker's image cannot be had.
    pub const IMAGE_PULL_FAILED: &str = "ImagePullFailed";
    /// The worker asked for scratch space.
    pub const SCRATCH_SPACE_REQUIRED: &str = "Scratch space required";
    /// Scratch space is being made.
    pub const CREATING_SCRATCH_SPACE: &str = "CreatingScratchSpace";
    /// The image is not the one that was promised.
    pub const CHECKSUM_ERROR: &str = "ChecksumError";
    /// Nobody said which image has VMware's library.
    pub const AWAITING_VDDK: &str = "AwaitingVDDK";
    /// The storage is known.
    pub const RECOGNIZED_PROVISIONER: &str = "RecognizedProvisioner";
    /// The storage is not known.
    pub const UNRECOGNIZED_PROVISIONER: &str = "UnrecognizedProvisioner";
    /// The storage is known, but not what the class asks of it.
    pub const UNRECOGNIZED_PARAMETERS: &str = "UnrecognizedStorageClassParameters";
    /// A DataSource may be used.
    pub const READY: &str = "Ready";
    /// A DataSource stands for nothing yet.
    pub const NO_SOURCE: &str = "NoSource";
    /// The snapshot is being taken.
    pub const SNAPSHOT_NOT_READY: &str = "SnapshotNotReady";
    /// A DataSource points to one that points to another.
    pub const MAX_REFERENCE_DEPTH_REACHED: &str = "MaxReferenceDepthReached";
    /// A DataSource points to itself.
    pub const SELF_REFERENCE: &str = "SelfReference";
    /// A DataSource points to one of another namespace.
    pub const CROSS_NAMESPACE_REFERENCE: &str = "CrossNamespaceReference";
    /// The newest image is there.
    pub const UP_TO_DATE: &str = "UpToDate";
    /// There is a newer image.
    pub const OUTDATED: &str = "Outdated";
    /// The newest image is on its way.
    pub const IMPORT_PROGRESSING: &str = "ImportProgressing";
    /// The newest image is about to be on its way.
    pub const IMPORT_SCHEDULED: &str = "ImportScheduled";
    /// Nothing is on its way.
    pub const NO_IMPORT: &str = "NoImport";
    /// Nobody knows yet what the newest image is.
    pub const NO_DIGEST: &str = "NoDigest";
    /// The source claim may not be read.
    pub const NOT_AUTHORIZED: &str = "NotAuthorized";
    /// The newest image cannot be imported.
    pub const IMPORT_FAILED: &str = "ImportFailed";
    /// Nobody could find out what the newest image is.
    pub const POLL_FAILED: &str = "PollFailed";
    /// What the newest image is called is of no form that is known.
    pub const ILLEGAL_DIGEST: &str = "IllegalDigest";
    /// The schedule cannot be understood.
    pub const ILLEGAL_SCHEDULE: &str = "IllegalSchedule";
    /// An image was chosen by hand.
    pub const PINNED: &str = "Pinned";
}
