//! Walks a tree of files in a fixed order, without following links.

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

/// Created by the file system itself, in its root.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Nested directories: `PATH_MAX` permits more, no archive needs them.
const DEPTH_MAX: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeMember {
    /// Relative to the root, without a slash at either end.
    pub path: Vec<u8>,
    pub kind: TreeMemberKind,
    /// Bytes of a regular file's content; 0 for everything else.
    pub size: u64,
    /// Bytes that it allocates, at most `size`.
    pub allocated: u64,
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: (i64, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeMemberKind {
    Regular,
    Directory,
    Symlink(Vec<u8>),
    /// Path of an earlier member.
    HardLink(Vec<u8>),
}

/// Directories come before their members; members are sorted by name.
pub(crate) struct TreeWalk<'a> {
    root: &'a OwnedFd,
    /// Of the root, for errors.
    path: &'a Path,
    /// Directories that were entered, with their remaining names.
    open: Vec<(Vec<u8>, vec::IntoIter<Vec<u8>>)>,
    started: bool,
    /// First paths of files with several links, by device and inode.
    names: HashMap<(u64, u64), Vec<u8>>,
}

impl<'a> TreeWalk<'a> {
    pub fn new(root: &'a OwnedFd, path: &'a Path) -> Self {
        Self { root, path, open: Vec::new(), started: false, names: HashMap::new() }
    }

    fn enter_directory(&mut self, directory: Vec<u8>) -> Result<(), Error> {
        if self.open.len() == DEPTH_MAX {
            let path = self.path.join(OsStr::from_bytes(&directory));
            return Err(Error::Unsendable {
                path,
                because: "directories are nested too deeply".into(),
            });
        }
        let mut names =
            self.names_in(&directory).map_err(|error| self.failed("list", &directory, error))?;
        names.sort_unstable();
        self.open.push((directory, names.into_iter()));
        Ok(())
    }

    fn names_in(&self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let at = if directory.is_empty() { b"." } else { directory };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = openat2(self.root, OsStr::from_bytes(at), flags, Mode::empty(), resolve)?;
        let mut names = Vec::new();
        for entry in Dir::new(opened)? {
            let name = entry?.file_name().to_bytes().to_vec();
            let is_hidden = directory.is_empty() && name == LOST_AND_FOUND;
            if name != b"." && name != b".." && !is_hidden {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// `None` for sockets, devices and pipes, which are not cloned.
    fn read_member(&mut self, path: &[u8]) -> Result<Option<TreeMember>, Errno> {
        let name = OsStr::from_bytes(path);
        let stat = statat(self.root, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut size = 0;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => TreeMemberKind::Directory,
            FileType::Symlink => {
                TreeMemberKind::Symlink(readlinkat(self.root, name, Vec::new())?.into_bytes())
            }
            FileType::RegularFile => {
                let inode = (stat.st_dev as u64, stat.st_ino as u64);
                match self.names.get(&inode) {
                    Some(first) => TreeMemberKind::HardLink(first.clone()),
                    None => {
                        if stat.st_nlink > 1 {
                            self.names.insert(inode, path.to_vec());
                        }
                        size = stat.st_size.unsigned_abs();
                        TreeMemberKind::Regular
                    }
                }
            }
            other => {
                tracing::warn!("skipping {}: a {other:?} cannot be cloned", name.to_string_lossy());
                return Ok(None);
            }
        };
        Ok(Some(TreeMember {
            path: path.to_vec(),
            allocated: size.min(stat.st_blocks.unsigned_abs().saturating_mul(512)),
            kind,
            size,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        }))
    }

    fn failed(&self, what: &'static str, path: &[u8], error: Errno) -> Error {
        let path = self.path.join(OsStr::from_bytes(path));
        Error::Source { what, path, source: io::Error::from(error) }
    }

    fn next_member(&mut self) -> Result<Option<TreeMember>, Error> {
        if !self.started {
            self.started = true;
            self.enter_directory(Vec::new())?;
        }
        while let Some((directory, names)) = self.open.last_mut() {
            let Some(name) = names.next() else {
                self.open.pop();
                continue;
            };
            let path =
                if directory.is_empty() { name } else { [directory, &b"/"[..], &name].concat() };
            let member =
                self.read_member(&path).map_err(|error| self.failed("examine", &path, error))?;
            let Some(member) = member else { continue };
            if member.kind == TreeMemberKind::Directory {
                self.enter_directory(path)?;
            }
            return Ok(Some(member));
        }
        Ok(None)
    }
}

impl Iterator for TreeWalk<'_> {
    type Item = Result<TreeMember, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_member().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn members_are_sorted_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("lost+found/x")).unwrap();
        std::fs::create_dir_all(at("b/lost+found")).unwrap();
        std::fs::write(at("disk.img"), vec![1; 5000]).unwrap();
        std::fs::write(at("b/file"), b"").unwrap();
        std::fs::hard_link(at("disk.img"), at("twin")).unwrap();
        symlink("/etc", at("a")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();

        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
        let all: Vec<_> = TreeWalk::new(&root, directory.path()).map(Result::unwrap).collect();
        let names: Vec<_> =
            all.iter().map(|member| String::from_utf8_lossy(&member.path).into_owned()).collect();
        assert_eq!(names, ["a", "b", "b/file", "b/lost+found", "disk.img", "twin"]);
        assert_eq!(all[0].kind, TreeMemberKind::Symlink(b"/etc".to_vec()));
        assert_eq!((all[4].size, all[4].allocated), (5000, 5000));
        assert_eq!(all[5].kind, TreeMemberKind::HardLink(b"disk.img".to_vec()));
        assert_eq!(all[5].size, 0);
    }
}
