//! The record of an upload next to its volume, for the next process of the pod.

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

use super::request::UploadRequest;

const FORMAT: u32 = 1;
/// Of the first line, which is JSON.
const LINE_LEN_MAX: usize = 16 << 10;
/// The ID is a capability: it must not be guessable.
const ID_BYTES: usize = 16;

/// Identifies an upload.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadRecord {
    format: u32,
    /// ID in its URL. Secret: any client that knows it can continue the upload.
    pub id: String,
    pub length: u64,
    /// Chosen by the client.
    pub fingerprint: String,
    /// As the client announced it.
    checksum: Option<String>,
}

impl UploadRecord {
    /// Those of the kernel's random number generator.
    pub fn new(request: &UploadRequest) -> io::Result<Self> {
        let random = runtime::random_bytes::<ID_BYTES>()?;
        Ok(Self {
            format: FORMAT,
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            length: request.length,
            fingerprint: request.fingerprint.clone(),
            checksum: request.checksum.map(|checksum| checksum.to_string()),
        })
    }

    /// Whether a client that sends this request means this upload.
    pub fn is_for(&self, request: &UploadRequest) -> bool {
        let is_known = !self.fingerprint.is_empty() && self.fingerprint == request.fingerprint;
        is_known && self.length == request.length && self.checksum() == request.checksum
    }

    /// Expected checksum of the upload.
    pub fn checksum(&self) -> Option<Checksum> {
        self.checksum.as_ref()?.parse().ok()
    }

    /// Writes the record and the first bytes of the upload durably.
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

    /// `None` if there is no complete record.
    pub fn load(path: &Path) -> Option<(Self, Bytes)> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        read(file)
    }
}

/// The ID is secret.
impl fmt::Debug for UploadRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UploadRecord").field("length", &self.length).finish_non_exhaustive()
    }
}

fn read(file: File) -> Option<(UploadRecord, Bytes)> {
    let mut bytes = Vec::new();
    let most = (LINE_LEN_MAX + HEAD_LEN + 1) as u64;
    file.take(most).read_to_end(&mut bytes).ok()?;
    let end = bytes.iter().take(LINE_LEN_MAX).position(|byte| *byte == b'\n')?;
    let record: UploadRecord = serde_json::from_slice(&bytes[..end]).ok()?;
    let head = Bytes::from(bytes).slice(end + 1..);
    let is_whole = record.format == FORMAT
        && record.length > 0
        && record.id.len() == 2 * ID_BYTES
        && record.id.bytes().all(|byte| byte.is_ascii_hexdigit())
        && head.len() as u64 == record.length.min(HEAD_LEN as u64);
    is_whole.then_some((record, head))
}

/// Path of the record of an upload into the file `disk`.
pub fn record_path(disk: &Path) -> Option<PathBuf> {
    let name = disk.file_name()?.to_string_lossy();
    Some(disk.with_file_name(format!(".{name}.cdi-upload")))
}

/// A missing record is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(length: u64, fingerprint: &str) -> UploadRequest {
        UploadRequest { length, fingerprint: fingerprint.into(), checksum: None }
    }

    #[test]
    fn stored_record_is_loaded_and_a_truncated_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = record_path(&directory.path().join("disk.img")).unwrap();
        assert!(path.ends_with(".disk.img.cdi-upload"));
        assert_eq!(UploadRecord::load(&path), None);
        let record = UploadRecord::new(&request(5, "a")).unwrap();
        record.store(&path, b"he\nad").unwrap();
        assert_eq!(UploadRecord::load(&path), Some((record, Bytes::from_static(b"he\nad"))));
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(UploadRecord::load(&path), None, "cut to {len} bytes");
        }
        fs::write(&path, [&*whole, b"x"].concat()).unwrap();
        assert_eq!(UploadRecord::load(&path), None, "longer");
        remove(&path).unwrap();
        remove(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        fs::write(directory.path().join("elsewhere"), &whole).unwrap();
        assert_eq!(UploadRecord::load(&path), None, "nothing is followed");
    }

    #[test]
    fn upload_is_recognised_by_length_fingerprint_and_checksum() {
        let record = UploadRecord::new(&request(5, "a")).unwrap();
        assert!(record.is_for(&request(5, "a")));
        let checksum = Some(contract::Hasher::sha256().finish());
        for other in [
            request(6, "a"),
            request(5, "b"),
            request(5, ""),
            UploadRequest { checksum, ..request(5, "a") },
        ] {
            assert!(!record.is_for(&other), "{other:?}");
        }
        let nameless = UploadRecord::new(&request(5, "")).unwrap();
        assert!(!nameless.is_for(&request(5, "")));
        assert_ne!(record.id, nameless.id);
    }
}
