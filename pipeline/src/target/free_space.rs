//! How large a disk may be.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::StatVfs;

use super::file::{directory_of, partial_path};

/// Bytes that a disk at `path` can have: the size of a block device, or else what the file system still offers to
/// ordinary users. What an unfinished import of the same name occupies counts as free, because it is reused.
///
/// # Errors
/// When the device, or the directory of the file, cannot be examined.
pub fn available(path: &Path) -> io::Result<u64> {
    if fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device()) {
        return length(&File::open(path)?);
    }
    let facts = rustix::fs::statvfs(directory_of(path))?;
    let occupied = partial_path(path)
        .and_then(|partial| fs::symlink_metadata(partial).ok())
        .map_or(0, |partial| partial.blocks().saturating_mul(512)); // st_blocks counts these, whatever the file system
    Ok(free_bytes(&facts).saturating_add(occupied))
}

/// Bytes that a file system offers to ordinary users.
fn free_bytes(facts: &StatVfs) -> u64 {
    // More free than there is: a driver's negative number.
    let blocks = if facts.f_bavail > facts.f_blocks { 0 } else { facts.f_bavail };
    blocks.saturating_mul(facts.f_frsize)
}

/// Bytes that the file system of a sparse file with a disk of `size` bytes has free once the whole disk is allocated. `None` where
/// that does not fit.
pub fn spare_bytes(file: &File, size: u64) -> Option<u64> {
    let free = rustix::fs::fstatvfs(file).map_or(0, |facts| free_bytes(&facts));
    let allocated = file.metadata().map_or(0, |facts| facts.blocks().saturating_mul(512));
    free.checked_sub(size.saturating_sub(allocated))
}

/// Opens the device at `path`, if it is one, to be held until a worker ends.
///
/// A kubelet that was restarted while it could not reach the API server may unmap the device of a running pod, and map it again. The
/// device number in the pod could then belong to another volume by the time that the worker opens it. That of an open device
/// does not.
///
/// # Errors
/// When it cannot be opened.
pub fn hold_device(path: &Path) -> io::Result<Option<File>> {
    let is_device = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device());
    is_device.then(|| File::open(path)).transpose()
}

/// Bytes of a file or device.
pub fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}
