//! A pod's limits: a control group with a CPU quota and a memory limit, of either version.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// `0.75,600M`: cores and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    cores: f64,
    memory_bytes: u64,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores, {} MB of memory", self.cores, self.memory_bytes / 1_000_000)
    }
}

impl FromStr for Limits {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (cores, memory) =
            text.split_once(',').context("write it as CORES,MEMORY: 0.75,600M")?;
        let cores: f64 = cores.parse().context("the first part is a number of cores")?;
        let (digits, unit) = match memory.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => (memory, 1),
        };
        let count: u64 = digits.parse().context("the second part is bytes, or megabytes with M")?;
        if !(cores > 0.0 && count > 0) {
            bail!("limits are more than nothing");
        }
        Ok(Self { cores, memory_bytes: count.saturating_mul(unit) })
    }
}

/// A control group for one program, or one run; removed when dropped.
pub struct Group {
    folders: Vec<PathBuf>,
    peak_file: PathBuf,
}

const PERIOD_US: u64 = 100_000;
/// Where the kernel shows control groups.
pub const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

impl Group {
    /// `name`: of no other group of this process.
    ///
    /// # Errors
    /// When the operating system refuses it: root is required.
    pub fn new(name: &str, limits: Limits) -> Result<Self> {
        let base = Path::new(CONTROL_GROUPS);
        let name = format!("cdi-bench-{}-{name}", process::id());
        let quota_us = (limits.cores * PERIOD_US as f64) as u64;
        let memory = limits.memory_bytes.to_string();
        if base.join("cgroup.controllers").exists() {
            let group = base.join(name);
            write(&base.join("cgroup.subtree_control"), "+cpu +memory")?;
            make(&group)?;
            let made = Self { peak_file: group.join("memory.peak"), folders: vec![group.clone()] };
            write(&group.join("cpu.max"), &format!("{quota_us} {PERIOD_US}"))?;
            write(&group.join("memory.max"), &memory)?;
            return Ok(made);
        }
        let (cpu, mem) = (base.join("cpu").join(&name), base.join("memory").join(&name));
        make(&cpu)?;
        let mut made =
            Self { peak_file: mem.join("memory.max_usage_in_bytes"), folders: vec![cpu.clone()] };
        make(&mem)?;
        made.folders.push(mem.clone());
        write(&cpu.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
        write(&cpu.join("cpu.cfs_quota_us"), &quota_us.to_string())?;
        write(&mem.join("memory.limit_in_bytes"), &memory)?;
        Ok(made)
    }

    /// Shell words that put the shell into the group, before it executes the measured program.
    pub fn enter(&self) -> String {
        let into = |folder: &PathBuf| format!("echo $$ > {}/cgroup.procs; ", folder.display());
        self.folders.iter().map(into).collect()
    }

    /// The most memory the group was charged with, page cache included.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn peak_bytes(&self) -> Result<u64> {
        let text = fs::read_to_string(&self.peak_file)
            .with_context(|| format!("cannot read {}", self.peak_file.display()))?;
        text.trim().parse().context("the peak is no number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            if let Err(error) = fs::remove_dir(folder) {
                eprintln!("bench: cannot remove {}: {error}", folder.display());
            }
        }
    }
}

/// # Errors
/// Of the operating system: root is required.
pub fn make(folder: &Path) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// # Errors
/// Of the operating system, as when a setting is not accepted.
pub fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text} to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_cores_and_bytes() {
        let limits = |text: &str| text.parse::<Limits>().ok();
        let expected = Limits { cores: 0.75, memory_bytes: 600_000_000 };
        assert_eq!(limits("0.75,600M"), Some(expected));
        assert_eq!(limits("0.75,600000000"), Some(expected));
        for bad in ["", "1", "x,1", "1,x", "0,1", "1,0", "NaN,1"] {
            assert_eq!(limits(bad), None, "{bad}");
        }
    }
}
