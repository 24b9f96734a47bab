//! The last words of a container, for the kubelet to find.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where last words go. Opened at the start, when a process still has all its rights.
#[derive(Debug)]
pub struct Termination {
    path: PathBuf,
    file: Option<File>,
}

impl Termination {
    /// Opens the file that the kubelet has made, or makes one. Where neither works, it is said once, and the words will be
    /// logged only.
    pub fn open(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = opened
            .inspect_err(|error| tracing::warn!("cannot open {}: {error}", path.display()))
            .ok();
        Self { path: path.to_owned(), file }
    }

    /// Replaces whatever an earlier attempt said.
    ///
    /// # Errors
    /// Of the operating system; and when there is no such file.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    }

    /// As it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_replace_those_of_an_earlier_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("termination-log");
        std::fs::write(&path, "a long earlier text").unwrap();
        Termination::open(&path).write("short").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "short");
        std::fs::remove_file(&path).unwrap();
        Termination::open(&path).write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_place_that_is_not_there_costs_only_the_words() {
        let mut nowhere = Termination::open(Path::new("/nonexistent/termination-log"));
        assert!(nowhere.write("text").is_err());
    }
}
