//! File systems of their own: of a known kind and size, possible to fill up.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tempfile::{NamedTempFile, TempDir};

use crate::arguments;
use crate::sys;
use crate::tool::{Tool, require_tool, skip};

/// Attempts to unmount a file system in use, and how much longer each pause is than the one before.
const UNMOUNTS_MAX: u32 = 10;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// What to format with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// Debian's default.
    Ext4,
    /// Wants 300 MiB and more.
    Xfs,
    /// Wants 110 MiB and more.
    Btrfs,
    /// In memory; does not support O_DIRECT on older kernels.
    Tmpfs,
}

/// A mounted file system; unmounted on drop.
#[derive(Debug)]
pub struct FileSystem {
    umount: Tool,
    folder: Option<TempDir>,
    /// The image file below; tmpfs has none.
    _image: Option<NamedTempFile>,
}

impl FileSystem {
    /// A new file system of `len` bytes. `None` without root or the programs that create it: the test is skipped.
    ///
    /// # Panics
    /// In CI when something is missing; anywhere when it cannot be made.
    pub fn new(kind: FileSystemKind, len: u64) -> Option<Self> {
        let image = NamedTempFile::with_prefix("testkit-fs-").expect("cannot create an image file");
        image.as_file().set_len(len).expect("cannot size an image file");
        let path = image.path().to_owned();
        let options = arguments!["-o", "loop", path];
        match kind {
            FileSystemKind::Ext4 => {
                let prompt = "lazy_itable_init=0,lazy_journal_init=0";
                require_tool("mkfs.ext4")?
                    .run(arguments!["-q", "-F", "-m", "0", "-E", prompt, path]);
                Self::mount(Some(image), &options)
            }
            FileSystemKind::Xfs => {
                require_tool("mkfs.xfs")?.run(arguments!["-q", "-f", path]);
                Self::mount(Some(image), &options)
            }
            FileSystemKind::Btrfs => {
                require_tool("mkfs.btrfs")?.run(arguments!["-q", "-f", path]);
                Self::mount(Some(image), &options)
            }
            FileSystemKind::Tmpfs => {
                let size = format!("size={len}");
                Self::mount(None, &arguments!["-t", "tmpfs", "-o", size, "testkit"])
            }
        }
    }

    /// The file system on a device or in an image file, mounted read-only.
    ///
    /// # Panics
    /// As for [`FileSystem::new`].
    pub fn read_only(path: &Path) -> Option<Self> {
        let device = path.starts_with("/dev");
        let options = if device { "ro,noload" } else { "ro,noload,loop" };
        Self::mount(None, &arguments!["-o", options, path])
    }

    /// Mounts a device that holds a file system.
    ///
    /// # Panics
    /// As for [`FileSystem::new`].
    pub fn of_device(path: &Path) -> Option<Self> {
        Self::mount(None, &arguments![path])
    }

    /// Mounts an image file that holds a file system.
    ///
    /// # Panics
    /// As for [`FileSystem::new`].
    pub fn of_image(path: &Path) -> Option<Self> {
        Self::mount(None, &arguments!["-o", "loop", path])
    }

    pub fn path(&self) -> &Path {
        self.folder.as_ref().expect("there until it is dropped").path()
    }

    /// Occupies all but about `free` bytes, with a file of the name [`FileSystem::FILLER`].
    ///
    /// # Panics
    /// When so much is not free.
    pub fn fill_until(&self, free: u64) {
        let path = self.path().join(Self::FILLER);
        let filler = std::fs::File::create(&path).expect("cannot create the filler");
        let mut len = 0;
        let mut piece_max = u64::MAX;
        // The tables of the filler take space too, and the last pieces of free space are small.
        for _ in 0..64 {
            filler.sync_all().expect("cannot sync the filler");
            let found = rustix::fs::statvfs(&path).expect("cannot query the free space");
            let available = found.f_bavail * found.f_frsize;
            assert!(len > 0 || available >= free, "only {available} bytes are free");
            let piece = available.saturating_sub(free).min(piece_max);
            if piece < 64 << 10 {
                break;
            }
            let allocate = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&filler, allocate, len, piece) {
                Ok(()) => len += piece,
                Err(rustix::io::Errno::NOSPC) => piece_max = piece / 2,
                Err(error) => panic!("cannot fill: {error}"),
            }
        }
    }

    /// The name of the file that [`FileSystem::fill_until`] creates.
    pub const FILLER: &str = "filler";

    /// From now on nothing can be written.
    pub fn make_read_only(&self) {
        if let Some(mount) = require_tool("mount") {
            mount.run(arguments!["-o", "remount,ro", self.path()]);
        }
    }

    fn mount(image: Option<NamedTempFile>, options: &[OsString]) -> Option<Self> {
        let (mount, umount) = (require_tool("mount")?, require_tool("umount")?);
        if !sys::is_root() {
            skip("mounting needs root");
            return None;
        }
        let folder = TempDir::with_prefix("testkit-mount-").expect("cannot create a mount point");
        mount.run(options.iter().cloned().chain(arguments![folder.path()]));
        Some(Self { umount, folder: Some(folder), _image: image })
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let mut unmounts = (0..UNMOUNTS_MAX).map(|attempt| {
            // A program that another test starts has our open files, until it has closed them as it begins.
            std::thread::sleep(UNMOUNT_PAUSE * attempt);
            self.umount.command([self.path()]).status()
        });
        if !unmounts.any(|unmounted| unmounted.is_ok_and(|status| status.success())) {
            // Removing the folder would now remove what is on the file system.
            let folder = self.folder.take().map(TempDir::keep);
            eprintln!("{folder:?} stays mounted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_can_be_written_until_it_is_full_or_read_only() {
        for (kind, len) in [(FileSystemKind::Ext4, 8 << 20), (FileSystemKind::Tmpfs, 1 << 20)] {
            let Some(file_system) = FileSystem::new(kind, len) else { return };
            std::fs::write(file_system.path().join("small"), b"hello").unwrap();
            assert!(
                std::fs::write(file_system.path().join("large"), vec![1; len as usize]).is_err()
            );
            file_system.make_read_only();
            assert!(std::fs::write(file_system.path().join("more"), b"hello").is_err(), "{kind:?}");
        }
    }
}
