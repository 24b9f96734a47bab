//! Copies a tree of files to another volume of this pod.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipeline::start_write_back;
use pipeline::target::{DualPathFile, set_mode_of_member};
use rustix::fs::{self as sys, AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::disk::{CopyTarget, copy_parts};
use crate::error::Error;
use crate::progress::Progress;
use crate::volume::{
    PART_LEN, Part, SourceFile, SourceVolume, TreeMember, TreeMemberKind, data_ranges,
};

/// Bytes per `copy_file_range`: progress is updated in between, and the storage begins to write.
const KERNEL_COPY_MAX: u64 = 8 << 20;
/// In files with more ranges of data, the smallest holes are filled.
const RANGES_MAX: usize = 1 << 20;
/// Files of this size and more are copied as disks are: on several threads, and past the page cache.
const DISK_MIN: u64 = 16 << 20;

/// How files get their content, best first. A method that does not work between these two volumes is not tried again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum CopyMethod {
    Reflink,
    /// A server may copy by itself.
    Kernel,
    ReadAndWrite,
}

struct TreeCopier<'a> {
    target: OwnedFd,
    path: &'a Path,
    method: CopyMethod,
    preallocate: bool,
    progress: &'a Progress,
    buffer: pipeline::Buffer,
}

pub(super) fn copy(
    source: &SourceVolume,
    root: &OwnedFd,
    target: &Path,
    preallocate: bool,
    progress: &Progress,
) -> Result<(), Error> {
    let failed = |what: &'static str| {
        move |error: Errno| Error::Target { what, path: target.to_owned(), source: error.into() }
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = sys::open(target, flags, Mode::empty()).map_err(failed("open"))?;
    // Shared blocks are not preallocated: the first write to one allocates.
    let method = if preallocate { CopyMethod::ReadAndWrite } else { CopyMethod::Reflink };
    let buffer = pipeline::Pool::new(PART_LEN, 1).take();
    let mut copier =
        TreeCopier { target: directory, path: target, method, preallocate, progress, buffer };
    let mut directories = Vec::new();
    for member in source.walk(root) {
        let member = member?;
        copier.copy_member(source, root, &member)?;
        if member.kind == TreeMemberKind::Directory {
            directories.push((member.path, member.mode));
        }
    }
    // At the end, because a directory may be read-only for its owner; the deepest first.
    for (path, mode) in directories.iter().rev() {
        let directory = copier.open_directory(path).and_then(|it| set_mode_of_member(it, *mode));
        directory.map_err(|error| copier.failed("set the mode of", path, error.into()))?;
    }
    sys::syncfs(&copier.target).map_err(failed("make durable"))
}

impl TreeCopier<'_> {
    fn failed(&self, what: &'static str, path: &[u8], source: io::Error) -> Error {
        Error::Target { what, path: self.target_path(path), source }
    }

    fn target_path(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    /// In the target. Follows no link.
    fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(&self.target, OsStr::from_bytes(path), flags, Mode::empty(), resolve)
    }

    fn copy_member(
        &mut self,
        source: &SourceVolume,
        root: &OwnedFd,
        member: &TreeMember,
    ) -> Result<(), Error> {
        let path = &member.path;
        let split = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match split {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], &path[..]),
        };
        let parent =
            self.open_directory(above).map_err(|error| self.failed("open", above, error.into()))?;
        let name = OsStr::from_bytes(name);
        let created = match &member.kind {
            TreeMemberKind::Regular => {
                let content = Arc::new(source.file(root, path)?);
                return self.copy_file(&parent, name, member, &content);
            }
            TreeMemberKind::Directory => {
                match sys::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
                    // From an earlier attempt, perhaps with its final mode.
                    Err(Errno::EXIST) => self
                        .open_directory(path)
                        .and_then(|directory| set_mode_of_member(directory, 0o700)),
                    result => result,
                }
            }
            TreeMemberKind::Symlink(target) => remove_existing(&parent, name)
                .and_then(|()| sys::symlinkat(OsStr::from_bytes(target), &parent, name)),
            TreeMemberKind::HardLink(first) => remove_existing(&parent, name).and_then(|()| {
                let first = OsStr::from_bytes(first);
                sys::linkat(&self.target, first, &parent, name, AtFlags::empty())
            }),
        };
        created.map_err(|error| self.failed("create", path, error.into()))
    }

    /// The file has a temporary name until it is complete.
    fn copy_file(
        &mut self,
        parent: &OwnedFd,
        name: &OsStr,
        member: &TreeMember,
        content: &Arc<SourceFile>,
    ) -> Result<(), Error> {
        let mut partial = OsString::from(".cdi-partial-");
        // Not the member's name, which may have the maximum length already.
        partial.push(format!("{:x}", sys::fstat(content.file()).map_or(0, |stat| stat.st_ino)));
        let path = &member.path;
        remove_existing(parent, &partial)
            .map_err(|error| self.failed("remove", path, error.into()))?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = sys::openat(parent, &partial, flags, Mode::from_raw_mode(0o600));
        let file = File::from(file.map_err(|error| self.failed("create", path, error.into()))?);
        let partial_path = self.target_path(path).with_file_name(&partial);
        let filled = self.copy_content(&file, &partial_path, path, content).and_then(|()| {
            let named = set_mode_of_member(&file, member.mode)
                .and_then(|()| sys::fsync(&file))
                .and_then(|()| sys::renameat(parent, &partial, parent, name));
            named.map_err(|error| self.failed("finish", path, error.into()))
        });
        if filled.is_err() {
            // The error that is returned matters more. A file of that name is never taken for a member.
            let _ = sys::unlinkat(parent, &partial, AtFlags::empty());
        }
        filled
    }

    fn copy_content(
        &mut self,
        file: &File,
        partial_path: &Path,
        path: &[u8],
        content: &Arc<SourceFile>,
    ) -> Result<(), Error> {
        let size = content.size();
        if self.method == CopyMethod::Reflink {
            match sys::ioctl_ficlone(file, content.file()) {
                Ok(()) => {
                    self.progress.add(size);
                    return Ok(());
                }
                // Different file systems, or one without reflinks.
                Err(_) => self.method = CopyMethod::Kernel,
            }
        }
        file.set_len(size).map_err(|error| self.failed("set the size of", path, error))?;
        if self.preallocate && size > 0 {
            let allocated = sys::fallocate(file, FallocateFlags::empty(), 0, size);
            match allocated {
                // Every byte is written below, which allocates it.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(self.failed("preallocate", path, error.into())),
            }
        }
        let by_server = self.method == CopyMethod::Kernel && is_remote(file);
        if size >= DISK_MIN && !self.preallocate && !by_server {
            return self.copy_as_disk(file, partial_path, path, content);
        }
        let ranges = if self.preallocate {
            std::iter::once(0..size).collect()
        } else {
            data_ranges(content, RANGES_MAX)
        };
        for range in ranges {
            self.copy_range(file, path, content, range)?;
        }
        Ok(())
    }

    /// Copies to a new file, which reads as zeroes.
    fn copy_as_disk(
        &self,
        file: &File,
        partial_path: &Path,
        path: &[u8],
        content: &Arc<SourceFile>,
    ) -> Result<(), Error> {
        let failed = |error| self.failed("write to", path, error);
        let file = DualPathFile::new(file.try_clone().map_err(failed)?, partial_path, true)
            .allocating_ahead(content.size(), false);
        let target_path = self.target_path(path);
        let write = |at, bytes: &[u8]| file.write(at, bytes);
        let target = CopyTarget { path: &target_path, write: &write, zero: None };
        copy_parts(content, &target, self.progress)?;
        file.close().map_err(failed)
    }

    fn copy_range(
        &mut self,
        file: &File,
        path: &[u8],
        content: &Arc<SourceFile>,
        mut range: Range<u64>,
    ) -> Result<(), Error> {
        while self.method == CopyMethod::Kernel && range.start < range.end {
            let max = (range.end - range.start).min(KERNEL_COPY_MAX) as usize;
            let (mut from, mut to) = (range.start, range.start);
            match sys::copy_file_range(content.file(), Some(&mut from), file, Some(&mut to), max) {
                // Some file systems copy nothing instead of returning an error.
                Ok(0) => self.method = CopyMethod::ReadAndWrite,
                Ok(count) => {
                    let end = range.start + count as u64;
                    // A file system without it only writes later.
                    let _ = start_write_back(file, &(range.start..end));
                    range.start = end;
                    self.progress.add(count as u64);
                }
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => {
                    return Err(self.failed("write to", path, error.into()));
                }
                Err(_) => self.method = CopyMethod::ReadAndWrite,
            }
        }
        for part in content.parts(range.start, false) {
            let Part::Data(content, found) = part else { continue };
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

/// Whether a file system may be on another machine, which then copies without sending the bytes here and back.
fn is_remote(file: &File) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, tmpfs.
    const LOCAL: [sys::FsWord; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];
    sys::fstatfs(file).is_ok_and(|facts| !LOCAL.contains(&facts.f_type))
}

/// Removes what an earlier attempt has left at a name. Fails for a directory.
fn remove_existing(parent: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    match sys::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
