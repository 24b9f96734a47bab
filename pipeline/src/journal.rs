//! The journal: which parts of an unfinished disk are durable, for the process that continues after this one was killed.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::target;

/// Raised whenever segments are cut differently: an older journal is then discarded.
const VERSION: u32 = 1;

/// A journal names a few ranges per stream in flight; a much larger file is not a journal.
const LENGTH_MAX: u64 = 4 << 20;

/// Has to be equal for an import to be resumed: the image, the target, and how segments are cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The source as messages name it.
    pub source: String,
    /// Its validator.
    pub validator: String,
    /// Its wire bytes.
    pub length: u64,
    /// Format and route, hence how segments are cut.
    pub layout: String,
    /// Bytes of the guest's disk.
    pub virtual_size: u64,
    /// The unfinished target.
    pub target: target::Identity,
}

#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    identity: Identity,
    /// Numbers of the durable segments, ascending.
    done: Vec<Range<u64>>,
}

/// The journal file. Reading never fails: an unusable file counts as none.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
    identity: Identity,
}

impl Journal {
    /// The journal at `path`, of work with this identity.
    pub fn new(path: PathBuf, identity: Identity) -> Self {
        Self { path, identity }
    }

    /// The segments that an earlier process of the same identity made durable.
    pub fn load(&self) -> Option<Vec<Range<u64>>> {
        let record = read(&self.path)?;
        let ascending = record.done.windows(2).all(|pair| pair[0].end < pair[1].start)
            && record.done.iter().all(|range| range.start < range.end);
        (record.version == VERSION && record.identity == self.identity && ascending)
            .then_some(record.done)
    }

    /// Replaces the journal atomically and durably. Call it only after the data of the segments is durable.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn store(&self, done: &[Range<u64>]) -> io::Result<()> {
        let record =
            Record { version: VERSION, identity: self.identity.clone(), done: done.to_vec() };
        let next = self.path.with_extension("next");
        let mut file = File::create(&next)?;
        file.write_all(&serde_json::to_vec(&record)?)?;
        file.sync_all()?;
        fs::rename(&next, &self.path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes a journal, if there is one.
///
/// # Errors
/// On I/O errors.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Option<Record> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LENGTH_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(inode: u64) -> target::Identity {
        let text = format!(r#"{{"device":1,"inode":{inode},"length":512,"mark":3}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn identity() -> Identity {
        Identity {
            source: "http://host/disk.raw".into(),
            validator: "\"abc\"".into(),
            length: 7,
            layout: "raw".into(),
            virtual_size: 512,
            target: target(1),
        }
    }

    #[test]
    fn journal_of_another_import_is_not_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = Journal::new(path.clone(), identity());
        assert_eq!(journal.load(), None);
        journal.store(&[0..3, 5..6]).unwrap();
        assert_eq!(journal.load(), Some(vec![0..3, 5..6]));

        let changes: [fn(&mut Identity); 6] = [
            |other| other.source.push('x'),
            |other| other.validator.push('x'),
            |other| other.length += 1,
            |other| other.layout.push('x'),
            |other| other.virtual_size += 1,
            |other| other.target = target(2),
        ];
        for change in changes {
            let mut other = identity();
            change(&mut other);
            assert_eq!(Journal::new(path.clone(), other).load(), None);
        }
    }

    #[test]
    fn a_damaged_journal_is_no_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = Journal::new(path.clone(), identity());
        journal.store(std::slice::from_ref(&(1..9))).unwrap();
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(journal.load(), None, "cut to {len} bytes");
        }
        for text in [r#"[{"start":5,"end":3}]"#, r#"[{"start":5,"end":6},{"start":2,"end":3}]"#] {
            let bad = String::from_utf8(whole.clone()).unwrap();
            fs::write(&path, bad.replace(r#"[{"start":1,"end":9}]"#, text)).unwrap();
            assert_eq!(journal.load(), None, "{text}");
        }
    }
}
