//! Targets on this machine: a disk in a regular file or on a block device.
//!
//! An unfinished disk never looks finished: a file gets its name, and a device its first MiB, when all the rest is
//! durable. What a killed process leaves can be continued. This module never decides what is written where.

mod allocation;
mod device;
mod dual_path_file;
mod end;
mod file;
mod free_space;
mod io_error;
mod mode;
mod old_data;
mod opening;
mod sink;
#[cfg(test)]
mod tests;
mod unmap;
mod write_back;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use self::device::Device;
pub use self::dual_path_file::DualPathFile;
use self::dual_path_file::Zeroing;
use self::file::Partial;
pub use self::file::{length_of_stage, sync_directory};
pub use self::free_space::{available, hold_device};
pub use self::io_error::is_full;
pub use self::mode::{set_mode, set_mode_of_member};

/// Default path of the journal for the file `path`. `None` for a device: its directory is not ours to write to.
pub fn journal_next_to(path: &Path) -> Option<PathBuf> {
    let is_device = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device());
    let name = path.file_name().filter(|_| !is_device)?.to_string_lossy().into_owned();
    Some(path.with_file_name(format!(".{name}.cdi-journal")))
}

/// How to open a [`Disk`].
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Bytes of the disk: on a device its virtual size, in a file the length that the file will have.
    pub size: u64,
    /// Allocate every byte: in a file at once, on a device by writing zeroes too.
    pub preallocate: bool,
    /// Continue what an earlier process has left, if it is there. Otherwise that is removed.
    pub resume: bool,
}

/// Distinguishes one unfinished import from all others into the same target. Journals store and compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Of the file: device number of its file system.
    device: u64,
    inode: u64,
    /// Bytes of the file or device.
    length: u64,
    /// The creation time of a file, or a random number written to a device.
    mark: u64,
}

/// A disk that is being written, from [`Disk::open`] to [`Disk::finish`].
///
/// Dropped without either `finish` or [`abandon`](Self::abandon), it stays unfinished for a later process to resume.
/// The first [`held_back`](Self::held_back) bytes are then lost: a journal must never claim them.
pub struct Disk {
    path: PathBuf,
    size: u64,
    disk_file: DualPathFile,
    kind: TargetKind,
    was_there: bool,
    starts_zeroed: bool,
    zeroing: Zeroing,
    /// End of the range in which bytes may be parked; 0 until that is requested.
    parking_end: AtomicU64,
    /// Highest end of parked bytes.
    parked_end: AtomicU64,
    /// A call failed: written data may be lost, and no later success can restore it.
    broken: AtomicBool,
    /// Read-locked during each call that may fail. The kernel reports a lost write once, to one of the callers;
    /// [`sync`](Sink::sync) waits for all of them before it reads `broken`.
    calls: RwLock<()>,
}

enum TargetKind {
    File(Partial),
    Device(Device),
    /// A device with a finished disk, changed in place.
    Patched,
}

impl Disk {
    /// The path given to [`open`](Self::open).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether it was opened by [`reopen`](Self::reopen): a finished disk that is changed in place.
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    /// Has to equal the identity in a journal for this import to be resumed.
    pub fn partial_identity(&self) -> Identity {
        match &self.kind {
            TargetKind::File(partial) => partial.identity(),
            TargetKind::Device(device) => device.identity(),
            TargetKind::Patched => Identity { device: 0, inode: 0, length: self.size, mark: 0 },
        }
    }

    /// Bytes at the beginning that are in memory only, until [`finish`](Self::finish): on a device the first MiB, in a
    /// file none. A resumed import has to write them again.
    pub fn held_back(&self) -> u64 {
        self.device().map_or(0, Device::held_back)
    }

    fn device(&self) -> Option<&Device> {
        match &self.kind {
            TargetKind::File(_) | TargetKind::Patched => None,
            TargetKind::Device(device) => Some(device),
        }
    }

    /// Fails once a call has failed.
    fn intact(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier write to it has failed"));
        }
        Ok(())
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("path", &self.path)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
