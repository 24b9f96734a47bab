//! Targets on this machine: a disk in a regular file or on a block device.
//!
//! Nothing half-written ever looks finished: a file gets its name, and a device its first block, when all the rest is
//! durable. What a killed process leaves can be gone on with. What it never does: decide what goes where.

mod device;
mod fault;
mod file;
mod lanes;
mod space;
#[cfg(test)]
mod tests;
mod write_back;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use self::device::Device;
use self::fault::{Doing, plain, refused};
use self::file::Partial;
pub use self::file::length_of_stage;
use self::lanes::{Lanes, Zeroing};
pub use self::space::available;
use crate::error::Error;
use crate::sink::{Sink, write_each_at};

/// Where the journal of a file lies, unless the user has said where. A device has no folder of its own.
pub fn journal_beside(path: &Path) -> Option<PathBuf> {
    let is_device = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device());
    let name = path.file_name().filter(|_| !is_device)?.to_string_lossy().into_owned();
    Some(path.with_file_name(format!(".{name}.cdi-journal")))
}

/// How to open a [`Disk`].
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Bytes of the disk: on a device its virtual size, in a file the length that the file will have.
    pub size: u64,
    /// Every byte gets its room on the storage: in a file at once, on a device by writing zeroes too.
    pub preallocate: bool,
    /// Go on with what an earlier process has left, if it is there ([`Disk::is_resumed`]). Otherwise that is removed.
    pub resume: bool,
}

/// Tells one unfinished import from all others into the same target. For a journal, to be compared and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Of the file: its file system.
    device: u64,
    /// Of the file: its number there.
    inode: u64,
    /// Bytes of the file or device.
    length: u64,
    /// Of a file the time of its birth, on a device a random number written to it.
    mark: u64,
}

/// A disk that is being written, from [`Disk::open`] to [`Disk::finish`].
///
/// Dropped without either `finish` or [`abandon`](Self::abandon), it stays unfinished for a later process to resume.
/// The first [`held_back`](Self::held_back) bytes are then lost: a journal must never claim them.
pub struct Disk {
    path: PathBuf,
    size: u64,
    lanes: Lanes,
    place: Place,
    resumed: bool,
    /// It was a finished disk before, of which only parts are changed.
    was_there: bool,
    starts_zeroed: bool,
    zeroing: Zeroing,
    /// Something failed: what was written may be lost, and no later success can bring it back.
    broken: AtomicBool,
    /// Held by whoever may be about to say so: an error of storage is told once, to one of all that ask.
    at_work: RwLock<()>,
}

/// What to try before the way that works everywhere, which only tests turn to at once.
#[derive(Clone, Copy, Debug)]
struct Ways {
    /// Direct I/O.
    direct: bool,
    /// Letting a device zero itself.
    unmap: bool,
}

impl Ways {
    const ALL: Self = Self { direct: true, unmap: true };
}

enum Place {
    File(Partial),
    Device(Device),
    /// A device with a disk on it, changed where it is.
    Patched,
}

impl Disk {
    /// Opens a target for one import. A file is made beside its name, `.NAME.cdi-partial`, and has its whole length
    /// from the start; NAME itself stays as it is until [`finish`](Self::finish). An old disk on a device is gone, unless
    /// it is resumed.
    ///
    /// A device is zeroed if it can do that by itself, which takes a moment on a large one.
    ///
    /// # Errors
    /// When the path is something else (or leads to something else) than a file or a block device, when another
    /// import or a mount uses it, when the device is too small ([`Error::TooLarge`]), when there is no room, and
    /// whatever the operating system says.
    pub fn open(path: &Path, options: &DiskOptions) -> Result<Self, Error> {
        Self::open_with(path, options, Ways::ALL)
    }

    fn open_with(path: &Path, options: &DiskOptions, ways: Ways) -> Result<Self, Error> {
        let disk = match fs::metadata(path) {
            Ok(facts) if facts.file_type().is_block_device() => {
                Self::on_device(path, options, ways)?
            }
            Ok(facts) if facts.is_dir() => {
                return Err(refused(
                    "write to",
                    path,
                    "it is a folder: a file in it has to be named",
                ));
            }
            Ok(facts) if !facts.is_file() => {
                return Err(refused("write to", path, "it is neither a file nor a block device"));
            }
            // A file that is not there, or cannot be: making it will tell.
            Ok(_) | Err(_) => Self::in_file(path, options, ways)?,
        };
        tracing::debug!(
            target.path = %path.display(),
            target.direct = disk.lanes.is_direct(),
            target.resumed = disk.resumed,
            target.starts_zeroed = disk.starts_zeroed,
            target.zeroing = ?disk.zeroing,
            "{} is open",
            path.display()
        );
        Ok(disk)
    }

    /// Opens the finished disk at `path` for a `stage` of its import that changes only parts of it. It gets at least
    /// `size` bytes, and never fewer than it has.
    ///
    /// A file is without its name until [`finish`](Self::finish), whatever happens to this process, and the same stage
    /// finds it again. A device shows the changes while they are made: whoever starts the stages has to know which are
    /// done.
    ///
    /// # Errors
    /// When there is no finished disk, and as for [`open`](Self::open).
    pub fn reopen(path: &Path, size: u64, preallocate: bool, stage: &str) -> Result<Self, Error> {
        let is_device = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device());
        let (lanes, place, size, resumed, zeroing) = if is_device {
            let lanes = Lanes::new(device::open(path)?, path, true);
            let length = device::finished_length(&lanes, path, size)?;
            let zeroing = if preallocate { Zeroing::Write } else { Zeroing::Command };
            (lanes, Place::Patched, length, false, zeroing)
        } else {
            let file::Opened { file, partial, resumed } = file::reopen(path, size, stage)?;
            let size = file.metadata().doing("examine", partial.path())?.len();
            let zeroing = if preallocate { Zeroing::Keep } else { Zeroing::Hole };
            (Lanes::new(file, partial.path(), true), Place::File(partial), size, resumed, zeroing)
        };
        Ok(Self {
            path: path.to_owned(),
            size,
            lanes,
            place,
            resumed,
            was_there: true,
            starts_zeroed: false,
            zeroing,
            broken: AtomicBool::new(false),
            at_work: RwLock::new(()),
        })
    }

    fn in_file(path: &Path, options: &DiskOptions, ways: Ways) -> Result<Self, Error> {
        let file::Opened { file, partial, resumed } =
            file::open(path, options.size, options.resume)?;
        // Where there is no such call, each byte gets its room by being written: the zeroes too.
        let by_writing =
            match options.preallocate.then(|| file::preallocate(&file, options.size, path)) {
                None | Some(Ok(true)) => false,
                Some(Ok(false)) => true,
                Some(Err(error)) => {
                    // What did fit would only be in the way.
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
        Ok(Self {
            path: path.to_owned(),
            size: options.size,
            lanes: Lanes::new(file, partial.path(), ways.direct),
            place: Place::File(partial),
            resumed,
            was_there: false,
            starts_zeroed: !by_writing,
            zeroing,
            broken: AtomicBool::new(false),
            at_work: RwLock::new(()),
        })
    }

    fn on_device(path: &Path, options: &DiskOptions, ways: Ways) -> Result<Self, Error> {
        let lanes = Lanes::new(device::open(path)?, path, ways.direct);
        let device::Opened { device, resumed, starts_zeroed, zeroing } =
            Device::prepare(&lanes, path, options, ways.unmap)?;
        Ok(Self {
            path: path.to_owned(),
            size: options.size,
            lanes,
            place: Place::Device(device),
            resumed,
            was_there: false,
            starts_zeroed,
            zeroing,
            broken: AtomicBool::new(false),
            at_work: RwLock::new(()),
        })
    }

    /// The disk turns out to end at `size`, before the size it was opened with: a stream tells its length last. What
    /// lies behind is dropped; with `preallocate` the rest gets its room now.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn end_at(&mut self, size: u64, preallocate: bool) -> Result<(), Error> {
        if size >= self.size {
            return Ok(());
        }
        if let Place::File(_) = &self.place {
            self.lanes.file().set_len(size).doing("set the length of", &self.path)?;
            if preallocate && !file::preallocate(self.lanes.file(), size, &self.path)? {
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

    /// The file or device, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What an earlier process has written is still there.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether it was opened by [`reopen`](Self::reopen).
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    /// What a journal has to hold, to be believed when this import is resumed.
    pub fn partial_identity(&self) -> Identity {
        match &self.place {
            Place::File(partial) => partial.identity(),
            Place::Device(device) => device.identity(),
            Place::Patched => Identity { device: 0, inode: 0, length: self.size, mark: 0 },
        }
    }

    /// So many bytes at the beginning are in memory only, until [`finish`](Self::finish): on a device the first MiB, in a
    /// file none. Whoever resumes has to write them again.
    pub fn held_back(&self) -> u64 {
        self.device().map_or(0, Device::held_back)
    }

    /// Makes everything durable and the disk visible: a file gets its name, a device its first bytes, and what it has
    /// behind the disk reads as zeroes.
    ///
    /// Where [`starts_zeroed`](Sink::starts_zeroed) is false, everything from 0 to the size has to have been written
    /// or zeroed before.
    ///
    /// # Errors
    /// Of the operating system, at closing too, and when any call before has failed. The disk is not visible then; but if
    /// only making the folder durable has failed, a file does have its name.
    pub fn finish(self) -> Result<(), Error> {
        self.intact().doing("finish", &self.path)?;
        match self.place {
            Place::File(partial) => {
                self.lanes.close().doing("make durable", &self.path)?;
                partial.rename()
            }
            Place::Device(device) => {
                device.finish(&self.lanes, self.zeroing).doing("make durable", &self.path)?;
                self.lanes.close().doing("make durable", &self.path)
            }
            Place::Patched => self.lanes.close().doing("make durable", &self.path),
        }
    }

    /// Gives up for good: nothing is left that could be resumed or taken for a disk. What [was there](Self::was_there)
    /// before stays, for the same stage to be done again; a file without its name.
    ///
    /// # Errors
    /// Of the operating system. A device then still holds no beginning of a disk, unless it did when it was opened.
    pub fn abandon(self) -> Result<(), Error> {
        match self.place {
            Place::File(_) if self.was_there => Ok(()),
            Place::Patched => Ok(()),
            Place::File(partial) => partial.remove(),
            Place::Device(device) => device.abandon(&self.lanes).doing("wipe", &self.path),
        }
    }

    fn device(&self) -> Option<&Device> {
        match &self.place {
            Place::File(_) | Place::Patched => None,
            Place::Device(device) => Some(device),
        }
    }

    fn intact(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier write to it has failed"));
        }
        Ok(())
    }

    /// Nothing may reach over the end: a file would grow, and a device has a tail to be kept clean.
    fn contains(&self, at: u64, len: u64) -> io::Result<()> {
        if at.checked_add(len).is_none_or(|end| end > self.size) {
            let text =
                format!("{len} bytes at {at} reach over the end of a disk of {} bytes", self.size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    fn remembering<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _at_work = self.at_work.read().unwrap_or_else(PoisonError::into_inner);
        act().map_err(|error| {
            self.broken.store(true, Ordering::Relaxed);
            plain(error)
        })
    }
}

impl Sink for Disk {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.remembering(|| {
            self.contains(at, bytes.len() as u64)?;
            let held = self.device().map_or(0, |device| device.hold(at, bytes));
            self.lanes.write(at + held as u64, &bytes[held..])
        })
    }

    fn write_pieces_at(&self, at: u64, pieces: &[&[u8]]) -> io::Result<()> {
        if self.device().is_some_and(|device| at < device.held_back()) {
            return write_each_at(self, at, pieces);
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.remembering(|| {
            self.contains(at, len)?;
            self.lanes.write_pieces(at, pieces)
        })
    }

    fn zero_at(&self, at: u64, len: u64) -> io::Result<()> {
        self.remembering(|| {
            self.contains(at, len)?;
            let held = self.device().map_or(0, |device| device.hold_zeroes(at, len)) as u64;
            self.lanes.zero(self.zeroing, at + held, len - held)
        })
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        // Remembered as well: it may be told here that something written before is lost.
        self.remembering(|| {
            self.contains(at, buffer.len() as u64)?;
            let held = self.device().map_or(0, |device| device.read_held(at, buffer));
            self.lanes.read(at + held as u64, &mut buffer[held..])
        })
    }

    fn starts_zeroed(&self) -> bool {
        self.starts_zeroed
    }

    fn sync(&self) -> io::Result<()> {
        self.intact()?;
        self.remembering(|| self.lanes.sync())?;
        // What was lost before that may have been told to another thread, which is about to remember it.
        drop(self.at_work.write().unwrap_or_else(PoisonError::into_inner));
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
