//! A directory into which entries of an archive are unpacked, and nothing outside of it.
//!
//! The archive may be hostile, so no step can leave the directory: a parent is opened with
//! `RESOLVE_BENEATH` and passes through no link; a name is created new or not at all; a symbolic link leads up only as far
//! as its own depth, and not up again once it has gone down. Directories are never taken away or renamed, so what was
//! checked stays true.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use formats::tar::{Archive, Entry, Kind};
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Unpacked;
use super::paths::{check_link, parts};
use crate::progress::Progress;
use crate::sys;
use crate::target::set_mode_of_member;
use crate::zeroes::{Run, runs};

/// Created by mkfs, not by a user.
pub const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Directories that their owner may not write to get their mode at the end; so many of them.
const LOCKED_MAX: usize = 100_000;
const COPY_LEN: usize = 256 << 10;
/// Until its entry comes, if one does.
const FOLDER_MODE: u32 = 0o755;
const OWNER_ALL: u32 = 0o700;

/// Why an entry was not unpacked.
pub enum EntryError {
    /// It may not be: a clause that follows its name.
    Refused(String),
    /// The archive cannot be read.
    Read(io::Error),
    /// The file system does not take it.
    Write(io::Error),
}

impl From<Errno> for EntryError {
    fn from(error: Errno) -> Self {
        Self::Write(error.into())
    }
}

/// The directory, and modes and times that are set at the end.
pub struct Tree {
    root: OwnedFd,
    locked: Vec<(Vec<u8>, u32)>,
    /// The last parent: most entries have the same one as the entry before.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
    buffer: Vec<u8>,
    preallocate: bool,
}

impl Tree {
    /// `preallocate`: no file gets holes.
    pub fn open(directory: &Path, preallocate: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(directory, flags, Mode::empty())?;
        let (locked, buffer) = (Vec::new(), vec![0; COPY_LEN]);
        Ok(Self { root, locked, last: None, buffer, preallocate })
    }

    /// Nothing is in it but what the file system puts there.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(names(self.root.as_fd())?.iter().all(|name| name == LOST_AND_FOUND))
    }

    /// Unpacks one entry, whose content is what `content` reads.
    pub fn place(
        &mut self,
        entry: &Entry,
        content: &mut Archive<impl Read>,
        unpacked: &mut Unpacked,
        progress: &Progress,
    ) -> Result<(), EntryError> {
        let parts = parts(&entry.path)?;
        let Some((name, above)) = parts.split_last() else { return Ok(()) }; // the directory itself
        if parts[0] == LOST_AND_FOUND {
            return Ok(());
        }
        if let Kind::Other = entry.kind {
            return Err(refused("is a device, a pipe or the like, and those are not unpacked"));
        }
        let parent = self.parent(above)?;
        let name = OsStr::from_bytes(name);
        match &entry.kind {
            Kind::Directory => {
                self.directory(&parent, name, &parts, entry.mode)?;
                unpacked.folders += 1;
            }
            Kind::Regular => {
                remove_file(&parent, name)?;
                let length = self.file(&parent, name, entry.mode, content, progress)?;
                unpacked.files += 1;
                unpacked.bytes_written += length;
            }
            Kind::Symlink(target) => {
                check_link(target, above.len())?;
                remove_file(&parent, name)?;
                fs::symlinkat(OsStr::from_bytes(target), &*parent, name)?;
                unpacked.links += 1;
            }
            Kind::HardLink(target) => {
                self.hard_link(target, &parent, name)?;
                unpacked.files += 1;
            }
            Kind::Other => {} // refused above
        }
        Ok(())
    }

    /// A directory of this mode.
    pub fn make_folder(&mut self, path: &[u8], mode: u32) -> Result<(), EntryError> {
        let parts = parts(path)?;
        let (name, above) = last_of(&parts)?;
        let parent = self.parent(above)?;
        self.directory(&parent, name, &parts, mode)
    }

    /// A link to wherever it leads. Nothing in here passes through it.
    pub fn make_symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), EntryError> {
        let parts = parts(path)?;
        let (name, above) = last_of(&parts)?;
        let parent = self.parent(above)?;
        remove_file(&parent, name)?;
        Ok(fs::symlinkat(OsStr::from_bytes(target), &*parent, name)?)
    }

    /// Another name of a file that is in here.
    pub fn make_hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), EntryError> {
        let parts = parts(path)?;
        let (name, above) = last_of(&parts)?;
        let parent = self.parent(above)?;
        self.hard_link(target, &parent, name)
    }

    /// A new file of `size` zeroes, to be written to.
    pub fn make_file(&mut self, path: &[u8], mode: u32, size: u64) -> Result<OwnedFd, EntryError> {
        let parts = parts(path)?;
        let (name, above) = last_of(&parts)?;
        let parent = self.parent(above)?;
        remove_file(&parent, name)?;
        let file = new_file(&parent, name)?;
        fs::ftruncate(&file, size)?;
        set_mode_of_member(&file, mode)?;
        if self.preallocate && size > 0 {
            match fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
                Ok(()) => {}
                // Then every byte is allocated by writing it.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeroes(&file, size)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(file)
    }

    fn write_zeroes(&mut self, file: &OwnedFd, size: u64) -> Result<(), EntryError> {
        self.buffer.fill(0);
        let mut at = 0;
        while at < size {
            let len = (size - at).min(COPY_LEN as u64);
            write_all(file, at, &self.buffer[..len as usize])?;
            at += len;
        }
        Ok(())
    }

    /// The directory itself.
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Gives directories the modes that would have been in the way.
    pub fn finish(&mut self) -> io::Result<()> {
        for (path, mode) in self.locked.drain(..).rev() {
            set_mode_of_member(&beneath(&self.root, &path, OFlags::RDONLY)?, mode)?;
        }
        Ok(())
    }

    /// Returns once everything would survive a power cut.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.root)?)
    }

    /// Takes everything out but what the file system put there.
    pub fn clear(&self) -> io::Result<()> {
        for name in names(self.root.as_fd())? {
            if name != LOST_AND_FOUND {
                remove_all(&self.root, OsStr::from_bytes(&name))?;
            }
        }
        Ok(())
    }

    /// The directory at this path. Missing ones are created.
    fn parent(&mut self, above: &[&[u8]]) -> Result<Arc<OwnedFd>, EntryError> {
        let path = above.join(&b'/');
        if let Some((last, directory)) = &self.last
            && *last == path
        {
            return Ok(Arc::clone(directory));
        }
        let mut found = beneath(&self.root, &path, OFlags::PATH);
        if matches!(found, Err(Errno::NOENT)) {
            for depth in 1..=above.len() {
                let (name, before) = (above[depth - 1], &above[..depth - 1]);
                let parent = beneath(&self.root, &before.join(&b'/'), OFlags::PATH)?;
                match fs::mkdirat(&parent, name, Mode::from_raw_mode(FOLDER_MODE)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            found = beneath(&self.root, &path, OFlags::PATH);
        }
        let directory = Arc::new(found.map_err(|error| match error {
            Errno::LOOP => refused("passes through a link"),
            Errno::NOTDIR => refused("lies below something that is no folder"),
            other => other.into(),
        })?);
        self.last = Some((path, Arc::clone(&directory)));
        Ok(directory)
    }

    fn directory(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        parts: &[&[u8]],
        mode: u32,
    ) -> Result<(), EntryError> {
        let made = fs::mkdirat(parent, name, Mode::from_raw_mode(OWNER_ALL));
        match made {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                if kind_of(parent, name)? != FileType::Directory {
                    fs::unlinkat(parent, name, AtFlags::empty())?;
                    fs::mkdirat(parent, name, Mode::from_raw_mode(OWNER_ALL))?;
                }
            }
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::openat(parent, name, flags, Mode::empty())?;
        set_mode_of_member(&directory, mode | OWNER_ALL)?;
        if mode & OWNER_ALL != OWNER_ALL {
            if self.locked.len() == LOCKED_MAX {
                return Err(refused("is one read-only folder too many"));
            }
            self.locked.push((parts.join(&b'/'), mode));
        }
        Ok(())
    }

    fn file(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        mode: u32,
        content: &mut Archive<impl Read>,
        progress: &Progress,
    ) -> Result<u64, EntryError> {
        let file = new_file(parent, name)?;
        let (mut length, mut written_to) = (0_u64, 0);
        loop {
            if !self.preallocate {
                let hole = content.skip_hole();
                length += hole;
                progress.add_zero(hole);
            }
            let count = match content.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(EntryError::Read(error)),
            };
            for run in runs(&self.buffer[..count], length) {
                let range = match run {
                    Run::Zero(range) if !self.preallocate => {
                        progress.add_zero(range.len() as u64);
                        continue;
                    }
                    Run::Zero(range) | Run::Data(range) => range,
                };
                let at = length + range.start as u64;
                written_to = at + range.len() as u64;
                progress.add_written(range.len() as u64);
                write_all(&file, at, &self.buffer[range])?;
            }
            length += count as u64;
        }
        if written_to < length {
            fs::ftruncate(&file, length)?;
        }
        set_mode_of_member(&file, mode)?;
        // A network file system may report only now that it lost a write.
        sys::close(file.into()).map_err(EntryError::Write)?;
        Ok(length)
    }

    /// Another name of a regular file in here. A symbolic link at another depth would lead elsewhere.
    fn hard_link(
        &mut self,
        target: &[u8],
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<(), EntryError> {
        let wrong = || refused("is a hard link to something that is no file in the folder");
        let parts = parts(target).map_err(|_| wrong())?;
        let (file, above) = parts.split_last().ok_or_else(wrong)?;
        let file = OsStr::from_bytes(file);
        let directory =
            beneath(&self.root, &above.join(&b'/'), OFlags::PATH).map_err(|_| wrong())?;
        if kind_of(&directory, file).map_err(|_| wrong())? != FileType::RegularFile {
            return Err(wrong());
        }
        match fs::linkat(&directory, file, parent, name, AtFlags::empty()) {
            Err(Errno::EXIST) => {
                if same_file(&directory, file, parent, name)? {
                    return Ok(());
                }
                remove_file(parent, name)?;
                Ok(fs::linkat(&directory, file, parent, name, AtFlags::empty())?)
            }
            result => Ok(result?),
        }
    }
}

/// The last part of a name, and those above it. The directory itself has none.
fn last_of<'a>(parts: &'a [&'a [u8]]) -> Result<(&'a OsStr, &'a [&'a [u8]]), EntryError> {
    let (name, above) = parts.split_last().ok_or_else(|| refused("is no name"))?;
    Ok((OsStr::from_bytes(name), above))
}

fn new_file(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))
}

fn write_all(file: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<(), EntryError> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(EntryError::Write(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub fn refused(because: &str) -> EntryError {
    EntryError::Refused(because.to_owned())
}

/// A directory in this one, reached without any link.
fn beneath(root: &OwnedFd, path: &[u8], how: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = how | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat2(root, OsStr::from_bytes(path), flags, Mode::empty(), resolve)
}

fn kind_of(parent: &OwnedFd, name: &OsStr) -> Result<FileType, Errno> {
    let found = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(found.st_mode))
}

fn same_file(a: &OwnedFd, a_name: &OsStr, b: &OwnedFd, b_name: &OsStr) -> Result<bool, Errno> {
    let one = fs::statat(a, a_name, AtFlags::SYMLINK_NOFOLLOW)?;
    let other = fs::statat(b, b_name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Removes an existing file, as after an earlier attempt. A directory is not removed.
fn remove_file(parent: &OwnedFd, name: &OsStr) -> Result<(), EntryError> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(refused("stands where there is a folder already")),
        Err(error) => Err(error.into()),
    }
}

/// Removes whatever has this name, without following anything. As deep as `DEPTH_MAX` and what was there before.
pub fn remove_all(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        result => return Ok(result?),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // Read-only for its owner, as the archive wanted it; a directory, or opening would have failed.
            fs::chmodat(parent, name, Mode::from_raw_mode(OWNER_ALL), AtFlags::empty())?;
            fs::openat(parent, name, flags, Mode::empty())?
        }
        result => result?,
    };
    set_mode_of_member(&directory, OWNER_ALL)?;
    for inner in names(directory.as_fd())? {
        remove_all(&directory, OsStr::from_bytes(&inner))?;
    }
    Ok(fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

pub fn names(directory: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}
