//! The keys that tokens are signed and verified with: parsed once, and again when their files change.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::names::{SIGNING_KEY_PRIVATE, SIGNING_KEY_PUBLIC};
use auth::token::{SigningKey, TokenError, VerifyingKey};
use parking_lot::Mutex;

use super::Error;

/// The two keys of a mounted Secret.
pub struct TokenKeys {
    verifying: KeyFile<VerifyingKey>,
    signing: KeyFile<SigningKey>,
}

impl TokenKeys {
    /// Reads nothing yet: the Secret may be mounted later.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            verifying: KeyFile::new(directory.join(SIGNING_KEY_PUBLIC), VerifyingKey::from_pem),
            signing: KeyFile::new(directory.join(SIGNING_KEY_PRIVATE), SigningKey::from_pem),
        }
    }

    /// # Errors
    /// When the file is missing or holds no public key. A key that was read before is not used then.
    pub fn verifying(&self) -> Result<Arc<VerifyingKey>, Error> {
        self.verifying.load()
    }

    /// # Errors
    /// When the file is missing or holds no private key. A key that was read before is not used then.
    pub fn signing(&self) -> Result<Arc<SigningKey>, Error> {
        self.signing.load()
    }
}

struct KeyFile<K> {
    path: PathBuf,
    parse: fn(&[u8]) -> Result<K, TokenError>,
    parsed: Mutex<Option<(FileVersion, Arc<K>)>>,
}

/// Changes with each write to a file, and with each update of a mounted Secret, which replaces the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for FileVersion {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl<K> KeyFile<K> {
    fn new(path: PathBuf, parse: fn(&[u8]) -> Result<K, TokenError>) -> Self {
        Self { path, parse, parsed: Mutex::new(None) }
    }

    fn load(&self) -> Result<Arc<K>, Error> {
        let found = std::fs::metadata(&self.path).map_err(|error| self.unreadable(error))?;
        let mut parsed = self.parsed.lock();
        if let Some((version, key)) = &*parsed
            && *version == FileVersion::from(&found)
        {
            return Ok(Arc::clone(key));
        }
        // The version is that of the opened file, taken before its content: a later write has another one.
        let (version, text) = self.read().map_err(|error| self.unreadable(error))?;
        let key = Arc::new((self.parse)(&text).map_err(Error::Tokens)?);
        *parsed = Some((version, Arc::clone(&key)));
        Ok(key)
    }

    fn read(&self) -> io::Result<(FileVersion, Vec<u8>)> {
        let mut file = File::open(&self.path)?;
        let version = FileVersion::from(&file.metadata()?);
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok((version, text))
    }

    fn unreadable(&self, source: io::Error) -> Error {
        let action = format!("read {}, by which clones are allowed", self.path.display());
        Error::Local { action, source }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static PARSED: AtomicUsize = AtomicUsize::new(0);

    fn parse(text: &[u8]) -> Result<Vec<u8>, TokenError> {
        PARSED.fetch_add(1, Ordering::SeqCst);
        match text {
            b"bad" => Err(TokenError::Key { what: "public key", source: None }),
            text => Ok(text.to_vec()),
        }
    }

    #[test]
    fn key_is_parsed_once_and_again_after_each_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let file = KeyFile::new(path.clone(), parse);
        assert!(matches!(file.load(), Err(Error::Local { .. })));
        std::fs::write(&path, "one").unwrap();
        for _ in 0..3 {
            assert_eq!(*file.load().unwrap(), b"one");
        }
        assert_eq!(PARSED.load(Ordering::SeqCst), 1);

        // As the kubelet does it: the file is replaced, not written.
        let next = directory.path().join("next");
        std::fs::write(&next, "two").unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert_eq!(*file.load().unwrap(), b"two");
        assert_eq!(*file.load().unwrap(), b"two");
        assert_eq!(PARSED.load(Ordering::SeqCst), 2);

        std::fs::write(&path, "bad").unwrap();
        assert!(matches!(file.load(), Err(Error::Tokens(_))), "the old key is not used any more");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(file.load(), Err(Error::Local { .. })));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(*file.load().unwrap(), b"two");
    }
}
