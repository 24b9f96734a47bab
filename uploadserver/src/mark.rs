//! The mark that the volume is complete, for a process that comes after this one in the same pod.
//!
//! ```text
//! the volume is durable ─► so is the mark ─► 200 ─► last words, end
//!                                └── killed here, the next process ends as this one would have
//! ```
//!
//! It lies in the journal of the pod, which no other pod has: what is marked there was done to the volume of this very pod.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use contract::job::paths;
use serde::{Deserialize, Serialize};

use crate::slot::Completed;

const FORMAT: u32 = 1;
/// Of what is in it.
const LEN_MAX: u64 = 1 << 10;
/// A UID is an UUID, and this is more than one has.
const UID_LEN_MAX: usize = 64;

/// Where the mark of an upload is, if it has a place.
#[derive(Clone, Debug, Default)]
pub struct Mark(Option<PathBuf>);

/// What is in it.
#[derive(Serialize, Deserialize)]
struct Content {
    format: u32,
    cloned: bool,
    preallocated: bool,
}

impl Mark {
    /// In the folder `journal`, of the upload for the object with that UID. A pod of a controller that gives it no journal, or
    /// does not say for whom it is, has no place for it.
    pub fn of(journal: &Path, uid: &str) -> Self {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_uid = (1..=UID_LEN_MAX).contains(&uid.len()) && uid.bytes().all(is_name);
        if is_uid && journal.is_dir() {
            return Self(Some(journal.join(format!("{}{uid}", paths::COMPLETE_MARK))));
        }
        tracing::info!(
            "this pod has no journal at {}: a process that is killed as soon as the volume is complete leaves no word of it",
            journal.display()
        );
        Self(None)
    }

    /// What an earlier process has completed. What cannot be read says nothing: the volume is then filled again.
    pub fn read(&self) -> Option<Completed> {
        let path = self.0.as_ref()?;
        match read(path) {
            Ok(completed) => Some(completed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!("the mark {} says nothing: {error}", path.display());
                None
            }
        }
    }

    /// Keeps it durably. That it cannot be kept is told, and loses no upload: its client gets the answer all the same. Blocks.
    pub fn keep(&self, completed: Completed) {
        if let Some(path) = &self.0
            && let Err(error) = write(path, completed)
        {
            tracing::error!(
                "cannot keep the mark {} that the volume is complete, so that a process after this one would wait for another \
                 upload: {error}",
                path.display()
            );
        }
    }
}

fn read(path: &Path) -> io::Result<Completed> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LEN_MAX).read_to_end(&mut bytes)?;
    let Content { format, cloned, preallocated } = serde_json::from_slice(&bytes)?;
    match format {
        FORMAT => Ok(Completed { cloned, preallocated }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "its format is another one")),
    }
}

/// Under another name first: a mark that is there is whole.
fn write(path: &Path, Completed { cloned, preallocated }: Completed) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(&serde_json::to_vec(&Content { format: FORMAT, cloned, preallocated })?)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLONED: Completed = Completed { cloned: true, preallocated: true };
    const UPLOADED: Completed = Completed { cloned: false, preallocated: false };

    #[test]
    fn what_was_completed_is_known_to_the_next_process_and_to_no_other_upload() {
        let journal = tempfile::tempdir().unwrap();
        let mark = Mark::of(journal.path(), "a-1");
        assert_eq!(mark.read(), None);
        for completed in [CLONED, UPLOADED] {
            mark.keep(completed);
            assert_eq!(Mark::of(journal.path(), "a-1").read(), Some(completed));
        }
        assert!(journal.path().join("complete-a-1").is_file());
        for other in ["a-2", "a", ""] {
            assert_eq!(Mark::of(journal.path(), other).read(), None, "{other}");
        }
    }

    #[test]
    fn a_part_of_a_mark_says_nothing() {
        let journal = tempfile::tempdir().unwrap();
        let mark = Mark::of(journal.path(), "a-1");
        mark.keep(UPLOADED);
        let path = journal.path().join("complete-a-1");
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(mark.read(), None, "cut to {len} bytes");
        }
        fs::write(&path, br#"{"format":2,"cloned":false,"preallocated":false}"#).unwrap();
        assert_eq!(mark.read(), None, "of another format");
        mark.keep(CLONED);
        assert_eq!(mark.read(), Some(CLONED), "and is replaced");
    }

    #[test]
    fn without_a_place_there_is_no_mark() {
        let journal = tempfile::tempdir().unwrap();
        fs::write(journal.path().join("file"), "").unwrap();
        let long = "1".repeat(UID_LEN_MAX + 1);
        for (folder, uid) in [
            ("", ""),
            ("", "../a"),
            ("", "a/b"),
            ("", "."),
            ("", &long),
            ("none", "a"),
            ("file", "a"),
        ] {
            let mark = Mark::of(&journal.path().join(folder), uid);
            assert!(mark.0.is_none(), "{folder:?} {uid:?}");
            mark.keep(UPLOADED);
            assert_eq!(mark.read(), None);
        }
    }
}
