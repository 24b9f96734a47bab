//! One tree of files to another, on volumes of this pod.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::error::Error;
use crate::progress::Progress;
use crate::volume::{Content, Member, MemberKind, PIECE_LEN, Part, Volume, data_of};

/// What the kernel copies between two looks at how far it is.
const STRIDE: u64 = 64 << 20;
/// Ranges of data in one file, beyond which small holes are filled.
const RANGES_MAX: usize = 1 << 20;

/// How a file gets its content, best first. A way that does not work between these two volumes is not tried again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Way {
    Reflink,
    Kernel,
    ReadAndWrite,
}

struct Copier<'a> {
    target: OwnedFd,
    path: &'a Path,
    way: Way,
    preallocate: bool,
    progress: &'a Progress,
    buffer: pipeline::Buffer,
}

pub(super) fn copy(
    source: &Volume,
    root: &OwnedFd,
    target: &Path,
    preallocate: bool,
    progress: &Progress,
) -> Result<(), Error> {
    let failed = |what: &'static str| {
        move |error: Errno| Error::Target { what, path: target.to_owned(), source: error.into() }
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = sys::open(target, flags, Mode::empty()).map_err(failed("open"))?;
    // Shared blocks are no room of one's own.
    let way = if preallocate { Way::ReadAndWrite } else { Way::Reflink };
    let buffer = pipeline::Pool::new(PIECE_LEN, 1).take();
    let mut copier = Copier { target: folder, path: target, way, preallocate, progress, buffer };
    let mut folders = Vec::new();
    for member in source.walk(root) {
        let member = member?;
        copier.member(source, root, &member)?;
        if member.kind == MemberKind::Directory {
            folders.push((member.path, member.mode));
        }
    }
    // Last, as a folder may be read-only for its owner, and first what lies deepest.
    for (path, mode) in folders.iter().rev() {
        let folder = copier.folder(path).and_then(|it| sys::fchmod(it, Mode::from_raw_mode(*mode)));
        folder.map_err(|error| copier.failed("set the mode of", path, error.into()))?;
    }
    sys::syncfs(&copier.target).map_err(failed("make durable"))
}

impl Copier<'_> {
    fn failed(&self, what: &'static str, path: &[u8], source: io::Error) -> Error {
        Error::Target { what, path: self.named(path), source }
    }

    fn named(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    /// A folder of the target, without following any link.
    fn folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(&self.target, OsStr::from_bytes(path), flags, Mode::empty(), resolve)
    }

    fn member(&mut self, source: &Volume, root: &OwnedFd, member: &Member) -> Result<(), Error> {
        let path = &member.path;
        let split = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match split {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], &path[..]),
        };
        let parent =
            self.folder(above).map_err(|error| self.failed("open", above, error.into()))?;
        let name = OsStr::from_bytes(name);
        let made = match &member.kind {
            MemberKind::Regular => {
                let content = Arc::new(source.file(root, path)?);
                return self.file(&parent, name, member, &content);
            }
            MemberKind::Directory => {
                match sys::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
                    // Of an earlier attempt, which may have closed it.
                    Err(Errno::EXIST) => self
                        .folder(path)
                        .and_then(|folder| sys::fchmod(folder, Mode::from_raw_mode(0o700))),
                    result => result,
                }
            }
            MemberKind::Symlink(target) => replaced(&parent, name)
                .and_then(|()| sys::symlinkat(OsStr::from_bytes(target), &parent, name)),
            MemberKind::HardLink(first) => replaced(&parent, name).and_then(|()| {
                let first = OsStr::from_bytes(first);
                sys::linkat(&self.target, first, &parent, name, AtFlags::empty())
            }),
        };
        made.map_err(|error| self.failed("make", path, error.into()))
    }

    /// A file without its name until it is complete.
    fn file(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        member: &Member,
        content: &Arc<Content>,
    ) -> Result<(), Error> {
        let mut partial = OsString::from(".cdi-partial-");
        // A name may be as long as names get; the number tells members apart as well.
        partial.push(format!("{:x}", sys::fstat(content.file()).map_or(0, |facts| facts.st_ino)));
        let path = &member.path;
        replaced(parent, &partial).map_err(|error| self.failed("remove", path, error.into()))?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = sys::openat(parent, &partial, flags, Mode::from_raw_mode(0o600));
        let file = File::from(file.map_err(|error| self.failed("make", path, error.into()))?);
        let filled = self.fill(&file, path, content).and_then(|()| {
            let named = sys::fchmod(&file, Mode::from_raw_mode(member.mode))
                .and_then(|()| sys::fsync(&file))
                .and_then(|()| sys::renameat(parent, &partial, parent, name));
            named.map_err(|error| self.failed("finish", path, error.into()))
        });
        if filled.is_err() {
            // What failed is told; that this is left is not, as nobody takes it for anything.
            let _ = sys::unlinkat(parent, &partial, AtFlags::empty());
        }
        filled
    }

    fn fill(&mut self, file: &File, path: &[u8], content: &Arc<Content>) -> Result<(), Error> {
        let size = content.size();
        if self.way == Way::Reflink {
            match sys::ioctl_ficlone(file, content.file()) {
                Ok(()) => {
                    self.progress.add(size);
                    return Ok(());
                }
                // Two file systems, or one that cannot share.
                Err(_) => self.way = Way::Kernel,
            }
        }
        file.set_len(size).map_err(|error| self.failed("size", path, error))?;
        if self.preallocate && size > 0 {
            let room = sys::fallocate(file, FallocateFlags::empty(), 0, size);
            match room {
                // Then every byte is written below, and has its room by that.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(self.failed("preallocate", path, error.into())),
            }
        }
        let ranges = match self.preallocate {
            true => std::iter::once(0..size).collect(),
            false => data_of(content, RANGES_MAX),
        };
        for range in ranges {
            self.range(file, path, content, range)?;
        }
        Ok(())
    }

    fn range(
        &mut self,
        file: &File,
        path: &[u8],
        content: &Arc<Content>,
        mut range: Range<u64>,
    ) -> Result<(), Error> {
        while self.way == Way::Kernel && range.start < range.end {
            let most = (range.end - range.start).min(STRIDE) as usize;
            let (mut from, mut to) = (range.start, range.start);
            match sys::copy_file_range(content.file(), Some(&mut from), file, Some(&mut to), most) {
                // Some file systems copy nothing instead of saying that they cannot.
                Ok(0) => self.way = Way::ReadAndWrite,
                Ok(count) => {
                    range.start += count as u64;
                    self.progress.add(count as u64);
                }
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => {
                    return Err(self.failed("write to", path, error.into()));
                }
                Err(_) => self.way = Way::ReadAndWrite,
            }
        }
        for piece in content.parts(range.start, false) {
            let Part::Data(content, found) = piece else { continue };
            if found.start >= range.end {
                break;
            }
            let len = (found.end.min(range.end) - found.start) as usize;
            content.read(found.start, len, &mut self.buffer)?;
            file.write_all_at(&self.buffer[..len], found.start)
                .map_err(|error| self.failed("write to", path, error))?;
            self.progress.add(len as u64);
        }
        Ok(())
    }
}

/// Makes room for a name, as after an earlier attempt. A folder is not taken away.
fn replaced(parent: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    match sys::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
