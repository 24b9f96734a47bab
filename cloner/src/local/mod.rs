//! Clones between two volumes of one pod: nothing crosses a network, and within one file system nothing is read either.
//!
//! | from | to | how |
//! |---|---|---|
//! | file system | file system | each file: reflink, else direct I/O with zeroes skipped (large files) or `copy_file_range` (small ones, and where a server copies) |
//! | device | device | direct I/O, zeroes skipped |
//! | device, or `disk.img` | `disk.img`, or device | the same |

mod disk;
mod tree;

use std::path::Path;
use std::sync::Arc;

use contract::clone::VolumeMode;
use contract::paths;

use crate::error::Error;
use crate::progress::Progress;
use crate::volume::{SourceVolume, VolumeContent};

/// Copies a volume to another one of this pod, and returns once it is durable. Files get their names, and a device its first
/// MiB, only then.
pub fn copy(
    source: &SourceVolume,
    target: &Path,
    mode: VolumeMode,
    preallocate: bool,
    progress: &Progress,
) -> Result<(), Error> {
    progress.set_total(source.survey(preallocate, "")?.bytes);
    match (&source.content, mode) {
        (VolumeContent::Tree(root), VolumeMode::Filesystem) => {
            tree::copy(source, root, target, preallocate, progress)?;
        }
        (VolumeContent::Tree(root), VolumeMode::Block) => {
            let content = Arc::new(source.file(root, disk_name().as_bytes())?);
            disk::copy(&content, target, preallocate, progress)?;
        }
        (VolumeContent::Disk(disk), VolumeMode::Block) => {
            disk::copy(disk, target, preallocate, progress)?
        }
        (VolumeContent::Disk(disk), VolumeMode::Filesystem) => {
            disk::copy(disk, &target.join(disk_name()), preallocate, progress)?;
        }
    }
    progress.finish();
    Ok(())
}

/// Name of the disk's file in a file system.
fn disk_name() -> &'static str {
    paths::DISK.rsplit('/').next().unwrap_or_default()
}
