//! The directories of targets, scratch files and results.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};

use crate::shell;

/// The folder of a [`WorkFolder`] that something may be mounted on.
const MOUNTED: &str = "mounted";

/// A folder of one process, with some in it; removed when dropped.
pub struct WorkFolder(PathBuf);

impl WorkFolder {
    /// Creates it below `cache`.
    ///
    /// # Errors
    /// When it cannot be created, or files of earlier runs cannot be removed.
    pub fn new(cache: &Path) -> Result<Self> {
        let bench = cache.join("bench");
        remove_abandoned(&bench)?;
        let path = bench.join(format!("work-{}", process::id()));
        for folder in ["data", "scratch", "root"].map(|name| path.join(name)) {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// # Errors
    /// When it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Removes the files of benchmarks that were killed, which can be gigabytes.
fn remove_abandoned(bench: &Path) -> Result<()> {
    for entry in fs::read_dir(bench).with_context(|| format!("cannot read {}", bench.display()))? {
        let path = entry.context("cannot read a folder")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let owner = name.strip_prefix("work-");
        if owner.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let mounted = path.join(MOUNTED).display().to_string();
            let unmount = r#"if mountpoint --quiet "$0"; then umount "$0"; fi"#;
            shell::output("bash", &["-c", unmount, &mounted])?;
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("bench: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// A file system on [`MOUNTED`]. Unmounted when dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Calls `mount` with the empty folder in `work` that it is to mount on.
    ///
    /// # Errors
    /// When the folder cannot be created, and those of `mount`.
    pub fn new(work: &Path, mount: impl FnOnce(&str) -> Result<()>) -> Result<Self> {
        let folder = work.join(MOUNTED);
        fs::create_dir(&folder).context("cannot make a mount point")?;
        mount(&folder.display().to_string())?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = shell::output("umount", &[&self.0.display().to_string()]) {
            eprintln!("bench: {error:#}");
        }
    }
}

/// Removes the content of a directory.
///
/// # Errors
/// When something remains.
pub fn empty(folder: &Path) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry.context("cannot read a folder")?.path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Keeps tables and raw figures in `bench/results`, under a name such as `2026-11-22-import-quiet`.
///
/// # Errors
/// When they cannot be written.
pub fn keep(date: &str, what: &str, label: &str, text: &str, lines: &[String]) -> Result<()> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    fs::create_dir_all(&results).with_context(|| format!("cannot make {}", results.display()))?;
    let dash = if label.is_empty() { "" } else { "-" };
    let name = format!("{date}-{what}{dash}{label}");
    let table = results.join(format!("{name}.md"));
    fs::write(&table, text).with_context(|| format!("cannot write {}", table.display()))?;
    let raw = results.join(format!("{name}.jsonl"));
    let mut file = File::create(&raw).with_context(|| format!("cannot make {}", raw.display()))?;
    for line in lines {
        writeln!(file, "{line}").with_context(|| format!("cannot write {}", raw.display()))?;
    }
    eprintln!("kept in {} and {}", table.display(), raw.display());
    Ok(())
}
