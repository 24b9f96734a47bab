//! Files and block devices that are full of old data before an import, and compared as a whole after it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::LoopDevice;

/// The kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file that does not exist yet.
    File,
    /// A loop device full of 0xAA, 1 MiB larger than the disk.
    Device,
}

/// Something to import into.
#[derive(Debug)]
pub struct Target {
    folder: TempDir,
    path: PathBuf,
    device: Option<LoopDevice>,
}

const GARBAGE: u8 = 0xaa;

/// The range that holds partition tables, boot sectors and file system labels.
const FIRST: usize = 1 << 20;

impl Target {
    /// A target for a disk of `len` bytes. `None`, with a message, if there is no loop devices.
    pub fn new(kind: Kind, len: u64) -> Option<Self> {
        match kind {
            Kind::File => Some(Self::file()),
            Kind::Device => Self::device(len.next_multiple_of(512) + testkit::MIB),
        }
    }

    /// A file that does not exist yet, in a directory of its own.
    pub fn file() -> Self {
        let folder = TempDir::with_prefix("cdi-it-").expect("cannot make a folder");
        let path = folder.path().join("disk.img");
        Self { folder, path, device: None }
    }

    /// A device of exactly `len` bytes, full of garbage.
    pub fn device(len: u64) -> Option<Self> {
        let device = LoopDevice::filled_with(GARBAGE, len)?;
        Some(Self { path: device.path().to_owned(), device: Some(device), ..Self::file() })
    }

    /// What to write to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory for journals and the like; the file's own.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whole and nothing but `disk`: a file is as long as that in whole sectors; a device reads as zeroes behind it.
    ///
    /// # Panics
    /// When it differs, with the first place.
    #[track_caller]
    pub fn expect(&self, disk: &[u8], case: &str) {
        let found = match &self.device {
            Some(device) => device.bytes(),
            None => std::fs::read(&self.path).unwrap_or_else(|error| panic!("{case}: {error}")),
        };
        if self.device.is_none() {
            assert_eq!(found.len(), disk.len().next_multiple_of(512), "{case}: length of the file");
        }
        let (image, tail) = found.split_at(disk.len().min(found.len()));
        assert_eq!(image.len(), disk.len(), "{case}: the disk is not there to its end");
        if image != disk {
            let at = image.iter().zip(disk).position(|(found, wanted)| found != wanted);
            panic!("{case}: differs from byte {at:?} of {} on", disk.len());
        }
        let old = tail.iter().position(|byte| *byte != 0);
        assert_eq!(old, None, "{case}: old bytes show behind the disk");
        self.expect_no_remains(case);
    }

    /// Nothing looks finished: there is no file of that name, and the device lacks the first sectors of `disk`.
    ///
    /// # Panics
    /// When something does.
    #[track_caller]
    pub fn expect_unfinished(&self, disk: &[u8], case: &str) {
        match &self.device {
            None => assert!(!self.path.exists(), "{case}: {} exists", self.path.display()),
            Some(device) => {
                let head = disk.len().min(FIRST);
                assert!(
                    device.bytes()[..head] != disk[..head],
                    "{case}: the device looks bootable"
                );
            }
        }
    }

    /// No half-written file or journal is left next to a finished disk.
    #[track_caller]
    fn expect_no_remains(&self, case: &str) {
        let files = std::fs::read_dir(self.folder()).expect("cannot list a folder");
        let names: Vec<_> =
            files.map(|file| file.expect("cannot list a folder").file_name()).collect();
        let left: Vec<_> = names.iter().filter(|name| *name != "disk.img").collect();
        assert!(left.is_empty(), "{case}: left behind: {left:?}");
    }
}
