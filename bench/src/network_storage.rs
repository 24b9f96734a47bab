//! A simulated network file system without direct I/O and without holes on request, for targets on storage such as NFS.
//!
//! Another process of this program keeps its content in memory and serves it through FUSE. In this one, the memory would
//! count as that of each measured program, because Linux counts what a process had before it executed another program.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use testkit::{DirectIo, NetworkFileSystem, NetworkRules};

/// The command of this program that serves it.
pub const COMMAND: &str = "serve-network-storage";

/// A mounted file system. Unmounted on drop, and when this process ends in any other way.
pub struct NetworkStorage {
    server: Child,
    folder: PathBuf,
}

impl NetworkStorage {
    /// For `capacity` bytes of files.
    ///
    /// # Errors
    /// When it cannot be mounted: it takes root and `/dev/fuse`.
    pub fn start(capacity: u64) -> Result<Self> {
        let program = env::current_exe().context("cannot find this program")?;
        let server = Command::new(program)
            .args([COMMAND, &capacity.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server of a network file system")?;
        // Whatever fails from here on, the server ends.
        let mut storage = Self { server, folder: PathBuf::new() };
        let mut line = String::new();
        if let Some(output) = storage.server.stdout.take() {
            BufReader::new(output).read_line(&mut line).context("cannot read a pipe")?;
        }
        storage.folder = PathBuf::from(line.trim_end());
        if storage.folder.as_os_str().is_empty() {
            bail!("cannot simulate a network file system: it takes root and /dev/fuse");
        }
        Ok(storage)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for NetworkStorage {
    fn drop(&mut self) {
        // The end of its input.
        drop(self.server.stdin.take());
        if let Err(error) = self.server.wait() {
            eprintln!("bench: the server of a network file system did not end: {error}");
        }
    }
}

/// What the other process does: prints where the file system is mounted, and unmounts it at the end of its input.
///
/// # Errors
/// When it cannot be mounted, and of the pipes.
pub fn serve(capacity: u64) -> Result<()> {
    let rules = NetworkRules { direct_io: DirectIo::RefusedAtOpen, capacity, ..NetworkRules::NFS };
    let Some(network) = NetworkFileSystem::new(rules) else {
        bail!("it takes root and /dev/fuse");
    };
    println!("{}", network.path().display());
    io::stdout().flush().context("cannot write to a pipe")?;
    io::stdin().read_to_end(&mut Vec::new()).context("cannot read a pipe")?;
    Ok(())
}
