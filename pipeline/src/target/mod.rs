//! Targets on this machine: a disk in a regular file or on a block device.
//!
//! An unfinished disk never looks finished: a file gets its name, and a device its first MiB, when all the rest is
//! durable. What a killed process leaves can be continued. This module never decides what is written where.

mod allocation;
mod device;
mod dual_path_file;
mod file;
mod free_space;
mod io_error;
mod mode;
mod old_data;
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
use self::io_error::{Doing, plain, refused};
pub use self::mode::{set_mode, set_mode_of_member};
use self::unmap::UnmapLimits;
use crate::error::Error;
use crate::sink::{ParkingSpace, Sink, write_each_at};

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
struct IoFeatures {
    direct: bool,
    /// Let a device zero itself before the import.
    unmap: Option<UnmapLimits>,
}

impl IoFeatures {
    const ALL: Self = Self { direct: true, unmap: Some(UnmapLimits::DEFAULT) };
}

enum TargetKind {
    File(Partial),
    Device(Device),
    /// A device with a finished disk, changed in place.
    Patched,
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

    fn open_with(path: &Path, options: &DiskOptions, features: IoFeatures) -> Result<Self, Error> {
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

    /// Shrinks the disk to `size`, for a stream whose length is known only at its end. With `preallocate`, what remains
    /// is allocated now.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn end_at(&mut self, size: u64, preallocate: bool) -> Result<(), Error> {
        if size >= self.size {
            return Ok(());
        }
        if let TargetKind::File(_) = &self.kind {
            self.disk_file.file().set_len(size).doing("set the length of", &self.path)?;
            if preallocate && !file::preallocate(self.disk_file.file(), size, &self.path)? {
                return Err(refused(
                    "preallocate",
                    &self.path,
                    "the file system cannot do that for a disk whose size is known only at its end; give --size",
                ));
            }
        } else if !self.starts_zeroed {
            self.zero_at(size, self.size - size).doing("write zeroes to", &self.path)?;
        }
        self.size = size;
        Ok(())
    }

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

    /// Makes everything durable and the disk visible: a file gets its name, a device its first bytes. The rest of a
    /// larger device reads as zeroes.
    ///
    /// If [`starts_zeroed`](Sink::starts_zeroed) is false, everything from 0 to the size has to have been written
    /// or zeroed before.
    ///
    /// # Errors
    /// On I/O errors, of closing too, and when any earlier call has failed. The disk is not visible then, except that a
    /// file has its name if only the sync of its directory failed. A new file that could not be made durable is removed:
    /// which of its bytes the storage has lost is unknown.
    pub fn finish(self) -> Result<(), Error> {
        let intact = self.intact().doing("finish", &self.path);
        let parked_end = self.parked_end.load(Ordering::Relaxed);
        match self.kind {
            TargetKind::File(partial) => {
                let close = || {
                    let file = self.disk_file.file();
                    // Parked bytes that lie behind the disk end here, durably with the `close` before the name is given.
                    if parked_end > self.size {
                        file.set_len(self.size).doing("set the length of", &self.path)?;
                    }
                    self.disk_file.close().doing("make durable", &self.path)
                };
                let durable = intact.and_then(|()| close());
                if durable.is_err() && !self.was_there {
                    let _ = partial.remove(); // the first error is the cause
                    return durable;
                }
                durable.and_then(|()| partial.rename())
            }
            TargetKind::Device(device) => {
                intact?;
                device
                    .finish(&self.disk_file, self.zeroing, parked_end)
                    .doing("make durable", &self.path)?;
                self.disk_file.close().doing("make durable", &self.path)
            }
            TargetKind::Patched => {
                intact?;
                self.disk_file.close().doing("make durable", &self.path)
            }
        }
    }

    /// Removes what was written: nothing is left that could be resumed or looks like a disk. A disk that
    /// [was there](Self::was_there) before is kept for the stage to be repeated; a file without its name.
    ///
    /// # Errors
    /// On I/O errors. A device then still has no first MiB of a disk, unless it had when it was opened.
    pub fn abandon(self) -> Result<(), Error> {
        match self.kind {
            TargetKind::File(_) if self.was_there => Ok(()),
            TargetKind::Patched => Ok(()),
            TargetKind::File(partial) => partial.remove(),
            TargetKind::Device(device) => device.abandon(&self.disk_file).doing("wipe", &self.path),
        }
    }

    fn device(&self) -> Option<&Device> {
        match &self.kind {
            TargetKind::File(_) | TargetKind::Patched => None,
            TargetKind::Device(device) => Some(device),
        }
    }

    fn intact(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier write to it has failed"));
        }
        Ok(())
    }

    /// Rejects what crosses the end: a file would grow, and the rest of a device has to stay zero.
    fn contains(&self, at: u64, len: u64) -> io::Result<()> {
        if at.checked_add(len).is_none_or(|end| end > self.size) {
            let text =
                format!("{len} bytes at {at} cross the end of a disk of {} bytes", self.size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// As [`contains`](Self::contains), for parked bytes, which may lie behind the end.
    fn contains_parked(&self, at: u64, len: u64) -> io::Result<()> {
        let parking_end = self.parking_end.load(Ordering::Relaxed);
        if at.checked_add(len).is_some_and(|end| end <= parking_end) {
            return Ok(());
        }
        self.contains(at, len)
    }

    fn record_failure<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _call = self.calls.read();
        act().map_err(|error| {
            self.broken.store(true, Ordering::Relaxed);
            plain(error)
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

impl Sink for Disk {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.record_failure(|| {
            self.contains(at, bytes.len() as u64)?;
            let held = self.device().map_or(0, |device| device.hold(at, bytes));
            self.disk_file.write(at + held as u64, &bytes[held..])
        })
    }

    fn write_pieces_at(&self, at: u64, pieces: &[&[u8]]) -> io::Result<()> {
        if self.device().is_some_and(|device| at < device.held_back()) {
            return write_each_at(self, at, pieces);
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.record_failure(|| {
            self.contains(at, len)?;
            self.disk_file.write_pieces(at, pieces)
        })
    }

    fn zero_at(&self, at: u64, len: u64) -> io::Result<()> {
        self.record_failure(|| {
            self.contains(at, len)?;
            let held = self.device().map_or(0, |device| device.hold_zeroes(at, len)) as u64;
            self.disk_file.zero(self.zeroing, at + held, len - held)
        })
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        // A failed read counts too: the kernel may report here that an earlier write was lost.
        self.record_failure(|| {
            self.contains(at, buffer.len() as u64)?;
            let held = self.device().map_or(0, |device| device.read_held(at, buffer));
            self.disk_file.read(at + held as u64, &mut buffer[held..])
        })
    }

    fn parking_space(&self, file_max: u64) -> ParkingSpace {
        let space = match &self.kind {
            TargetKind::File(_) if !self.was_there => {
                file::parking_space(self.disk_file.file(), self.size, file_max)
            }
            TargetKind::Device(device) => device.parking_space(),
            TargetKind::File(_) | TargetKind::Patched => ParkingSpace {
                range: 0..0,
                limited_by: "the disk of the stage before is changed in place".to_owned(),
            },
        };
        self.parking_end.store(space.range.end, Ordering::Relaxed);
        space
    }

    fn park_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.record_failure(|| {
            let len = bytes.len() as u64;
            self.contains_parked(at, len)?;
            // First: a write that fails may have made the file longer.
            self.parked_end.fetch_max(at + len, Ordering::Relaxed);
            let held = self.device().map_or(0, |device| device.hold(at, bytes));
            self.disk_file.write(at + held as u64, &bytes[held..])
        })
    }

    fn read_parked_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.record_failure(|| {
            self.contains_parked(at, buffer.len() as u64)?;
            let held = self.device().map_or(0, |device| device.read_held(at, buffer));
            self.disk_file.read(at + held as u64, &mut buffer[held..])
        })
    }

    fn clear_parked_at(&self, at: u64, len: u64) -> io::Result<()> {
        let inside = self.size.saturating_sub(at).min(len);
        if inside > 0 {
            self.zero_at(at, inside)?;
        }
        self.record_failure(|| {
            self.contains_parked(at, len)?;
            // A file is cut there in the end, also one whose disk is preallocated.
            let how = self.device().map_or(Zeroing::Hole, |_| self.zeroing);
            self.disk_file.zero(how, at + inside, len - inside)
        })
    }

    fn starts_zeroed(&self) -> bool {
        self.starts_zeroed
    }

    fn sync(&self) -> io::Result<()> {
        self.intact()?;
        self.record_failure(|| self.disk_file.sync())?;
        // The kernel may have reported a lost write to another thread, which is about to set `broken`.
        drop(self.calls.write());
        self.intact()
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
