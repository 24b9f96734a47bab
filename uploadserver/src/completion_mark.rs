//! The mark that the volume is complete, for the next process of the same pod.
//!
//! ```text
//!   volume durable ─► mark durable ─► 200 ─► termination message, exit
//!                            └── killed here: the next process exits as this one would have
//! ```
//!
//! It is a file in the pod's journal volume, which no other pod mounts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use contract::paths;
use serde::{Deserialize, Serialize};

use crate::volume_slot::Completed;

const FORMAT: u32 = 1;
/// Of the file's content.
const LEN_MAX: u64 = 1 << 10;
/// More than a UUID has.
const UID_LEN_MAX: usize = 64;

/// `None`: the pod has no place for a mark.
#[derive(Clone, Debug, Default)]
pub struct CompletionMark(Option<PathBuf>);

#[derive(Serialize, Deserialize)]
struct MarkContent {
    format: u32,
    cloned: bool,
    preallocated: bool,
}

impl CompletionMark {
    /// Of the object with that UID. `None` inside if `journal` is not a directory or the UID is missing, as in pods of
    /// older controllers.
    pub fn in_journal(journal: &Path, uid: &str) -> Self {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_uid = (1..=UID_LEN_MAX).contains(&uid.len()) && uid.bytes().all(is_name);
        if is_uid && journal.is_dir() {
            return Self(Some(journal.join(format!("{}{uid}", paths::COMPLETE_MARK))));
        }
        tracing::info!(
            "the pod has no journal at {}: if the process is killed right after completion, the upload is repeated",
            journal.display()
        );
        Self(None)
    }

    /// What an earlier process has completed. An unreadable mark counts as none: the volume is then written again.
    pub fn read(&self) -> Option<Completed> {
        let path = self.0.as_ref()?;
        match read_file(path) {
            Ok(completed) => Some(completed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!("cannot read the completion mark {}: {error}", path.display());
                None
            }
        }
    }

    /// Writes it durably. An error is logged and fails no upload. Blocks.
    pub fn write(&self, completed: Completed) {
        if let Some(path) = &self.0
            && let Err(error) = write_file(path, completed)
        {
            tracing::error!(
                "cannot write the completion mark {}: if this process is killed now, the next one waits for another upload: \
                 {error}",
                path.display()
            );
        }
    }
}

fn read_file(path: &Path) -> io::Result<Completed> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LEN_MAX).read_to_end(&mut bytes)?;
    let MarkContent { format, cloned, preallocated } = serde_json::from_slice(&bytes)?;
    match format {
        FORMAT => Ok(Completed { cloned, preallocated }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unknown format")),
    }
}

/// Renamed into place, so that a mark is complete or absent.
fn write_file(path: &Path, Completed { cloned, preallocated }: Completed) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(&serde_json::to_vec(&MarkContent { format: FORMAT, cloned, preallocated })?)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    match path.parent() {
        Some(directory) => pipeline::target::sync_directory(directory),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLONED: Completed = Completed { cloned: true, preallocated: true };
    const UPLOADED: Completed = Completed { cloned: false, preallocated: false };

    #[test]
    fn next_process_of_the_same_upload_reads_the_mark() {
        let journal = tempfile::tempdir().unwrap();
        let mark = CompletionMark::in_journal(journal.path(), "a-1");
        assert_eq!(mark.read(), None);
        for completed in [CLONED, UPLOADED] {
            mark.write(completed);
            assert_eq!(CompletionMark::in_journal(journal.path(), "a-1").read(), Some(completed));
        }
        assert!(journal.path().join("complete-a-1").is_file());
        for other in ["a-2", "a", ""] {
            assert_eq!(CompletionMark::in_journal(journal.path(), other).read(), None, "{other}");
        }
    }

    #[test]
    fn truncated_mark_counts_as_none() {
        let journal = tempfile::tempdir().unwrap();
        let mark = CompletionMark::in_journal(journal.path(), "a-1");
        mark.write(UPLOADED);
        let path = journal.path().join("complete-a-1");
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(mark.read(), None, "cut to {len} bytes");
        }
        fs::write(&path, br#"{"format":2,"cloned":false,"preallocated":false}"#).unwrap();
        assert_eq!(mark.read(), None, "of another format");
        mark.write(CLONED);
        assert_eq!(mark.read(), Some(CLONED), "and is replaced");
    }

    #[test]
    fn no_mark_without_journal_or_uid() {
        let journal = tempfile::tempdir().unwrap();
        fs::write(journal.path().join("file"), "").unwrap();
        let long = "1".repeat(UID_LEN_MAX + 1);
        for (directory, uid) in [
            ("", ""),
            ("", "../a"),
            ("", "a/b"),
            ("", "."),
            ("", &long),
            ("none", "a"),
            ("file", "a"),
        ] {
            let mark = CompletionMark::in_journal(&journal.path().join(directory), uid);
            assert!(mark.0.is_none(), "{directory:?} {uid:?}");
            mark.write(UPLOADED);
            assert_eq!(mark.read(), None);
        }
    }
}
