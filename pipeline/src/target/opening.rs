//! Opens a disk: a new one, one that an earlier process left unfinished, or a finished one for another stage.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::RwLock;

use super::device::{self, Device};
use super::dual_path_file::{DualPathFile, Zeroing};
use super::file;
use super::io_error::{Doing, refused};
use super::unmap::UnmapLimits;
use super::{Disk, DiskOptions, TargetKind};
use crate::error::Error;

/// A target as it was opened.
struct OpenedTarget {
    size: u64,
    disk_file: DualPathFile,
    kind: TargetKind,
    /// An earlier process began to write it.
    resumed: bool,
    /// It is a finished disk of which only parts are changed.
    was_there: bool,
    starts_zeroed: bool,
    zeroing: Zeroing,
}

/// What to try before the method that works everywhere. Tests switch these off.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoFeatures {
    pub(super) direct: bool,
    /// Let a device zero itself before the import.
    pub(super) unmap: Option<UnmapLimits>,
}

impl IoFeatures {
    pub(super) const ALL: Self = Self { direct: true, unmap: Some(UnmapLimits::DEFAULT) };
}

impl Disk {
    /// Opens a target for one import. A file is created as `.NAME.cdi-partial` with its whole length; NAME itself is
    /// unchanged until [`finish`](Self::finish). An old disk on a device is lost, unless it is resumed.
    ///
    /// A device is zeroed if it can do that by itself and fast enough.
    ///
    /// # Errors
    /// When the path is neither a file nor a block device, when another import or a mount uses it, when the device is too
    /// small ([`Error::TooLarge`]), when space runs out, and on I/O errors.
    pub fn open(path: &Path, options: &DiskOptions) -> Result<Self, Error> {
        Self::open_with(path, options, IoFeatures::ALL)
    }

    pub(super) fn open_with(
        path: &Path,
        options: &DiskOptions,
        features: IoFeatures,
    ) -> Result<Self, Error> {
        let opened = match fs::metadata(path) {
            Ok(facts) if facts.file_type().is_block_device() => {
                Self::on_device(path, options, features)?
            }
            Ok(facts) if facts.is_dir() => {
                return Err(refused(
                    "write to",
                    path,
                    "it is a directory: give the path of a file in it",
                ));
            }
            Ok(facts) if !facts.is_file() => {
                return Err(refused("write to", path, "it is neither a file nor a block device"));
            }
            // Creating the file fails if the path cannot be used.
            Ok(_) | Err(_) => Self::in_file(path, options, features)?,
        };
        tracing::debug!(
            target.path = %path.display(),
            target.direct = opened.disk_file.is_direct(),
            target.resumed = opened.resumed,
            target.starts_zeroed = opened.starts_zeroed,
            target.zeroing = ?opened.zeroing,
            "{} is open",
            path.display()
        );
        Ok(Self::new(path, opened))
    }

    fn new(path: &Path, opened: OpenedTarget) -> Self {
        let OpenedTarget { size, disk_file, kind, resumed: _, was_there, starts_zeroed, zeroing } =
            opened;
        Self {
            path: path.to_owned(),
            size,
            disk_file,
            kind,
            was_there,
            starts_zeroed,
            zeroing,
            parking_end: AtomicU64::new(0),
            parked_end: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            calls: RwLock::new(()),
        }
    }

    /// Opens the finished disk at `path` for a `stage` of its import that changes only parts of it. It gets at least
    /// `size` bytes, and never fewer than it has.
    ///
    /// A file has no name until [`finish`](Self::finish), even if this process is killed, and the same stage finds it
    /// again. A device is changed in place: the caller has to record which stages are done.
    ///
    /// # Errors
    /// When there is no finished disk, and as for [`open`](Self::open).
    pub fn reopen(path: &Path, size: u64, preallocate: bool, stage: &str) -> Result<Self, Error> {
        let is_device = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device());
        let opened = if is_device {
            let disk_file = DualPathFile::new(device::open(path)?, path, true);
            OpenedTarget {
                size: device::finished_length(&disk_file, path, size)?,
                disk_file,
                kind: TargetKind::Patched,
                resumed: false,
                was_there: true,
                starts_zeroed: false,
                zeroing: if preallocate { Zeroing::Write } else { Zeroing::Command },
            }
        } else {
            let file::Opened { file, partial, resumed } = file::reopen(path, size, stage)?;
            let size = file.metadata().doing("examine", partial.path())?.len();
            let zeroing = if preallocate { Zeroing::Keep } else { Zeroing::Hole };
            let disk_file = DualPathFile::new(file, partial.path(), true);
            OpenedTarget {
                size,
                disk_file: ahead_unless_kept(disk_file, zeroing, size, resumed),
                kind: TargetKind::File(partial),
                resumed,
                was_there: true,
                starts_zeroed: false,
                zeroing,
            }
        };
        Ok(Self::new(path, opened))
    }

    fn in_file(
        path: &Path,
        options: &DiskOptions,
        features: IoFeatures,
    ) -> Result<OpenedTarget, Error> {
        let file::Opened { file, partial, resumed } =
            file::open(path, options.size, options.resume)?;
        // A file system without fallocate allocates only what is written: then zeroes are written too.
        let by_writing =
            match options.preallocate.then(|| file::preallocate(&file, options.size, path)) {
                None | Some(Ok(true)) => false,
                Some(Ok(false)) => true,
                Some(Err(error)) => {
                    // The part that did fit would only take space.
                    if !resumed {
                        partial.remove()?;
                    }
                    return Err(error);
                }
            };
        let zeroing = match (options.preallocate, by_writing) {
            (false, _) => Zeroing::Hole,
            (true, false) => Zeroing::Keep,
            (true, true) => Zeroing::Write,
        };
        let disk_file = DualPathFile::new(file, partial.path(), features.direct);
        Ok(OpenedTarget {
            size: options.size,
            disk_file: ahead_unless_kept(disk_file, zeroing, options.size, resumed),
            kind: TargetKind::File(partial),
            resumed,
            was_there: false,
            starts_zeroed: !by_writing,
            zeroing,
        })
    }

    fn on_device(
        path: &Path,
        options: &DiskOptions,
        features: IoFeatures,
    ) -> Result<OpenedTarget, Error> {
        let disk_file = DualPathFile::new(device::open(path)?, path, features.direct);
        let device::Opened { device, resumed, starts_zeroed, zeroing } =
            Device::prepare(&disk_file, path, options, features.unmap)?;
        Ok(OpenedTarget {
            size: options.size,
            disk_file,
            kind: TargetKind::Device(device),
            resumed,
            was_there: false,
            starts_zeroed,
            zeroing,
        })
    }
}

/// Lets the writes to a file allocate ahead, if zeroes are holes in it.
fn ahead_unless_kept(
    file: DualPathFile,
    zeroing: Zeroing,
    size: u64,
    resumed: bool,
) -> DualPathFile {
    match zeroing {
        Zeroing::Hole => file.allocating_ahead(size, resumed),
        Zeroing::Keep
        | Zeroing::LongHole
        | Zeroing::Command
        | Zeroing::CommandWhereNotZero
        | Zeroing::Write => file,
    }
}
