//! The termination message of a container, which the kubelet reads from a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The termination message file. Opened before the process enters its sandbox.
#[derive(Debug)]
pub struct TerminationMessage {
    path: PathBuf,
    file: Option<File>,
}

impl TerminationMessage {
    /// Opens the file that the kubelet created, or creates one. A failure is logged, and shows again in [`Self::write`].
    pub fn open(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = opened
            .inspect_err(|error| tracing::warn!("cannot open {}: {error}", path.display()))
            .ok();
        Self { path: path.to_owned(), file }
    }

    /// Replaces the message of an earlier run of the container.
    ///
    /// # Errors
    /// When the file could not be opened, or the write fails.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_replaces_that_of_an_earlier_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("termination-log");
        std::fs::write(&path, "a long earlier text").unwrap();
        TerminationMessage::open(&path).write("short").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "short");
        std::fs::remove_file(&path).unwrap();
        TerminationMessage::open(&path).write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn missing_directory_fails_the_write_only() {
        let mut nowhere = TerminationMessage::open(Path::new("/nonexistent/termination-log"));
        assert!(nowhere.write("text").is_err());
    }
}
