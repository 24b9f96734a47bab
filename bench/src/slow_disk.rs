//! A slow disk: the kernel limits what is written to a loop device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};

use crate::limit::{CONTROL_GROUPS, make, write};

/// Limits the writes to a device, those of the page cache too. The limit is removed on drop, and stays if a signal ends the
/// program before.
pub struct SlowDisk {
    /// The group of all programs that the limit is for.
    group: PathBuf,
    setting: PathBuf,
    /// `7:0`.
    device: String,
    version: Version,
}

/// Of control groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// The kernel writes the page cache on behalf of the root group, so the limit is that of the root group.
    One,
    Two,
}

impl SlowDisk {
    /// # Errors
    /// When the operating system refuses it: root is required.
    pub fn new(device: &Path, bytes_per_second: u64) -> Result<Self> {
        let name = device.file_name().unwrap_or_default();
        let numbers = Path::new("/sys/class/block").join(name).join("dev");
        let numbers = fs::read_to_string(&numbers)
            .with_context(|| format!("cannot read {}", numbers.display()))?;
        let root = Path::new(CONTROL_GROUPS);
        let (version, group) = if root.join("cgroup.controllers").exists() {
            write(&root.join("cgroup.subtree_control"), "+io +memory")?;
            let group = root.join(format!("cdi-bench-{}-disk", process::id()));
            make(&group)?;
            (Version::Two, group)
        } else {
            (Version::One, root.join("blkio"))
        };
        let setting = match version {
            Version::One => group.join("blkio.throttle.write_bps_device"),
            Version::Two => group.join("io.max"),
        };
        let disk = Self { group, setting, device: numbers.trim().to_owned(), version };
        disk.set(bytes_per_second)?;
        Ok(disk)
    }

    /// Shell words that put the shell under the limit, before it executes the measured program.
    pub fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs; ", self.group.display())
    }

    fn set(&self, bytes_per_second: u64) -> Result<()> {
        let unit = match self.version {
            Version::One => "",
            Version::Two => "wbps=",
        };
        write(&self.setting, &format!("{} {unit}{bytes_per_second}", self.device))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let removed = match self.version {
            Version::One => self.set(0),
            Version::Two => fs::remove_dir(&self.group).context("cannot remove the control group"),
        };
        if let Err(error) = removed {
            eprintln!("bench: {} stays slow: {error:#}", self.device);
        }
    }
}
