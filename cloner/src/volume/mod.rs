//! The source of a clone: a device, or a tree of files.

mod content;
mod segments;
mod walk;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clonestream::offer::Identity;
use contract::clone::VolumeMode;
use rustix::fs::{Mode as Permissions, OFlags, ResolveFlags, openat2};
use sha2::{Digest, Sha256};

pub(crate) use self::content::{Content, PIECE_LEN, Part};
pub(crate) use self::segments::data_of;
pub(crate) use self::walk::{Member, MemberKind, Walk};
use crate::error::Error;

/// A volume that is read.
#[derive(Debug)]
pub struct Volume {
    path: PathBuf,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Disk(Arc<Content>),
    Tree(OwnedFd),
}

/// What is known of a volume before its content is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survey {
    /// Bytes that have to be read.
    pub bytes: u64,
    /// Tells it from all others, and from itself after a change of its files.
    pub identity: Identity,
}

impl Volume {
    /// The device, or the mounted file system, at `path`.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn open(path: &Path, mode: VolumeMode) -> Result<Self, Error> {
        let failed = |source| Error::Source { what: "open", path: path.to_owned(), source };
        let kind = match mode {
            VolumeMode::Block => Kind::Disk(Arc::new(Content::open(path)?)),
            VolumeMode::Filesystem => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = rustix::fs::open(path, flags, Permissions::empty());
                Kind::Tree(root.map_err(|error| failed(error.into()))?)
            }
        };
        Ok(Self { path: path.to_owned(), kind })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The members of the tree below `root`, which is this volume's.
    pub(crate) fn walk<'a>(&'a self, root: &'a OwnedFd) -> Walk<'a> {
        Walk::new(root, &self.path)
    }

    /// A file of the tree, without following any link.
    pub(crate) fn file(&self, root: &OwnedFd, path: &[u8]) -> Result<Content, Error> {
        let named = self.path.join(std::ffi::OsStr::from_bytes(path));
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let open = |more: OFlags| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | more;
            let name = std::ffi::OsStr::from_bytes(path);
            openat2(root, name, flags, Permissions::empty(), resolve).map(File::from)
        };
        let opened = open(OFlags::empty()).map_err(io::Error::from);
        Content::new(named, opened, || open(OFlags::DIRECT).ok())
    }

    /// Looks at everything but content.
    pub(crate) fn survey(&self, preallocate: bool, owner_uid: &str) -> Result<Survey, Error> {
        let mut hash = Sha256::new();
        let mut text = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        text(owner_uid.as_bytes());
        let bytes = match &self.kind {
            Kind::Disk(disk) => {
                text(b"disk");
                text(&disk.size().to_le_bytes());
                disk.size()
            }
            Kind::Tree(root) => {
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
        Ok(Survey { bytes, identity: Identity(identity) })
    }
}
