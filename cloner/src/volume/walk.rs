//! Going through a tree of files: the same way each time, and without following any link.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::vec;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat};
use rustix::io::Errno;

use crate::error::Error;

/// What file systems put there themselves, at the top.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Folders in each other. No archive has more, and neither has a path.
const DEPTH_MAX: usize = 1000;

/// Something in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Below the root, without a slash at either end.
    pub path: Vec<u8>,
    pub kind: MemberKind,
    /// Bytes of a regular file's content; 0 for everything else.
    pub size: u64,
    /// Bytes of room that it takes, as far as it is content.
    pub allocated: u64,
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: (i64, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    Regular,
    Directory,
    Symlink(Vec<u8>),
    /// Another name of a member before.
    HardLink(Vec<u8>),
}

/// All members, folders before what is in them, in the order of their names.
pub(crate) struct Walk<'a> {
    root: &'a OwnedFd,
    /// Of the root, for messages.
    path: &'a Path,
    /// Folders that were entered, and what in them is still to come.
    open: Vec<(Vec<u8>, vec::IntoIter<Vec<u8>>)>,
    begun: bool,
    /// First names of files that have several.
    names: HashMap<(u64, u64), Vec<u8>>,
}

impl<'a> Walk<'a> {
    pub fn new(root: &'a OwnedFd, path: &'a Path) -> Self {
        Self { root, path, open: Vec::new(), begun: false, names: HashMap::new() }
    }

    fn enter(&mut self, folder: Vec<u8>) -> Result<(), Error> {
        if self.open.len() == DEPTH_MAX {
            let path = self.path.join(OsStr::from_bytes(&folder));
            return Err(Error::Unsendable { path, because: "it lies too deep".into() });
        }
        let mut names =
            self.names_in(&folder).map_err(|error| self.failed("list", &folder, error))?;
        names.sort_unstable();
        self.open.push((folder, names.into_iter()));
        Ok(())
    }

    fn names_in(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let at = if folder.is_empty() { b"." } else { folder };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = openat2(self.root, OsStr::from_bytes(at), flags, Mode::empty(), resolve)?;
        let mut names = Vec::new();
        for entry in Dir::new(opened)? {
            let name = entry?.file_name().to_bytes().to_vec();
            let is_hidden = folder.is_empty() && name == LOST_AND_FOUND;
            if name != b"." && name != b".." && !is_hidden {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// `None` for what is not cloned.
    fn member(&mut self, path: &[u8]) -> Result<Option<Member>, Errno> {
        let name = OsStr::from_bytes(path);
        let facts = statat(self.root, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut size = 0;
        let kind = match FileType::from_raw_mode(facts.st_mode) {
            FileType::Directory => MemberKind::Directory,
            FileType::Symlink => {
                MemberKind::Symlink(readlinkat(self.root, name, Vec::new())?.into_bytes())
            }
            FileType::RegularFile => {
                let number = (facts.st_dev as u64, facts.st_ino as u64);
                match self.names.get(&number) {
                    Some(first) => MemberKind::HardLink(first.clone()),
                    None => {
                        if facts.st_nlink > 1 {
                            self.names.insert(number, path.to_vec());
                        }
                        size = facts.st_size.unsigned_abs();
                        MemberKind::Regular
                    }
                }
            }
            other => {
                tracing::warn!("{}, a {other:?}, is left out", name.to_string_lossy());
                return Ok(None);
            }
        };
        Ok(Some(Member {
            path: path.to_vec(),
            allocated: size.min(facts.st_blocks.unsigned_abs().saturating_mul(512)),
            kind,
            size,
            mode: facts.st_mode & 0o7777,
            owner: (facts.st_uid, facts.st_gid),
            modified: (facts.st_mtime as i64, facts.st_mtime_nsec as u32),
        }))
    }

    fn failed(&self, what: &'static str, path: &[u8], error: Errno) -> Error {
        let path = self.path.join(OsStr::from_bytes(path));
        Error::Source { what, path, source: io::Error::from(error) }
    }

    fn advance(&mut self) -> Result<Option<Member>, Error> {
        if !self.begun {
            self.begun = true;
            self.enter(Vec::new())?;
        }
        while let Some((folder, names)) = self.open.last_mut() {
            let Some(name) = names.next() else {
                self.open.pop();
                continue;
            };
            let path = if folder.is_empty() { name } else { [folder, &b"/"[..], &name].concat() };
            let member =
                self.member(&path).map_err(|error| self.failed("examine", &path, error))?;
            let Some(member) = member else { continue };
            if member.kind == MemberKind::Directory {
                self.enter(path)?;
            }
            return Ok(Some(member));
        }
        Ok(None)
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Member, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn all_members_come_in_order_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("lost+found/x")).unwrap();
        std::fs::create_dir_all(at("b/lost+found")).unwrap();
        std::fs::write(at("disk.img"), vec![1; 5000]).unwrap();
        std::fs::write(at("b/file"), b"").unwrap();
        std::fs::hard_link(at("disk.img"), at("twin")).unwrap();
        symlink("/etc", at("a")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();

        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = rustix::fs::open(folder.path(), flags, Mode::empty()).unwrap();
        let all: Vec<_> = Walk::new(&root, folder.path()).map(Result::unwrap).collect();
        let names: Vec<_> =
            all.iter().map(|member| String::from_utf8_lossy(&member.path).into_owned()).collect();
        assert_eq!(names, ["a", "b", "b/file", "b/lost+found", "disk.img", "twin"]);
        assert_eq!(all[0].kind, MemberKind::Symlink(b"/etc".to_vec()));
        assert_eq!((all[4].size, all[4].allocated), (5000, 5000));
        assert_eq!(all[5].kind, MemberKind::HardLink(b"disk.img".to_vec()));
        assert_eq!(all[5].size, 0);
    }
}
