//! What is remembered of an upload beside its volume, for the process that comes after this one.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use contract::Checksum;
use pipeline::HEAD_LEN;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::request::Wish;

const FORMAT: u32 = 1;
/// Of the line that says what it is.
const LINE_LEN_MAX: usize = 16 << 10;
/// Nobody guesses that many.
const ID_BYTES: usize = 16;

/// Which upload it is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    format: u32,
    /// Its name in addresses, known to none but those who were told.
    pub id: String,
    /// Bytes of it.
    pub length: u64,
    /// As its client has called it.
    pub fingerprint: String,
    /// As it was announced.
    checksum: Option<String>,
}

impl Record {
    /// Of a new upload.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new(wish: &Wish) -> io::Result<Self> {
        let random = runtime::random_bytes::<ID_BYTES>()?;
        Ok(Self {
            format: FORMAT,
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            length: wish.length,
            fingerprint: wish.fingerprint.clone(),
            checksum: wish.checksum.map(|checksum| checksum.to_string()),
        })
    }

    /// It is the one that a client wants to begin.
    pub fn is_for(&self, wish: &Wish) -> bool {
        let is_known = !self.fingerprint.is_empty() && self.fingerprint == wish.fingerprint;
        is_known && self.length == wish.length && self.checksum() == wish.checksum
    }

    /// What it has to hash to, if that was announced.
    pub fn checksum(&self) -> Option<Checksum> {
        self.checksum.as_ref()?.parse().ok()
    }

    /// Keeps it, and the first bytes of the upload, durably.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn store(&self, path: &Path, head: &[u8]) -> io::Result<()> {
        let next = path.with_extension("next");
        remove(&next)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.write_all(head)?;
        file.sync_all()?;
        fs::rename(&next, path)
    }

    /// What was kept, if it is whole.
    pub fn load(path: &Path) -> Option<(Self, Bytes)> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        read(file)
    }
}

/// Without its name, which is a secret.
impl fmt::Debug for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Record").field("length", &self.length).finish_non_exhaustive()
    }
}

fn read(file: File) -> Option<(Record, Bytes)> {
    let mut bytes = Vec::new();
    let most = (LINE_LEN_MAX + HEAD_LEN + 1) as u64;
    file.take(most).read_to_end(&mut bytes).ok()?;
    let end = bytes.iter().take(LINE_LEN_MAX).position(|byte| *byte == b'\n')?;
    let record: Record = serde_json::from_slice(&bytes[..end]).ok()?;
    let head = Bytes::from(bytes).slice(end + 1..);
    let is_whole = record.format == FORMAT
        && record.length > 0
        && record.id.len() == 2 * ID_BYTES
        && record.id.bytes().all(|byte| byte.is_ascii_hexdigit())
        && head.len() as u64 == record.length.min(HEAD_LEN as u64);
    is_whole.then_some((record, head))
}

/// Where the record of an upload into the file `disk` is.
pub fn beside(disk: &Path) -> Option<PathBuf> {
    let name = disk.file_name()?.to_string_lossy();
    Some(disk.with_file_name(format!(".{name}.cdi-upload")))
}

/// Nothing is remembered any more; that nothing was is fine.
///
/// # Errors
/// Of the operating system.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(length: u64, fingerprint: &str) -> Wish {
        Wish { length, fingerprint: fingerprint.into(), checksum: None }
    }

    #[test]
    fn what_was_kept_is_what_is_found_and_a_part_of_it_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("disk.img")).unwrap();
        assert!(path.ends_with(".disk.img.cdi-upload"));
        assert_eq!(Record::load(&path), None);
        let record = Record::new(&wish(5, "a")).unwrap();
        record.store(&path, b"he\nad").unwrap();
        assert_eq!(Record::load(&path), Some((record, Bytes::from_static(b"he\nad"))));
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(Record::load(&path), None, "cut to {len} bytes");
        }
        fs::write(&path, [&*whole, b"x"].concat()).unwrap();
        assert_eq!(Record::load(&path), None, "longer");
        remove(&path).unwrap();
        remove(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        fs::write(folder.path().join("elsewhere"), &whole).unwrap();
        assert_eq!(Record::load(&path), None, "nothing is followed");
    }

    #[test]
    fn an_upload_is_known_by_its_length_its_fingerprint_and_its_checksum() {
        let record = Record::new(&wish(5, "a")).unwrap();
        assert!(record.is_for(&wish(5, "a")));
        let checksum = Some(contract::Hasher::sha256().finish());
        for other in [wish(6, "a"), wish(5, "b"), wish(5, ""), Wish { checksum, ..wish(5, "a") }] {
            assert!(!record.is_for(&other), "{other:?}");
        }
        let nameless = Record::new(&wish(5, "")).unwrap();
        assert!(!nameless.is_for(&wish(5, "")));
        assert_ne!(record.id, nameless.id);
    }
}
