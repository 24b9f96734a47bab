//! Why a clone waits, is refused, or is a copy: the words that people and programs look for.

use std::fmt;
use std::time::Duration;

use contract::ByteCount;

/// Why a clone is a copy, although something faster was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// There is no class for a snapshot that source and target can share.
    NoSnapshotClass,
    /// The volumes are of two drivers, or of one that nobody knows.
    DriversDiffer,
    /// The snapshot is of another driver than the target.
    NotOfThisDriver,
    /// One is a device, the other a file system.
    ModesDiffer,
    /// The target is larger, and its class does not let claims grow.
    CannotGrow,
    /// The driver was asked, and said no.
    DriverRefused {
        /// Its words.
        said: String,
    },
    /// The driver was asked, and nothing came of it.
    DriverTooSlow {
        /// How long it had.
        waited: Duration,
    },
    /// The user asked for a copy of a snapshot.
    Requested,
    /// What a controller noted before, in its words.
    Noted {
        /// The words.
        text: String,
    },
}

/// How a message begins that tells of a driver that was asked.
const DRIVER_REFUSED: &str = "The storage driver refused to clone: ";
const DRIVER_TOO_SLOW: &str = "The storage driver did not clone within ";

/// The most of a driver's words that is handed on.
const SAID_MAX: usize = 512;

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

    /// What a driver said, as much of it as people are going to read.
    pub fn refused(said: &str) -> Self {
        let end = said.floor_char_boundary(SAID_MAX);
        Self::DriverRefused { said: said[..end].to_owned() }
    }

    /// Whether a note says that a driver was asked first. What it has begun may still lie about.
    pub fn tells_of_driver(note: &str) -> bool {
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
            Self::DriverRefused { said } => return write!(formatter, "{DRIVER_REFUSED}{said}"),
            Self::DriverTooSlow { waited } => {
                return write!(formatter, "{DRIVER_TOO_SLOW}{} s", waited.as_secs());
            }
            Self::Requested => "The annotation cdi.kubevirt.io/cloneType asks for a copy",
            Self::Noted { text } => text.as_str(),
        })
    }
}

/// What a clone waits for before anything is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The target names no class yet.
    ForClass,
    /// The source is not there.
    ForSource,
}

/// Why a clone cannot be done as it is asked for. It is tried again, as all of these can be mended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The target asks for no class at all.
    #[error("claim has emptystring storageclass, will not work")]
    EmptyClass,
    /// The class may have been deleted.
    #[error("target storage class not found: {name:?}")]
    NoClass {
        /// What the target names.
        name: String,
    },
    /// The target has no room for the source.
    #[error(
        "target resources requests storage size is smaller than the source: {offered} < {needed}"
    )]
    TooSmall {
        /// What the source requests.
        needed: ByteCount,
        /// What the target requests.
        offered: ByteCount,
    },
    /// Only a disk goes from a device to a file or back.
    #[error("source volumeMode and target volumeMode do not match, contentType (archive)")]
    ModeOfFiles,
    /// The source has no capacity yet, or the target requests nothing.
    #[error("source/target size info missing")]
    NoSizes,
    /// The snapshot is bound to nothing.
    #[error("volumesnapshotcontent not found for the source snapshot")]
    NoContent,
}
