//! Block devices over sparse files.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::arguments;
use crate::sys;
use crate::tool::{Tool, require_tool, skip};

/// A `/dev/loopN` over a temporary file; detached on drop.
#[derive(Debug)]
pub struct LoopDevice {
    losetup: Tool,
    path: PathBuf,
    /// `None` once it was detached.
    backing: Option<NamedTempFile>,
    len: u64,
}

impl LoopDevice {
    /// A device of `len` bytes (whole sectors) that reads as zeroes. `None` without root or losetup: the test is skipped.
    ///
    /// # Panics
    /// In CI when there is no root or no losetup; anywhere when losetup fails.
    pub fn new(len: u64) -> Option<Self> {
        let backing =
            NamedTempFile::with_prefix("testkit-loop-").expect("cannot create a backing file");
        backing.as_file().set_len(len).expect("cannot size a backing file");
        Self::attach(backing, len)
    }

    /// A device of `len` bytes, each of them `garbage`: old data that must never show through.
    ///
    /// # Panics
    /// As for [`LoopDevice::new`].
    pub fn filled_with(garbage: u8, len: u64) -> Option<Self> {
        let backing =
            NamedTempFile::with_prefix("testkit-loop-").expect("cannot create a backing file");
        let block = vec![garbage; 1 << 20];
        for at in (0..len).step_by(block.len()) {
            let part = &block[..(len - at).min(block.len() as u64) as usize];
            backing.as_file().write_all_at(part, at).expect("cannot fill a backing file");
        }
        Self::attach(backing, len)
    }

    /// The same device with sectors of `bytes`: it accepts no smaller request, as disks with 4096-byte sectors do not.
    ///
    /// # Panics
    /// When losetup fails.
    #[must_use]
    pub fn with_sectors_of(self, bytes: u32) -> Self {
        let size = bytes.to_string();
        self.losetup.run(arguments!["--sector-size", size, self.path]);
        self
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the device.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: the kernel has no such devices.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Detaches it: at once, or when the last who has it open closes it. Returns the file below it.
    ///
    /// # Panics
    /// When losetup fails.
    pub fn detach(mut self) -> NamedTempFile {
        self.losetup.run(arguments!["--detach", self.path]);
        self.backing.take().expect("it was attached until now")
    }

    /// Everything on the device, read through the device.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes =
            vec![0; usize::try_from(self.len).expect("a device in a test fits in memory")];
        self.open().read_exact_at(&mut bytes, 0).expect("cannot read a loop device");
        bytes
    }

    /// Overwrites a part of the device.
    pub fn write_at(&self, at: u64, bytes: &[u8]) {
        let device =
            OpenOptions::new().write(true).open(&self.path).expect("cannot open a loop device");
        device.write_all_at(bytes, at).expect("cannot write a loop device");
        device.sync_all().expect("cannot flush a loop device");
    }

    fn open(&self) -> File {
        File::open(&self.path).expect("cannot open a loop device")
    }

    fn attach(backing: NamedTempFile, len: u64) -> Option<Self> {
        let losetup = require_tool("losetup")?;
        if !sys::is_root() {
            skip("loop devices need root");
            return None;
        }
        let shown = losetup.run(arguments!["--find", "--show", backing.path()]);
        let path = PathBuf::from(String::from_utf8_lossy(&shown).trim_end());
        Some(Self { losetup, path, backing: Some(backing), len })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Once it is detached, another device may have its path.
        let Some(backing) = &self.backing else { return };
        let detached = self.losetup.command(arguments!["--detach", self.path]).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} stays attached to {}", self.path.display(), backing.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_with_large_sectors_takes_no_smaller_direct_write() {
        use std::os::unix::fs::OpenOptionsExt;

        let Some(device) = LoopDevice::new(1 << 20) else { return };
        let device = device.with_sectors_of(4096);
        let mut options = OpenOptions::new();
        let direct = options.write(true).custom_flags(libc::O_DIRECT).open(device.path()).unwrap();
        let memory = vec![7_u8; 8192];
        let aligned = memory.as_ptr().align_offset(4096);
        assert!(direct.write_all_at(&memory[aligned..aligned + 512], 0).is_err());
        direct.write_all_at(&memory[aligned..aligned + 4096], 0).unwrap();
    }

    #[test]
    fn loop_device_holds_its_initial_bytes_and_writes() {
        let Some(device) = LoopDevice::filled_with(0xaa, 3 << 19) else { return };
        device.write_at(4096, b"hello");
        let bytes = device.bytes();
        assert_eq!(
            (bytes.len(), &bytes[..2], &bytes[4096..4101]),
            (3 << 19, &[0xaa; 2][..], &b"hello"[..])
        );
    }
}
