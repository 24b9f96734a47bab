//! A disk in a regular file, which gets its name when it is complete.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use contract::Hasher;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, NFS_SUPER_MAGIC, OFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use super::Identity;
use super::device::{BETWEEN_TRIES, TRIES};
use super::free_space::spare_bytes;
use super::io_error::{Doing, failed, refused};
use super::mode::set_mode;
use crate::error::Error;
use crate::sink::ParkingSpace;

/// The group has to read and write it too: a virtual machine runs as another user.
const MODE: u32 = 0o660;

/// The unfinished file, next to its final name.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    name: PathBuf,
    identity: Identity,
    /// Shares the lock of the open file, and so keeps it until the file has its name.
    lock: File,
}

/// Result of [`open`].
pub struct Opened {
    pub file: File,
    pub partial: Partial,
    pub resumed: bool,
}

/// `.NAME.cdi-partial`, in the directory of `name`.
pub fn partial_path(name: &Path) -> Option<PathBuf> {
    let mut partial = OsString::from(".");
    partial.push(name.file_name()?);
    partial.push(".cdi-partial");
    Some(name.with_file_name(partial))
}

/// Path of a disk while a stage of its import changes it: `.NAME.cdi-delta-STAGE`.
pub fn delta_path(name: &Path, stage: &str) -> Option<PathBuf> {
    let mut hasher = Hasher::sha256();
    hasher.update(stage.as_bytes());
    let digest = hasher.finish().to_string(); // a stage may be called anything, and be long
    let short: String = digest.trim_start_matches("sha256:").chars().take(16).collect();
    let mut path = delta_prefix(name)?;
    path.push(short);
    Some(name.with_file_name(path))
}

fn delta_prefix(name: &Path) -> Option<OsString> {
    let mut prefix = OsString::from(".");
    prefix.push(name.file_name()?);
    prefix.push(".cdi-delta-");
    Some(prefix)
}

/// Disks with an unfinished stage.
fn deltas(name: &Path) -> Vec<PathBuf> {
    let (Some(prefix), Ok(entries)) = (delta_prefix(name), fs::read_dir(directory_of(name))) else {
        return vec![];
    };
    let is_one = |found: &OsString| found.as_bytes().starts_with(prefix.as_bytes());
    let names = entries.flatten().map(|entry| entry.file_name()).filter(is_one);
    names.map(|found| name.with_file_name(found)).collect()
}

/// Bytes of the disk in the file `name`, also while a stage of its import changes it. 0 where there is none.
pub fn length_of_stage(name: &Path) -> u64 {
    let files = deltas(name).into_iter().chain([name.to_owned()]);
    let lengths = files.filter_map(|path| fs::symlink_metadata(path).ok()).filter(|f| f.is_file());
    lengths.map(|facts| facts.len()).max().unwrap_or(0)
}

/// Opens the finished disk `name` to be changed, or one that an earlier process did not finish changing to the same
/// stage. It loses its name until it is finished, keeps all its bytes, and gets at least `size` of them.
pub fn reopen(name: &Path, size: u64, stage: &str) -> Result<Opened, Error> {
    let path = delta_path(name, stage).ok_or_else(|| refused("open", name, "it names no file"))?;
    let (file, resumed) = match existing(name)? {
        Some(file) => {
            fs::rename(name, &path).doing("take the name of", name)?;
            // Before the first change: otherwise a power cut could leave a changed disk under its name.
            let directory = directory_of(name);
            sync_directory(directory).doing("make durable", directory)?;
            (file, false)
        }
        None => match existing(&path)? {
            Some(file) => (file, true),
            None if deltas(name).is_empty() => {
                return Err(refused("change", name, "the disk of the stage before is not there"));
            }
            None => {
                let because = "another stage of its import was not finished; begin with the first";
                return Err(refused("change", name, because));
            }
        },
    };
    if file.metadata().doing("examine", &path)?.len() < size {
        file.set_len(size).doing("set the length of", &path)?;
    }
    let length = file.metadata().doing("examine", &path)?.len();
    let partial = Partial::new(path, name, &file, length)?;
    if !partial.is_in_place() {
        return Err(in_use(name));
    }
    Ok(Opened { file, partial, resumed })
}

/// Opens or creates the unfinished file of `size` bytes for `name`.
pub fn open(name: &Path, size: u64, resume: bool) -> Result<Opened, Error> {
    let path = partial_path(name).ok_or_else(|| refused("open", name, "it names no file"))?;
    if let Some(file) = existing(&path)? {
        if resume && file.metadata().doing("examine", &path)?.len() == size {
            let partial = Partial::new(path, name, &file, size)?;
            return Ok(Opened { file, partial, resumed: true });
        }
        fs::remove_file(&path).doing("remove", &path)?;
    }
    for stale in deltas(name) {
        fs::remove_file(&stale).doing("remove", &stale)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(MODE);
    let file = options.open(&path).doing("create", &path)?;
    lock(&file, &path)?;
    let partial = Partial::new(path, name, &file, size)?;
    if !partial.is_in_place() {
        return Err(in_use(name));
    }
    // The mode again, because the process may have taken bits away from new files. The length at once, because direct
    // writes that extend a file wait for each other.
    let prepared = set_mode(&file, MODE, MODE)
        .map_err(io::Error::from)
        .doing("set the mode of", name)
        .and_then(|()| file.set_len(size).doing("set the length of", name));
    match prepared {
        Ok(()) => Ok(Opened { file, partial, resumed: false }),
        Err(error) => {
            partial.remove()?;
            Err(error)
        }
    }
}

/// The unfinished file that an earlier process has left, unless that process still holds the lock.
fn existing(path: &Path) -> Result<Option<File>, Error> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.doing("open", path)?,
    };
    if !file.metadata().doing("examine", path)?.is_file() {
        return Err(refused("use", path, "it is no regular file"));
    }
    lock(&file, path)?;
    Ok(Some(file))
}

fn lock(file: &File, path: &Path) -> Result<(), Error> {
    // There, a lock of a node that is gone can stay forever, and would block the next process.
    if rustix::fs::fstatfs(file).is_ok_and(|facts| facts.f_type == NFS_SUPER_MAGIC) {
        return Ok(());
    }
    let try_lock = || rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    let mut locked = try_lock();
    for _ in 1..TRIES {
        if locked != Err(Errno::WOULDBLOCK) {
            break;
        }
        thread::sleep(BETWEEN_TRIES);
        locked = try_lock();
    }
    match locked {
        Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        // Without locks, the caller has to prevent concurrent imports.
        _ => Ok(()),
    }
}

fn in_use(path: &Path) -> Error {
    let error = io::Error::new(io::ErrorKind::ResourceBusy, "another import is writing it");
    failed("open", path, error)
}

/// Allocates the file. False if the file system cannot, so that only writing allocates.
pub fn preallocate(file: &File, size: u64, name: &Path) -> Result<bool, Error> {
    if size == 0 {
        return Ok(true);
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(failed("preallocate", name, error.into())),
    }
}

/// Where bytes may be parked in the unfinished `file` of `size` bytes: up to `file_max`, and in half of what the file
/// system has free once the whole disk is allocated, because other programs may need the rest meanwhile.
pub fn parking_space(file: &File, size: u64, file_max: u64) -> ParkingSpace {
    let spare = spare_bytes(file, size).unwrap_or(0) / 2;
    let end = size.saturating_add(spare).min(file_max.max(size));
    let limited_by = format!("the volume has space for {} bytes behind the disk", end - size);
    ParkingSpace { range: 0..end, limited_by }
}

impl Partial {
    fn new(path: PathBuf, name: &Path, file: &File, length: u64) -> Result<Self, Error> {
        let identity = identity(file, length).doing("examine", &path)?;
        let lock = file.try_clone().doing("open", &path)?;
        Ok(Self { path, name: name.to_owned(), identity, lock })
    }

    /// Where the file is until it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The path still means the open file.
    fn is_in_place(&self) -> bool {
        let (Ok(named), Ok(open)) = (fs::symlink_metadata(&self.path), self.lock.metadata()) else {
            return false;
        };
        (named.dev(), named.ino()) == (open.dev(), open.ino())
    }

    /// Gives the file its name, in place of what had it before. The content is durable already.
    pub fn rename(self) -> Result<(), Error> {
        if !self.is_in_place() {
            return Err(refused("finish", &self.path, "it was removed or replaced meanwhile"));
        }
        fs::rename(&self.path, &self.name).doing("give its name to", &self.name)?;
        let directory = directory_of(&self.name);
        sync_directory(directory).doing("make durable", directory)
    }

    /// Removes the file.
    pub fn remove(self) -> Result<(), Error> {
        if self.is_in_place() {
            fs::remove_file(&self.path).doing("remove", &self.path)?;
        }
        Ok(())
    }
}

/// Makes the names in a directory durable, where the file system can: some have no such operation for directories, and POSIX
/// has EINVAL for that.
///
/// # Errors
/// On I/O errors.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

/// The directory that a name is in.
pub fn directory_of(name: &Path) -> &Path {
    name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn identity(file: &File, length: u64) -> io::Result<Identity> {
    let facts = file.metadata()?;
    // Distinguishes a new file from an old one with the same inode number. Not all file systems support it.
    let born = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
        .ok()
        .filter(|facts| facts.stx_mask & StatxFlags::BTIME.bits() != 0)
        .map(|facts| {
            let born = facts.stx_btime;
            (born.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(born.tv_nsec.into())
        });
    Ok(Identity { device: facts.dev(), inode: facts.ino(), length, mark: born.unwrap_or(0) })
}
