//! What the container was given: its volume, scratch space, and files to read.

use std::io;
use std::path::{Path, PathBuf};

use contract::paths;
use contract::{ByteCount, Volume};

/// Where the container's root is. Only tests have it elsewhere than at `/`.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// Everything below `root`.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path of the contract, as this process has to name it.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// What decides about an import besides its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounts {
    /// The volume to be filled.
    pub volume: Volume,
    pub scratch: bool,
}

impl Mounts {
    /// Examines the mounts. Leftovers of an earlier attempt have to be removed before, because they take space.
    ///
    /// # Errors
    /// When there is no volume that can be measured.
    pub fn detect(paths: &Paths) -> io::Result<Self> {
        let volume = if has_device(paths) {
            let size = pipeline::target::available(&paths.at(paths::BLOCK_DEVICE))?;
            Volume::Device { size: ByteCount::new(size) }
        } else {
            let available = pipeline::target::available(&paths.at(paths::DISK))?;
            Volume::Directory { available: ByteCount::new(available) }
        };
        Ok(Self { volume, scratch: paths.at(paths::SCRATCH).is_dir() })
    }
}

/// The one sign of a volume that is a block device.
pub fn has_device(paths: &Paths) -> bool {
    paths.at(paths::BLOCK_DEVICE).exists()
}

/// The files of a mounted ConfigMap or Secret, sorted: those of the directory, or of its directories too. Hidden ones are how
/// the kubelet replaces all of them at once, and are left out.
///
/// # Errors
/// When a directory cannot be listed.
pub fn visible_files(directory: &Path, depth: usize) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() && depth > 0 {
            files.extend(visible_files(&path, depth - 1)?);
        } else if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_secret_is_read_as_the_kubelet_lays_it_out() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("0/..2026_11_21");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("token"), "X: y").unwrap();
        std::os::unix::fs::symlink("..2026_11_21", directory.path().join("0/..data")).unwrap();
        std::os::unix::fs::symlink("..data/token", directory.path().join("0/token")).unwrap();
        assert_eq!(visible_files(directory.path(), 1).unwrap(), [directory.path().join("0/token")]);
        assert!(visible_files(directory.path(), 0).unwrap().is_empty());
        assert!(visible_files(&directory.path().join("absent"), 0).is_err());
    }

    #[test]
    fn a_volume_is_a_device_only_if_the_device_is_there() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::under(root.path());
        assert!(Mounts::detect(&paths).is_err(), "no volume at all");
        std::fs::create_dir(root.path().join("data")).unwrap();
        let mounts = Mounts::detect(&paths).unwrap();
        assert!(matches!(mounts, Mounts { volume: Volume::Directory { .. }, scratch: false }));
        std::fs::create_dir(root.path().join("scratch")).unwrap();
        assert!(Mounts::detect(&paths).unwrap().scratch);
        assert!(!has_device(&paths));
    }
}
