//! A tree of files that is not to be seen before it is complete.
//!
//! Whatever stands at the top of it gets a name of ours, beside its own, and its own at the very end: a rename within one
//! folder, which every kernel lets a confined process do. What a killed process leaves is told by those names.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode};

use super::tree::{LOST_AND_FOUND, Tree, Trouble, names, remove_all};
use crate::error::Error;
use crate::target::{Disk, DiskOptions};

/// Before the number of each name at the top. A [`Disk`] that is not finished has a dot before it.
const PREFIX: &[u8] = b".cdi-clone-partial.";
/// Names at the top: they are kept in memory.
const NAMES_MAX: usize = 250_000;

/// A tree that is being made in a folder. Dropped before it [is finished](Self::finish), it leaves nothing.
pub struct Staging {
    folder: PathBuf,
    tree: Tree,
    preallocate: bool,
    /// Their numbers.
    names: HashMap<Vec<u8>, usize>,
    finished: bool,
}

impl Staging {
    /// Begins in `folder`, which exists, with nothing of an earlier attempt. `preallocate`: no file gets holes.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn open(folder: &Path, preallocate: bool) -> Result<Self, Error> {
        let tree = Tree::open(folder, preallocate);
        let tree = tree.map_err(|source| failed("open", folder.to_owned(), source))?;
        remove_staged(&tree).map_err(|source| failed("tidy up", folder.to_owned(), source))?;
        let (folder, names) = (folder.to_owned(), HashMap::new());
        Ok(Self { folder, tree, preallocate, names, finished: false })
    }

    /// Whether a name is one that is made here: not what a file system has of its own, nor what an attempt has left.
    pub fn takes(path: &[u8]) -> bool {
        let top = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        top != LOST_AND_FOUND && !is_staged(top)
    }

    /// A folder of this mode.
    ///
    /// # Errors
    /// When its name is none, or leads through a link or out of the folder, and whatever the operating system says. The
    /// same holds for all that is made here.
    pub fn make_folder(&mut self, path: &[u8], mode: u32) -> Result<(), Error> {
        self.make(path, |tree, staged| tree.make_folder(staged, mode))
    }

    /// A symbolic link. It may lead anywhere: nothing is reached through it here.
    ///
    /// # Errors
    /// See [`make_folder`](Self::make_folder).
    pub fn make_symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), Error> {
        self.make(path, |tree, staged| tree.make_symlink(staged, target))
    }

    /// Another name of a file that was made before.
    ///
    /// # Errors
    /// See [`make_folder`](Self::make_folder).
    pub fn make_hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Error> {
        let target = self.staged(target)?;
        self.make(path, |tree, staged| tree.make_hard_link(staged, &target))
    }

    /// A file of `size` zeroes, to be written to.
    ///
    /// # Errors
    /// See [`make_folder`](Self::make_folder).
    pub fn make_file(&mut self, path: &[u8], mode: u32, size: u64) -> Result<File, Error> {
        self.make(path, |tree, staged| tree.make_file(staged, mode, size)).map(File::from)
    }

    /// A large file at the top, written by several threads and past the page cache. It is part of the tree once it is
    /// [finished](Disk::finish).
    ///
    /// # Errors
    /// See [`make_folder`](Self::make_folder).
    pub fn make_disk(&mut self, name: &[u8], size: u64) -> Result<Disk, Error> {
        if name.contains(&b'/') {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not at the top");
            return Err(failed("make", self.named(name), source));
        }
        let staged = self.staged(name)?;
        let path = self.folder.join(OsStr::from_bytes(&staged));
        Disk::open(&path, &DiskOptions { size, preallocate: self.preallocate, resume: false })
    }

    /// Sets the mode of what stands at the top and is no link.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn set_mode(&mut self, name: &[u8], mode: u32) -> Result<(), Error> {
        self.make(name, |tree, staged| {
            let mode = Mode::from_raw_mode(mode);
            Ok(fs::chmodat(tree.root(), OsStr::from_bytes(staged), mode, AtFlags::empty())?)
        })
    }

    /// Returns once all that was made would survive a power cut.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn sync(&self) -> Result<(), Error> {
        self.tree.sync().map_err(|source| failed("make durable", self.folder.clone(), source))
    }

    /// Makes everything durable and gives it its names, in place of what had them; to `last` the last one.
    ///
    /// # Errors
    /// Of the operating system. Nothing has a name then.
    pub fn finish(mut self, last: &[u8]) -> Result<(), Error> {
        let folder = self.folder.clone();
        let failed = |what, source| failed(what, folder, source);
        if let Err(error) = self.tree.finish() {
            return Err(failed("set the modes of folders in", error));
        }
        if let Err(error) = self.tree.sync() {
            return Err(failed("make durable", error));
        }
        let mut all: Vec<_> = self.names.iter().map(|(name, number)| (&**name, *number)).collect();
        all.sort_by_key(|(name, number)| (*name == last, *number));
        let mut named = Vec::with_capacity(all.len());
        let outcome = all.iter().try_for_each(|(name, number)| {
            rename(&self.tree, &staged_name(*number), name)?;
            named.push(*name);
            Ok(())
        });
        if let Err(error) = outcome.and_then(|()| self.tree.sync()) {
            for name in named {
                let _ = remove_all(self.tree.root(), OsStr::from_bytes(name)); // the first error is told
            }
            return Err(failed("give their names to the files in", error));
        }
        self.finished = true;
        Ok(())
    }

    fn make<T>(
        &mut self,
        path: &[u8],
        make: impl FnOnce(&mut Tree, &[u8]) -> Result<T, Trouble>,
    ) -> Result<T, Error> {
        let staged = self.staged(path)?;
        make(&mut self.tree, &staged).map_err(|trouble| {
            let source = match trouble {
                Trouble::Refused(because) => io::Error::new(io::ErrorKind::InvalidInput, because),
                Trouble::Read(error) | Trouble::Write(error) => error,
            };
            failed("make", self.named(path), source)
        })
    }

    /// The path under which something is made.
    fn staged(&mut self, path: &[u8]) -> Result<Vec<u8>, Error> {
        let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
        let (top, below) = path.split_at(end);
        let count = self.names.len();
        let number = match self.names.get(top) {
            Some(number) => *number,
            None if matches!(top, b"" | b"." | b"..") || !Self::takes(top) => {
                let source = io::Error::new(io::ErrorKind::InvalidInput, "it cannot be named so");
                return Err(failed("make", self.named(path), source));
            }
            None if count == NAMES_MAX => {
                let source = io::Error::other("there are too many names beside it");
                return Err(failed("make", self.named(path), source));
            }
            None => {
                self.names.insert(top.to_vec(), count);
                count
            }
        };
        Ok([&staged_name(number), below].concat())
    }

    fn named(&self, path: &[u8]) -> PathBuf {
        self.folder.join(OsStr::from_bytes(path))
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Staging").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.finished
            && let Err(left) = remove_staged(&self.tree)
        {
            tracing::warn!("what was begun in {} stays: {left}", self.folder.display());
        }
    }
}

fn failed(what: &'static str, path: PathBuf, source: io::Error) -> Error {
    Error::Target { what, path, source }
}

fn staged_name(number: usize) -> Vec<u8> {
    [PREFIX, number.to_string().as_bytes()].concat()
}

fn is_staged(name: &[u8]) -> bool {
    name.strip_prefix(b".").is_some_and(|rest| rest.starts_with(PREFIX)) || name.starts_with(PREFIX)
}

fn remove_staged(tree: &Tree) -> io::Result<()> {
    for name in names(tree.root())? {
        if is_staged(&name) {
            remove_all(tree.root(), OsStr::from_bytes(&name))?;
        }
    }
    Ok(())
}

fn rename(tree: &Tree, from: &[u8], to: &[u8]) -> io::Result<()> {
    let (root, from, to) = (tree.root(), OsStr::from_bytes(from), OsStr::from_bytes(to));
    match remove_all(root, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(fs::renameat(root, from, root, to)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

    use super::*;
    use crate::Sink;

    fn names_in(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn fill(staging: &mut Staging) {
        staging.make_folder(b"b", 0o555).unwrap();
        staging.make_file(b"b/file", 0o640, 5).unwrap().write_all_at(b"text", 1).unwrap();
        staging.make_hard_link(b"twin", b"b/file").unwrap();
        staging.make_symlink(b"b/away", b"/etc").unwrap();
        let disk = staging.make_disk(b"disk.img", 3 << 20).unwrap();
        disk.write_at(1 << 20, &[1; 8192]).unwrap();
        disk.finish().unwrap();
        staging.set_mode(b"disk.img", 0o604).unwrap();
    }

    #[test]
    fn nothing_has_its_name_before_everything_has() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("twin/of/an/earlier/attempt")).unwrap();
        std::fs::create_dir(at("lost+found")).unwrap();
        std::fs::write(at(".cdi-clone-partial.7"), "left").unwrap();
        std::fs::write(at("..cdi-clone-partial.8.cdi-partial"), "left").unwrap();
        let mut staging = Staging::open(folder.path(), false).unwrap();
        assert_eq!(names_in(folder.path()), ["lost+found", "twin"]);
        fill(&mut staging);
        assert!(!at("disk.img").exists() && !at("b").exists() && at("twin").is_dir());
        staging.finish(b"disk.img").unwrap();
        assert_eq!(names_in(folder.path()), ["b", "disk.img", "lost+found", "twin"]);
        assert_eq!(std::fs::read(at("twin")).unwrap(), b"\0text");
        assert_eq!(std::fs::read_link(at("b/away")).unwrap(), Path::new("/etc"));
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("b"), mode("twin"), mode("disk.img")], [0o555, 0o640, 0o604]);
        let facts = std::fs::metadata(at("disk.img")).unwrap();
        assert_eq!(facts.len(), 3 << 20);
        assert!(facts.blocks() * 512 < 1 << 20, "holes are holes: {}", facts.blocks());
    }

    #[test]
    fn what_is_given_up_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("note"), "of somebody else").unwrap();
        let mut staging = Staging::open(folder.path(), false).unwrap();
        fill(&mut staging);
        let unfinished = staging.make_disk(b"other", 1 << 20).unwrap();
        drop(staging);
        drop(unfinished);
        assert_eq!(names_in(folder.path()), ["note"]);
    }

    #[test]
    fn preallocated_files_have_all_their_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut staging = Staging::open(folder.path(), true).unwrap();
        fill(&mut staging);
        staging.make_file(b"small", 0o600, 100_000).unwrap();
        staging.finish(b"").unwrap();
        for name in ["disk.img", "small"] {
            let facts = std::fs::metadata(folder.path().join(name)).unwrap();
            assert!(facts.blocks() * 512 >= facts.len(), "{name}");
        }
    }

    #[test]
    fn nothing_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let mut staging = Staging::open(&inside, false).unwrap();
        staging.make_symlink(b"up", b"..").unwrap();
        staging.make_symlink(b"deep/up", b"../..").unwrap();
        for path in [
            "up/file",
            "deep/up/file",
            "../file",
            "deep/../../file",
            "..",
            "",
            "/file",
            "deep//../x",
        ] {
            assert!(staging.make_file(path.as_bytes(), 0o600, 0).is_err(), "{path}");
            assert!(staging.make_folder(path.as_bytes(), 0o700).is_err(), "{path}");
            assert!(staging.make_hard_link(path.as_bytes(), b"deep/up").is_err(), "{path}");
            assert!(staging.make_disk(path.as_bytes(), 0).is_err(), "{path}");
        }
        for own in ["lost+found", "lost+found/x", ".cdi-clone-partial.0", "..cdi-clone-partial.x"] {
            assert!(!Staging::takes(own.as_bytes()));
            assert!(staging.make_file(own.as_bytes(), 0o600, 0).is_err(), "{own}");
        }
        drop(staging);
        assert_eq!(names_in(folder.path()), ["inside"]);
        assert!(names_in(&inside).is_empty());
    }
}
