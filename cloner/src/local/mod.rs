//! Both volumes in one pod: nothing goes over a network, and where both are of one file system nothing is read either.
//!
//! | from | to | how |
//! |---|---|---|
//! | file system | file system | each file: shared blocks (reflink), else copied by the kernel, holes kept |
//! | device | device | read and written past the page cache, zeroes left out |
//! | device, or `disk.img` | `disk.img`, or device | the same |

mod disk;
mod tree;

use std::path::Path;
use std::sync::Arc;

use contract::clone::VolumeMode;
use contract::job::paths;

use crate::error::Error;
use crate::progress::Progress;
use crate::volume::{Kind, Volume};

/// Copies a volume to one beside it, and returns once all of it is durable. A file has its name then, and not before; a
/// device its beginning.
///
/// # Errors
/// When the source cannot be read, or holds what cannot be cloned, or the target cannot be written.
pub fn copy(
    source: &Volume,
    target: &Path,
    mode: VolumeMode,
    preallocate: bool,
    progress: &Progress,
) -> Result<(), Error> {
    progress.set_total(source.survey(preallocate, "")?.bytes);
    match (&source.kind, mode) {
        (Kind::Tree(root), VolumeMode::Filesystem) => {
            tree::copy(source, root, target, preallocate, progress)?;
        }
        (Kind::Tree(root), VolumeMode::Block) => {
            let content = Arc::new(source.file(root, disk_name().as_bytes())?);
            disk::copy(&content, target, preallocate, progress)?;
        }
        (Kind::Disk(disk), VolumeMode::Block) => disk::copy(disk, target, preallocate, progress)?,
        (Kind::Disk(disk), VolumeMode::Filesystem) => {
            disk::copy(disk, &target.join(disk_name()), preallocate, progress)?;
        }
    }
    progress.finish();
    Ok(())
}

/// Of the one file in which a file system has a disk.
fn disk_name() -> &'static str {
    paths::DISK.rsplit('/').next().unwrap_or_default()
}
