//! A file system that obeys the rules of a network file system (NFS with `root_squash`), which the local ones do not show.
//!
//! The kernel of a test machine may have no NFS client, so a program of this process serves it through FUSE. What differs from
//! a local file system:
//!
//! | Rule | Here |
//! |---|---|
//! | everything belongs to the anonymous user, and even root cannot change that | `chown` fails with EPERM |
//! | no holes on request, no preallocation, no query for data | `fallocate` fails with EOPNOTSUPP, `SEEK_DATA` finds all of a file |
//! | a deleted file that is open stays until it is closed | under the name `.nfsNUMBER` |
//! | blocks are as large as a transfer | `statvfs` and `stat` report 1 MiB |
//! | direct I/O may be refused | [`DirectIo`] |
//! | a server that is full may report it late, and once | [`FullAt`] |

mod fuse;
mod tree;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, SessionACL};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::sys;
use crate::tool::skip;
use tree::Tree;

/// More than this between the `close` of a file and its end is a mistake.
const CLOSING_MAX: Duration = Duration::from_secs(60);

/// What becomes of O_DIRECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// It works.
    Accepted,
    /// Opening fails with EINVAL.
    RefusedAtOpen,
    /// Opening succeeds, and each write fails with EINVAL.
    RefusedAtWrite,
}

/// When a client hears that the server is full (ENOSPC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullAt {
    /// In the write that does not fit.
    Write,
    /// In the next `fsync` or `close`, and only in that one; the bytes are lost. Clients report it so that cache writes.
    Sync,
}

/// What a [`NetworkFileSystem`] does.
#[derive(Clone, Copy, Debug)]
pub struct NetworkRules {
    pub direct_io: DirectIo,
    pub full_at: FullAt,
    /// Bytes of all files together.
    pub capacity: u64,
    /// Whether `chmod` works. Otherwise all files have the mode 0666 and it fails with EPERM, as on a share of SMB.
    pub changes_modes: bool,
    /// Whether a directory can be synchronized. Otherwise that fails with EINVAL, as POSIX permits.
    pub syncs_directories: bool,
}

impl NetworkRules {
    /// Those of NFS, with direct I/O and 256 MiB.
    pub const NFS: Self = Self {
        direct_io: DirectIo::Accepted,
        full_at: FullAt::Write,
        capacity: 256 << 20,
        changes_modes: true,
        syncs_directories: true,
    };
}

/// A mounted network file system; unmounted on drop. Its content is in memory.
pub struct NetworkFileSystem {
    // Unmounted before its directory is removed.
    session: Option<BackgroundSession>,
    folder: Option<TempDir>,
    tree: Arc<Mutex<Tree>>,
}

impl NetworkFileSystem {
    /// `None` without root or FUSE: the test is skipped.
    ///
    /// # Panics
    /// In CI when something is missing; anywhere when it cannot be mounted.
    pub fn new(rules: NetworkRules) -> Option<Self> {
        if !sys::is_root() {
            skip("mounting needs root");
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            skip("there is no /dev/fuse");
            return None;
        }
        let folder = TempDir::with_prefix("testkit-network-").expect("cannot create a mount point");
        let tree = Arc::new(Mutex::new(Tree::new(rules.capacity, rules.full_at)));
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(2);
        let server = fuse::Server::new(rules, Arc::clone(&tree));
        let session = fuser::spawn_mount(server, folder.path(), &config)
            .expect("cannot mount a file system through FUSE");
        Some(Self { session: Some(session), folder: Some(folder), tree })
    }

    pub fn path(&self) -> &Path {
        self.folder.as_ref().expect("there until it is dropped").path()
    }

    /// Waits until the server knows that all files are closed: the kernel informs it some time after `close`.
    ///
    /// # Panics
    /// When a file stays open.
    pub fn wait_until_closed(&self) {
        let deadline = Instant::now() + CLOSING_MAX;
        while self.tree.lock().has_open_files() {
            assert!(Instant::now() < deadline, "a file stays open on {}", self.path().display());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Bytes that all files occupy, once all are closed.
    ///
    /// # Panics
    /// When a file stays open.
    pub fn occupied(&self) -> u64 {
        self.wait_until_closed();
        self.tree.lock().occupied()
    }

    /// The next `fsync` or `close` of a file that was written since fails with EIO, once; what was written is lost.
    pub fn lose_writes(&self) {
        self.tree.lock().lose_writes();
    }
}

impl Drop for NetworkFileSystem {
    fn drop(&mut self) {
        // Only unmounts. The thread of the server ends when the last mount namespace has forgotten the mount, and another test
        // may have copied it into one of its own.
        drop(self.session.take());
        let Some(folder) = &self.folder else { return };
        let device = |path: &Path| std::fs::metadata(path).map(|facts| facts.dev());
        let parent = folder.path().parent().unwrap_or(Path::new("/"));
        if device(folder.path()).ok() != device(parent).ok() {
            // Removing the folder would ask a server that is gone.
            let folder = self.folder.take().map(TempDir::keep);
            eprintln!("{folder:?} stays mounted");
        }
    }
}

impl From<tree::Refusal> for fuser::Errno {
    fn from(refusal: tree::Refusal) -> Self {
        Self::from(io::Error::from_raw_os_error(refusal.0))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};

    use super::*;

    #[test]
    fn files_of_a_network_file_system_follow_its_rules() {
        let Some(storage) = NetworkFileSystem::new(NetworkRules::NFS) else { return };
        let path = storage.path().join("disk.img");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(10 << 20).unwrap();
        file.write_all_at(b"hello", 3 << 20).unwrap();
        let facts = file.metadata().unwrap();
        assert_eq!((facts.uid(), facts.len(), facts.blksize()), (65534, 10 << 20, 1 << 20));
        assert!(facts.blocks() * 512 < 1 << 20, "{}", facts.blocks());
        assert_eq!(
            std::os::unix::fs::chown(&path, Some(0), None).unwrap_err().raw_os_error(),
            Some(libc::EPERM)
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);

        // Deleted while it is open.
        fs::remove_file(&path).unwrap();
        let names = || -> Vec<_> {
            fs::read_dir(storage.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        assert!(names()[0].to_string_lossy().starts_with(".nfs"), "{:?}", names());
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 3 << 20).unwrap();
        assert_eq!(&bytes, b"hello");
        drop(file);
        assert_eq!(storage.occupied(), 0);
        assert!(names().is_empty(), "{:?}", names());
    }

    #[test]
    fn directories_are_made_listed_and_renamed() {
        let Some(storage) = NetworkFileSystem::new(NetworkRules::NFS) else { return };
        fs::create_dir_all(storage.path().join("a/b")).unwrap();
        fs::write(storage.path().join("a/b/file"), "text").unwrap();
        fs::rename(storage.path().join("a/b"), storage.path().join("c")).unwrap();
        assert_eq!(fs::read_to_string(storage.path().join("c/file")).unwrap(), "text");
        assert!(fs::remove_dir(storage.path().join("c")).is_err());
        // A file that is removed before the server learns of its `close` leaves a hidden name.
        storage.wait_until_closed();
        fs::remove_file(storage.path().join("c/file")).unwrap();
        fs::remove_dir(storage.path().join("c")).unwrap();
        fs::remove_dir(storage.path().join("a")).unwrap();
        assert_eq!(fs::read_dir(storage.path()).unwrap().count(), 0);
    }

    #[test]
    fn direct_io_is_refused_by_the_rules() {
        for (direct_io, opens, writes) in [
            (DirectIo::Accepted, true, true),
            (DirectIo::RefusedAtOpen, false, false),
            (DirectIo::RefusedAtWrite, true, false),
        ] {
            let rules = NetworkRules { direct_io, ..NetworkRules::NFS };
            let Some(storage) = NetworkFileSystem::new(rules) else { return };
            let path = storage.path().join("file");
            fs::write(&path, "text").unwrap();
            let mut options = File::options();
            let opened = options.write(true).custom_flags(libc::O_DIRECT).open(&path);
            assert_eq!(opened.is_ok(), opens, "{direct_io:?}: {opened:?}");
            if let Ok(file) = opened {
                let memory = vec![7_u8; 8192];
                let aligned = memory.as_ptr().align_offset(4096);
                let written = file.write_all_at(&memory[aligned..aligned + 4096], 0);
                assert_eq!(written.is_ok(), writes, "{direct_io:?}: {written:?}");
            }
        }
    }

    #[test]
    fn full_server_reports_it_at_once_or_once_at_the_end() {
        for full_at in [FullAt::Write, FullAt::Sync] {
            let rules = NetworkRules { full_at, capacity: 1 << 20, ..NetworkRules::NFS };
            let Some(storage) = NetworkFileSystem::new(rules) else { return };
            let mut file = File::create(storage.path().join("file")).unwrap();
            let full = |result: io::Result<()>| {
                result.is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
            };
            let written = file.write_all(&vec![1; 2 << 20]);
            if full_at == FullAt::Write {
                assert!(full(written));
            } else {
                written.unwrap();
                assert!(full(file.sync_all()));
                file.sync_all().unwrap();
            }
        }
    }

    #[test]
    fn lost_writes_are_reported_once() {
        let Some(storage) = NetworkFileSystem::new(NetworkRules::NFS) else { return };
        let path = storage.path().join("file");
        let mut file = File::create(&path).unwrap();
        storage.lose_writes();
        file.write_all(b"hello").unwrap();
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
        file.sync_all().unwrap();
        drop(file);
        let mut content = vec![];
        File::open(&path).unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(content, [0; 5]);
    }
}
