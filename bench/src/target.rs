//! Where the disks go: a file, or a loop device. Fresh before every run.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::network_storage::NetworkStorage;
use crate::shell;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A new file on the file system of the work folder.
    File,
    /// A loop device with direct I/O over a sparse file there, all of it discarded before.
    Loop,
    /// A new file on a simulated network file system in memory, without direct I/O. Takes root.
    Network,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::File, Self::Loop, Self::Network];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Loop => "loop device",
            Self::Network => "file on network storage",
        }
    }
}

/// The target of one disk.
pub struct Target {
    kind: Kind,
    path: PathBuf,
    /// What holds the bytes: the file itself, or the one behind the loop device.
    storage: PathBuf,
    /// Keeps the loop device: it is set to go away with its last user, however this process ends.
    _device: Option<File>,
    /// Keeps the network file system.
    _network: Option<NetworkStorage>,
}

impl Target {
    /// Creates the target, for disks of `size` bytes.
    ///
    /// # Errors
    /// When it cannot be created: a loop device and network storage require root.
    pub fn new(kind: Kind, work: &Path, size: u64) -> Result<Self> {
        match kind {
            Kind::File => {
                let path = work.join("disk.img");
                Ok(Self { kind, storage: path.clone(), path, _device: None, _network: None })
            }
            Kind::Loop => {
                let storage = work.join("loop.backing");
                let file = File::create(&storage)
                    .with_context(|| format!("cannot make {}", storage.display()))?;
                file.set_len(size).with_context(|| format!("cannot size {}", storage.display()))?;
                let (path, device) = attach(&storage)?;
                Ok(Self { kind, path, storage, _device: Some(device), _network: None })
            }
            Kind::Network => {
                // A program may write a part of its disk twice.
                let network = NetworkStorage::start(2 * size)?;
                let path = network.folder().join("disk.img");
                let (storage, network) = (path.clone(), Some(network));
                Ok(Self { kind, path, storage, _device: None, _network: network })
            }
        }
    }

    /// The file or the device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Removes the disk of the last run, and syncs the file system.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn make_fresh(&self) -> Result<()> {
        match self.kind {
            Kind::File | Kind::Network => remove_if_there(&self.path)?,
            Kind::Loop => {
                shell::output("blkdiscard", &[&self.path.display().to_string()])?;
            }
        }
        let folder = self.storage.parent().unwrap_or(Path::new("/"));
        shell::output("sync", &["--file-system", &folder.display().to_string()])?;
        Ok(())
    }

    /// Fills a loop device with bytes that are not zero, as one that had another disk before.
    ///
    /// # Errors
    /// When it is no loop device, and of the operating system.
    pub fn fill_with_old_data(&self, size: u64) -> Result<()> {
        if self.kind != Kind::Loop {
            bail!("only a loop device has old data");
        }
        // Not by the device, which may be slow.
        let script = r#"
head --bytes="$SIZE" /dev/zero | tr "\0" x | dd of="$STORAGE" iflag=fullblock oflag=direct bs=1M conv=notrunc,fsync status=none
blockdev --flushbufs "$DEVICE""#;
        let (size, storage) = (size.to_string(), self.storage.display().to_string());
        let device = self.path.display().to_string();
        shell::script(script, &[("SIZE", &size), ("STORAGE", &storage), ("DEVICE", &device)])
    }

    /// Bytes that the disk occupies on the storage.
    ///
    /// # Errors
    /// When its metadata cannot be read.
    pub fn allocated_bytes(&self) -> Result<u64> {
        let found = fs::metadata(&self.storage)
            .with_context(|| format!("cannot read the metadata of {}", self.storage.display()))?;
        Ok(found.blocks() * 512)
    }

    /// Compares every byte with `disk`.
    ///
    /// # Errors
    /// When they differ, in length too, or cannot be read.
    pub fn verify(&self, disk: &Path) -> Result<()> {
        let open = |path: &Path| {
            File::open(path).with_context(|| format!("cannot open {}", path.display()))
        };
        let (mut expected, mut found) = (open(disk)?, open(&self.path)?);
        let (mut want, mut have) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut at = 0u64;
        loop {
            let (wanted, had) = (fill(&mut expected, &mut want)?, fill(&mut found, &mut have)?);
            if want[..wanted] != have[..had] {
                bail!("{} differs from the oracle in the MiB at byte {at}", self.path.display());
            }
            if wanted == 0 {
                return Ok(());
            }
            at += wanted as u64;
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Err(error) = remove_if_there(&self.storage) {
            eprintln!("bench: {error:#}");
        }
    }
}

/// A loop device over a file, past the page cache. The kernel removes it when its last user closes it.
///
/// # Errors
/// When there is none to be had: it takes root.
pub fn attach(storage: &Path) -> Result<(PathBuf, File)> {
    let name = storage.display().to_string();
    let name = shell::output("losetup", &["--find", "--show", "--direct-io=on", &name])?;
    let device = File::open(&name).with_context(|| format!("cannot open the device {name}"));
    shell::output("losetup", &["--detach", &name])?;
    Ok((PathBuf::from(name), device?))
}

/// As much as fits or there is.
fn fill(file: &mut File, buffer: &mut [u8]) -> Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]).context("cannot read a disk")? {
            0 => break,
            got => len += got,
        }
    }
    Ok(len)
}

/// # Errors
/// When it exists and cannot be removed.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
