//! The source volume of a clone: a device, or a tree of files.

mod segments;
mod source_file;
mod walk;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clonestream::offer::SourceIdentity;
use contract::clone::VolumeMode;
use rustix::fs::{Mode as Permissions, OFlags, ResolveFlags, openat2};
use sha2::{Digest, Sha256};

pub(crate) use self::segments::data_ranges;
pub(crate) use self::source_file::{PART_LEN, Part, SourceFile};
pub(crate) use self::walk::{TreeMember, TreeMemberKind, TreeWalk};
use crate::error::Error;

#[derive(Debug)]
pub struct SourceVolume {
    path: PathBuf,
    pub(crate) content: VolumeContent,
}

#[derive(Debug)]
pub(crate) enum VolumeContent {
    Disk(Arc<SourceFile>),
    Tree(OwnedFd),
}

/// What is known from the metadata of a volume before its content is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceSurvey {
    /// That will be read.
    pub bytes: u64,
    /// Changes with the paths, sizes and modification times of a tree. Writes to a device do not change it.
    pub identity: SourceIdentity,
}

impl SourceVolume {
    /// `path`: the device, or the mount point.
    pub fn open(path: &Path, mode: VolumeMode) -> Result<Self, Error> {
        let failed = |source| Error::Source { what: "open", path: path.to_owned(), source };
        let content = match mode {
            VolumeMode::Block => VolumeContent::Disk(Arc::new(SourceFile::open(path)?)),
            VolumeMode::Filesystem => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = rustix::fs::open(path, flags, Permissions::empty());
                VolumeContent::Tree(root.map_err(|error| failed(error.into()))?)
            }
        };
        Ok(Self { path: path.to_owned(), content })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `root` is that of this volume.
    pub(crate) fn walk<'a>(&'a self, root: &'a OwnedFd) -> TreeWalk<'a> {
        TreeWalk::new(root, &self.path)
    }

    /// Opens a file of the tree. Follows no link.
    pub(crate) fn file(&self, root: &OwnedFd, path: &[u8]) -> Result<SourceFile, Error> {
        let named = self.path.join(std::ffi::OsStr::from_bytes(path));
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let open = |more: OFlags| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | more;
            let name = std::ffi::OsStr::from_bytes(path);
            openat2(root, name, flags, Permissions::empty(), resolve).map(File::from)
        };
        let opened = open(OFlags::empty()).map_err(io::Error::from);
        SourceFile::new(named, opened, || open(OFlags::DIRECT).ok())
    }

    /// Reads all metadata, no content.
    pub(crate) fn survey(&self, preallocate: bool, owner_uid: &str) -> Result<SourceSurvey, Error> {
        let mut hash = Sha256::new();
        let mut text = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        text(owner_uid.as_bytes());
        let bytes = match &self.content {
            VolumeContent::Disk(disk) => {
                text(b"disk");
                text(&disk.size().to_le_bytes());
                disk.size()
            }
            VolumeContent::Tree(root) => {
                let mut bytes = 0_u64;
                for member in self.walk(root) {
                    let member = member?;
                    text(&member.path);
                    text(&member.size.to_le_bytes());
                    text(&member.modified.0.to_le_bytes());
                    text(&member.modified.1.to_le_bytes());
                    let read = if preallocate { member.size } else { member.allocated };
                    bytes = bytes.saturating_add(read);
                }
                bytes
            }
        };
        let mut identity = [0; 16];
        identity.copy_from_slice(&hash.finalize()[..16]);
        Ok(SourceSurvey { bytes, identity: SourceIdentity(identity) })
    }
}
