//! Why a clone waits, is refused, or is a copy: messages that users and programs match.

use std::fmt;
use std::time::Duration;

use contract::ByteCount;

/// Why a clone is a copy, although a faster method was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// There is no snapshot class that source and target can share.
    NoSnapshotClass,
    /// The volumes have different drivers, or the driver of the source is unknown.
    DriversDiffer,
    /// The driver of the snapshot is not that of the target.
    NotOfThisDriver,
    /// One is a block device, the other a file system.
    ModesDiffer,
    /// The target is larger, and its class does not allow expansion.
    CannotGrow,
    /// The driver reported a final error.
    DriverRefused {
        /// As the driver reported it.
        message: String,
    },
    /// The driver did not complete the clone in time.
    DriverTooSlow {
        /// Its timeout.
        waited: Duration,
    },
    /// The user requested a copy of a snapshot.
    Requested,
    /// A reason that a controller wrote to the target before.
    Noted { text: String },
}

/// Prefixes of the messages about a failure of the driver.
const DRIVER_REFUSED: &str = "The storage driver refused to clone: ";
const DRIVER_TOO_SLOW: &str = "The storage driver did not clone within ";

/// Longest part of a driver's message that is forwarded, in bytes.
const MESSAGE_LEN_MAX: usize = 512;

impl Fallback {
    /// Reason of the event.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoSnapshotClass => "NoVolumeSnapshotClass",
            Self::DriversDiffer => "IncompatibleProvisioners",
            Self::NotOfThisDriver => "NoProvisionerMatch",
            Self::ModesDiffer => "IncompatibleVolumeModes",
            Self::CannotGrow => "NoVolumeExpansion",
            Self::DriverRefused { .. } => "CloneRefusedByDriver",
            Self::DriverTooSlow { .. } => "CloneTimedOut",
            Self::Requested | Self::Noted { .. } => "HostAssistedClone",
        }
    }

    /// Shortens the message of the driver.
    pub fn refused(message: &str) -> Self {
        let end = message.floor_char_boundary(MESSAGE_LEN_MAX);
        Self::DriverRefused { message: message[..end].to_owned() }
    }

    /// Whether a note reports a failure of the driver. Objects of that attempt may still exist.
    pub fn is_driver_failure(note: &str) -> bool {
        note.starts_with(DRIVER_REFUSED) || note.starts_with(DRIVER_TOO_SLOW)
    }
}

/// Message of the event, and value of the annotation `cloneFallbackReason`.
impl fmt::Display for Fallback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoSnapshotClass => "No compatible volumesnapshotclass found",
            Self::DriversDiffer => "Provisioners are incompatible",
            Self::NotOfThisDriver => {
                "The storageclass provisioner does not match the volumesnapshotcontent driver"
            }
            Self::ModesDiffer => "The volume modes of source and target are incompatible",
            Self::CannotGrow => "No volume expansion is possible",
            Self::DriverRefused { message } => {
                return write!(formatter, "{DRIVER_REFUSED}{message}");
            }
            Self::DriverTooSlow { waited } => {
                return write!(formatter, "{DRIVER_TOO_SLOW}{} s", waited.as_secs());
            }
            Self::Requested => "The annotation cdi.kubevirt.io/cloneType asks for a copy",
            Self::Noted { text } => text.as_str(),
        })
    }
}

/// What a clone waits for before the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The target names no class yet.
    ForClass,
    /// The source does not exist.
    ForSource,
}

/// Why a clone is impossible as requested. It is retried, as users can fix all of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The target requests the empty storage class.
    #[error("claim has emptystring storageclass, will not work")]
    EmptyClass,
    /// The class may have been deleted.
    #[error("target storage class not found: {name:?}")]
    NoClass { name: String },
    /// The target is smaller than the source.
    #[error(
        "target resources requests storage size is smaller than the source: {offered} < {needed}"
    )]
    TooSmall {
        /// The size that the source requests.
        needed: ByteCount,
        /// The size that the target requests.
        offered: ByteCount,
    },
    /// Only a disk can be cloned between a block device and a file system.
    #[error("source volumeMode and target volumeMode do not match, contentType (archive)")]
    ModeOfFiles,
    /// The source has no capacity yet, or the target requests nothing.
    #[error("source/target size info missing")]
    NoSizes,
    /// The snapshot is not bound to a VolumeSnapshotContent.
    #[error("volumesnapshotcontent not found for the source snapshot")]
    NoContent,
}
