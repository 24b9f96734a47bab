//! A tree of files that is not visible before it is complete.
//!
//! Top-level entries get temporary names first and their own names at the very end: a rename within one directory, which
//! every kernel permits in a sandbox. The temporary names identify what a killed process left.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Mode, OFlags};

use super::tree::{EntryError, LOST_AND_FOUND, Tree, names, remove_all};
use crate::error::Error;
use crate::sys;
use crate::target::{Disk, DiskOptions, set_mode_of_member};

/// Before the number of each name at the top. A [`Disk`] that is not finished has a dot before it.
const PREFIX: &[u8] = b".cdi-clone-partial.";
/// Names at the top: they are kept in memory.
const NAMES_MAX: usize = 250_000;

/// A tree that is being created in a directory. Dropped before it [is finished](Self::finish), it leaves nothing.
pub struct Staging {
    directory: PathBuf,
    tree: Tree,
    preallocate: bool,
    names: HashMap<Vec<u8>, usize>,
    finished: bool,
}

impl Staging {
    /// Starts in the existing `directory`, without what an earlier attempt left. `preallocate`: no file gets holes.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn open(directory: &Path, preallocate: bool) -> Result<Self, Error> {
        let tree = Tree::open(directory, preallocate);
        let tree = tree.map_err(|source| failed("open", directory.to_owned(), source))?;
        remove_staged(&tree).map_err(|source| failed("clean up", directory.to_owned(), source))?;
        let (directory, names) = (directory.to_owned(), HashMap::new());
        Ok(Self { directory, tree, preallocate, names, finished: false })
    }

    /// Whether a name belongs to the archive: not to the file system, nor to an earlier attempt.
    pub fn takes(path: &[u8]) -> bool {
        let top = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        top != LOST_AND_FOUND && !is_staged(top)
    }

    /// A directory of this mode.
    ///
    /// # Errors
    /// When its name is none, or leads through a link or out of the directory, and on I/O errors. The
    /// same holds for all entries.
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

    /// Another name of a file that was created before.
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
        let path = self.directory.join(OsStr::from_bytes(&staged));
        Disk::open(&path, &DiskOptions { size, preallocate: self.preallocate, resume: false })
    }

    /// Sets the mode of what stands at the top and is no link.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn set_mode(&mut self, name: &[u8], mode: u32) -> Result<(), Error> {
        self.make(name, |tree, staged| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let name = OsStr::from_bytes(staged);
            let member = fs::openat(tree.root(), name, flags, Mode::empty())?;
            Ok(set_mode_of_member(member, mode)?)
        })
    }

    /// Ends a file that was [made](Self::make_file) and written. A network file system may report only now that it lost a
    /// write.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn finish_file(&self, path: &[u8], file: File) -> Result<(), Error> {
        sys::close(file).map_err(|source| failed("write", self.named(path), source))
    }

    /// Returns once everything is durable.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn sync(&self) -> Result<(), Error> {
        self.tree.sync().map_err(|source| failed("make durable", self.directory.clone(), source))
    }

    /// Makes everything durable and gives it its names, replacing existing entries; `last` gets its name last.
    ///
    /// # Errors
    /// On I/O errors. Nothing has a name then.
    pub fn finish(mut self, last: &[u8]) -> Result<(), Error> {
        let directory = self.directory.clone();
        let failed = |what, source| failed(what, directory, source);
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
                let _ = remove_all(self.tree.root(), OsStr::from_bytes(name)); // the first error is returned
            }
            return Err(failed("give their names to the files in", error));
        }
        self.finished = true;
        Ok(())
    }

    fn make<T>(
        &mut self,
        path: &[u8],
        make: impl FnOnce(&mut Tree, &[u8]) -> Result<T, EntryError>,
    ) -> Result<T, Error> {
        let staged = self.staged(path)?;
        make(&mut self.tree, &staged).map_err(|error| {
            let source = match error {
                EntryError::Refused(because) => {
                    io::Error::new(io::ErrorKind::InvalidInput, because)
                }
                EntryError::Read(error) | EntryError::Write(error) => error,
            };
            failed("make", self.named(path), source)
        })
    }

    /// The path of an entry while it is created.
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
                let source = io::Error::other("there are too many names next to it");
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
        self.directory.join(OsStr::from_bytes(path))
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Staging").field("folder", &self.directory).finish_non_exhaustive()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.finished
            && let Err(left) = remove_staged(&self.tree)
        {
            tracing::warn!(
                "cannot remove what was created in {}: {left}",
                self.directory.display()
            );
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

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
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
    fn files_get_their_names_once_all_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("twin/of/an/earlier/attempt")).unwrap();
        std::fs::create_dir(at("lost+found")).unwrap();
        std::fs::write(at(".cdi-clone-partial.7"), "left").unwrap();
        std::fs::write(at("..cdi-clone-partial.8.cdi-partial"), "left").unwrap();
        let mut staging = Staging::open(directory.path(), false).unwrap();
        assert_eq!(names_in(directory.path()), ["lost+found", "twin"]);
        fill(&mut staging);
        assert!(!at("disk.img").exists() && !at("b").exists() && at("twin").is_dir());
        staging.finish(b"disk.img").unwrap();
        assert_eq!(names_in(directory.path()), ["b", "disk.img", "lost+found", "twin"]);
        assert_eq!(std::fs::read(at("twin")).unwrap(), b"\0text");
        assert_eq!(std::fs::read_link(at("b/away")).unwrap(), Path::new("/etc"));
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("b"), mode("twin"), mode("disk.img")], [0o555, 0o640, 0o604]);
        let facts = std::fs::metadata(at("disk.img")).unwrap();
        assert_eq!(facts.len(), 3 << 20);
        assert!(facts.blocks() * 512 < 1 << 20, "holes are holes: {}", facts.blocks());
    }

    #[test]
    fn a_dropped_staging_area_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("note"), "of another program").unwrap();
        let mut staging = Staging::open(directory.path(), false).unwrap();
        fill(&mut staging);
        let unfinished = staging.make_disk(b"other", 1 << 20).unwrap();
        drop(staging);
        drop(unfinished);
        assert_eq!(names_in(directory.path()), ["note"]);
    }

    #[test]
    fn preallocated_files_are_fully_allocated() {
        let directory = tempfile::tempdir().unwrap();
        let mut staging = Staging::open(directory.path(), true).unwrap();
        fill(&mut staging);
        staging.make_file(b"small", 0o600, 100_000).unwrap();
        staging.finish(b"").unwrap();
        for name in ["disk.img", "small"] {
            let facts = std::fs::metadata(directory.path().join(name)).unwrap();
            assert!(facts.blocks() * 512 >= facts.len(), "{name}");
        }
    }

    #[test]
    fn paths_out_of_the_directory_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("inside");
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
        assert_eq!(names_in(directory.path()), ["inside"]);
        assert!(names_in(&inside).is_empty());
    }
}
