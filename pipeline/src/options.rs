//! What an import is given, and what it reports.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use contract::{ByteCount, Checksum, Hasher};
use serde::Serialize;

use crate::activity_times::TimeSpent;

/// Where the disk goes and what it has to look like.
#[derive(Clone, Debug)]
pub struct Target {
    /// A regular file (created, or replaced once the new disk is complete) or a block device.
    pub path: PathBuf,
    /// The largest virtual size that fits. `None`: what the file system has free, or the device's size.
    pub available: Option<ByteCount>,
    /// A file is grown to at least this much; a device ignores it.
    pub grow_to: Option<ByteCount>,
    /// Allocate every byte now.
    pub preallocate: bool,
}

/// How the format of a source is determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceFormat {
    /// By content, below all compressions.
    #[default]
    Detect,
    /// The bytes are the guest's disk: nothing is decompressed, converted or refused.
    Raw,
}

/// Which part of a disk in a file has to fit into the free space of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSpace {
    /// The whole disk, holes included: the guest may fill them later.
    #[default]
    WholeDisk,
    /// Its data. The disk may be larger than the free space; a [warning](crate::Progress::warn) is emitted unless its data is
    /// known to fit. Preallocated disks have no holes.
    Data,
}

/// How to do it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which part of the disk has to fit, if the target is a file.
    pub file_space: FileSpace,
    /// How the format of the source is determined.
    pub format: SourceFormat,
    /// What the wire bytes have to hash to.
    pub checksum: Option<Checksum>,
    /// The same with SHA-256, for senders that do not know it in advance. It has to be set before the source ends. If it
    /// is not, nothing is compared, and the import sets it to the calculated value.
    pub checksum_later: Option<Arc<OnceLock<Checksum>>>,
    /// Hash the wire bytes with SHA-256 and report it, although nothing is compared.
    pub digest: bool,
    /// Limit of all buffers together. How it is shared out: `memory.rs`.
    pub memory: ByteCount,
    /// Path of the journal of durable ranges. `None`: next to a file, and none for a device.
    pub journal: Option<PathBuf>,
    /// Go on where an earlier, killed import of the same image ended. Otherwise what it left is thrown away.
    pub resume: bool,
    /// Work that a kill may cost at most; how often data is made durable and the journal written.
    pub checkpoint_every: Duration,
    /// A directory for the rare image that fits neither memory nor the free part of the target. `None`: refuse it.
    pub scratch: Option<PathBuf>,
    /// The target holds the disk of an earlier import, and only changes since then are written.
    pub delta: Option<Delta>,
}

/// One stage of an import in several: the target holds the stage before.
///
/// What the source calls [`Unchanged`](crate::ExtentKind::Unchanged), or a qcow2 does not allocate, stays as it is; all
/// else is written or zeroed. The disk is never cut and nothing else in it touched. Until all is durable a file is
/// without its name, and whatever happens it is not removed: the same stage can be done again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Distinguishes the stage from all others, such as the two checkpoints that it lies between.
    pub stage: String,
    /// What the backing file of a qcow2 has to be called, directories left out: the checkpoint before. That file is not
    /// searched, since the target is in its place.
    pub backing: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file_space: FileSpace::WholeDisk,
            format: SourceFormat::Detect,
            checksum: None,
            checksum_later: None,
            digest: false,
            memory: ByteCount::mebibytes(32),
            journal: None,
            resume: true,
            checkpoint_every: Duration::from_secs(5),
            scratch: None,
            delta: None,
        }
    }
}

/// What was done. Serialises to the object that `--json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `raw`, `qcow2`, …
    pub format: String,
    /// Compressions undone, outermost first: `["gzip"]`.
    pub compression: Vec<String>,
    /// The route: `ranges`, `one pass`, …
    pub route: String,
    /// Bytes of the guest's disk.
    pub virtual_size: u64,
    /// Wire bytes received by this process.
    pub bytes_read: u64,
    /// Bytes of data written to the target.
    pub bytes_written: u64,
    /// Guest bytes that are zero and were not written as data.
    pub zero_bytes: u64,
    /// Bytes that went through scratch space.
    pub scratch_bytes: u64,
    /// Guest bytes that an earlier, killed process had already made durable. 0: began from the start.
    pub resumed_at: u64,
    /// `sha256:…` (or the algorithm of the checksum) of the wire bytes, if requested.
    pub digest: Option<String>,
    /// Wall time.
    pub seconds: f64,
    /// What the threads did in that time.
    pub time: TimeSpent,
}

/// What an image is and how it would be imported, without doing it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// As messages name the source.
    pub source: String,
    /// `raw`, `qcow2`, …
    pub format: String,
    /// Compressions around it, outermost first.
    pub compression: Vec<String>,
    /// Bytes of the guest's disk, if the first bytes contain it.
    pub virtual_size: Option<u64>,
    /// Guest bytes that hold data, if tables list them.
    pub allocated_size: Option<u64>,
    /// Bytes on the wire.
    pub wire_size: Option<u64>,
    /// The route of an import: `ranges`, `one pass`, `refused`, …
    pub route: String,
    /// Why that route: a sentence.
    pub because: String,
}

impl Options {
    /// The expected checksum of wire bytes whose checksum is `calculated`. If none is set yet, `calculated` becomes the
    /// expected one.
    pub(crate) fn expected(&self, calculated: Checksum) -> Option<Checksum> {
        let later = || Some(*self.checksum_later.as_ref()?.get_or_init(|| calculated));
        self.checksum.or_else(later)
    }

    /// What has to hash the wire bytes, if anything.
    pub(crate) fn hasher(&self) -> Option<Hasher> {
        match &self.checksum {
            Some(checksum) => Some(checksum.hasher()),
            None => (self.digest || self.checksum_later.is_some()).then(Hasher::sha256),
        }
    }
}
