//! Images in local files, on block devices, and on standard input.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pipeline::io_counters::count_system_call;
use pipeline::{ByteStream, Pool, Source, SourceError, SourceFacts};
use rustix::fs::Advice;
use url::Url;

use crate::error::Error;
use crate::receive_buffer::ReceiveBuffer;
use crate::secret::RedactedUrl;

/// Bytes per read: large enough to forget the cost of a system call, small enough to stay in a cache.
const CHUNK_LEN: usize = 256 << 10;
/// Bytes that the kernel is advised to read ahead of a stream.
const READ_AHEAD: u64 = 8 << 20;
/// Unused buffers kept for the next read.
const BUFFERS_KEPT: usize = 32;

/// A local file, a block device, or something that is read once, as a pipe.
pub struct FileSource {
    facts: SourceFacts,
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    name: String,
    kind: Kind,
    pool: Arc<Pool>,
}

enum Kind {
    /// A regular file, with what it was when it was opened.
    File { file: File, identity: Identity },
    /// A block device. What is on it cannot be watched.
    Device { file: File },
    /// Taken by the first stream that reads.
    Pipe { file: Mutex<Option<File>> },
}

/// What changes whenever a file's bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl FileSource {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// When it cannot be opened or is a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| failed("open", path, source))?;
        Self::new(path, file)
    }

    /// What is piped into this process.
    ///
    /// # Errors
    /// When standard input is closed.
    pub fn standard_input() -> Result<Self, Error> {
        let path = Path::new("standard input");
        let handle = io::stdin().as_fd().try_clone_to_owned();
        let file = handle.map_err(|source| failed("open", path, source))?;
        Ok(Self::with(path, None, None, Kind::Pipe { file: Mutex::new(Some(file.into())) }))
    }

    fn new(path: &Path, file: File) -> Result<Self, Error> {
        let failed = |source| failed("look at", path, source);
        let kind = file.metadata().map_err(failed)?.file_type();
        if kind.is_file() {
            let identity = Identity::of_file(&file).map_err(failed)?;
            let validator = identity.to_string();
            let kind = Kind::File { file, identity };
            Ok(Self::with(path, Some(identity.len), Some(validator), kind))
        } else if kind.is_block_device() {
            let len = (&file).seek(SeekFrom::End(0)).map_err(failed)?;
            Ok(Self::with(path, Some(len), None, Kind::Device { file }))
        } else if kind.is_dir() {
            let source = io::Error::from(io::ErrorKind::IsADirectory);
            Err(Error::File { what: "read", path: path.to_owned(), source })
        } else {
            Ok(Self::with(path, None, None, Kind::Pipe { file: Mutex::new(Some(file)) }))
        }
    }

    fn with(path: &Path, length: Option<u64>, validator: Option<String>, kind: Kind) -> Self {
        let name = path.display().to_string();
        let ranges = length.is_some();
        let facts = SourceFacts { name: name.clone(), length, ranges, validator, streams_max: 1 };
        let pool = Pool::unlimited(CHUNK_LEN, BUFFERS_KEPT);
        Self { facts, shared: Arc::new(Shared { path: path.to_owned(), name, kind, pool }) }
    }
}

impl Source for FileSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let length = self.facts.length.unwrap_or(u64::MAX);
        let end = end.unwrap_or(u64::MAX).min(length);
        let shared = Arc::clone(&self.shared);
        match &self.shared.kind {
            Kind::File { .. } | Kind::Device { .. } => {
                Box::new(FileStream { shared, at, end, advised: at })
            }
            Kind::Pipe { .. } if at == 0 && end == u64::MAX => {
                Box::new(PipeStream { shared, stage: PipeStage::New })
            }
            Kind::Pipe { .. } => Box::new(PipeStream { shared, stage: PipeStage::Refused }),
        }
    }

    fn can_reopen(&self) -> bool {
        !matches!(self.shared.kind, Kind::Pipe { .. })
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(formatter)
    }
}

/// The path that a `file://` address names.
pub(crate) fn path_of(location: &str) -> Result<PathBuf, Error> {
    let refuse = |because: String| Error::Address { url: RedactedUrl::of_text(location), because };
    let url = Url::parse(location).map_err(|error| refuse(error.to_string()))?;
    url.to_file_path().map_err(|()| refuse("it names another machine's file".into()))
}

struct FileStream {
    shared: Arc<Shared>,
    at: u64,
    end: u64,
    /// End of the range that the kernel was advised to read.
    advised: u64,
}

impl ByteStream for FileStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let (file, identity) = match &self.shared.kind {
            Kind::File { file, identity } => (file, Some(identity)),
            Kind::Device { file } => (file, None),
            Kind::Pipe { .. } => return Err(self.shared.one_pass().into()),
        };
        self.advised = read_ahead(file, self.at, self.advised, self.end);
        let mut buffer = ReceiveBuffer::new(&self.shared.pool, self.at);
        let spare = buffer.spare().len();
        let wanted = usize::try_from(self.end - self.at).unwrap_or(spare).min(spare);
        while buffer.filled() < wanted {
            let (filled, at) = (buffer.filled(), self.at + buffer.filled() as u64);
            count_system_call();
            match file.read_at(&mut buffer.spare()[..wanted - filled], at) {
                Ok(0) => break,
                Ok(count) => buffer.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", &self.shared.path, error).into()),
            }
        }
        // Looked at after the bytes were read: what is passed on was there before any change.
        if let Some(before) = identity {
            count_system_call();
            let now = Identity::of_file(file)
                .map_err(|error| failed("look at", &self.shared.path, error))?;
            if now != *before {
                return Err(self.shared.changed(before.to_string(), now.to_string()).into());
            }
        }
        if buffer.filled() < wanted {
            let end = self.at + buffer.filled() as u64;
            let (before, after) = (format!("{} bytes long", self.end), format!("{end} bytes long"));
            return Err(self.shared.changed(before, after).into());
        }
        self.at += wanted as u64;
        Ok(Some(buffer.freeze()))
    }
}

/// Advises the kernel of the next range when less than half of [`READ_AHEAD`] is left. Returns the end of that range.
fn read_ahead(file: &File, at: u64, advised: u64, end: u64) -> u64 {
    if at + READ_AHEAD / 2 < advised || advised >= end {
        return advised;
    }
    let until = end.min(at.max(advised) + READ_AHEAD);
    // Advice only: a file system that takes none reads all the same.
    count_system_call();
    let _ = rustix::fs::fadvise(file, advised, NonZeroU64::new(until - advised), Advice::WillNeed);
    until
}

struct PipeStream {
    shared: Arc<Shared>,
    stage: PipeStage,
}

enum PipeStage {
    New,
    Reading(File),
    Complete,
    /// A part was requested, or reading failed.
    Refused,
}

impl ByteStream for PipeStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if let (PipeStage::New, Kind::Pipe { file }) = (&self.stage, &self.shared.kind) {
            let file = file.lock().take();
            self.stage = file.map_or(PipeStage::Refused, PipeStage::Reading);
        }
        let file = match &mut self.stage {
            PipeStage::Reading(file) => file,
            PipeStage::Complete => return Ok(None),
            PipeStage::New | PipeStage::Refused => return Err(self.shared.one_pass().into()),
        };
        let mut buffer = ReceiveBuffer::new(&self.shared.pool, 0);
        // A pipe brings 64 KiB at a time at most: gathered, for each transfer has its price.
        while !buffer.spare().is_empty() {
            count_system_call();
            match file.read(buffer.spare()) {
                Ok(0) => break,
                Ok(count) => buffer.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.stage = PipeStage::Refused;
                    return Err(failed("read", &self.shared.path, error).into());
                }
            }
        }
        if buffer.filled() == 0 {
            self.stage = PipeStage::Complete;
            return Ok(None);
        }
        Ok(Some(buffer.freeze()))
    }
}

impl Shared {
    fn one_pass(&self) -> Error {
        Error::OnePass { name: self.name.clone() }
    }

    fn changed(&self, before: String, after: String) -> Error {
        Error::Changed { name: self.name.clone(), before, after }
    }
}

impl Identity {
    fn of_file(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, inode, len, modified: (seconds, nanoseconds) } = self;
        write!(
            formatter,
            "file {device}:{inode} of {len} bytes, modified {seconds}.{nanoseconds:09}"
        )
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Each word holds its own offset, so a shift shows.
    fn pattern(len: usize) -> Vec<u8> {
        (0..len.div_ceil(8) as u64).flat_map(|n| (n * 8).to_le_bytes()).take(len).collect()
    }

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read(source: &FileSource, at: u64, end: Option<u64>) -> Result<Vec<u8>, SourceError> {
        let (mut stream, mut all) = (source.open(at, end), Vec::new());
        while let Some(bytes) = stream.next()? {
            assert!(!bytes.is_empty());
            all.extend_from_slice(&bytes);
        }
        assert!(stream.next()?.is_none(), "an end stays an end");
        Ok(all)
    }

    #[test]
    fn any_part_of_a_file_can_be_read() {
        let bytes = pattern(2 * CHUNK_LEN + 17);
        let file = file_of(&bytes);
        let source = FileSource::open(file.path()).unwrap();
        assert_eq!(source.facts().length, Some(bytes.len() as u64));
        assert!(source.facts().ranges && source.facts().validator.is_some());
        let len = bytes.len();
        for (at, end) in
            [(0, len), (0, 1), (1, CHUNK_LEN + 2), (CHUNK_LEN - 1, len), (len, len), (5, 5)]
        {
            let found = read(&source, at as u64, Some(end as u64)).unwrap();
            assert!(found == bytes[at..end], "{at}..{end}");
        }
        assert!(read(&source, 3, None).unwrap() == bytes[3..]);
        assert!(read(&source, 3, Some(u64::MAX)).unwrap() == bytes[3..]);
        assert!(read(&source, u64::MAX, None).unwrap().is_empty());
    }

    #[test]
    fn an_empty_file_is_read_as_such() {
        let file = file_of(b"");
        let source = FileSource::open(file.path()).unwrap();
        assert_eq!((source.facts().length, read(&source, 0, None).unwrap().len()), (Some(0), 0));
    }

    #[test]
    fn a_file_that_changes_in_between_is_noticed() {
        type Change = fn(&mut File);
        let changes: [(&str, Change); 3] = [
            ("grows", |file| file.write_all(b"more").unwrap()),
            ("shrinks", |file| file.set_len(CHUNK_LEN as u64 + 1).unwrap()),
            ("is overwritten", |file| {
                file.rewind().unwrap();
                file.write_all(b"other").unwrap();
                file.set_modified(std::time::UNIX_EPOCH).unwrap(); // the clock's ticks may be coarse
            }),
        ];
        for (case, change) in changes {
            let mut file = file_of(&pattern(2 * CHUNK_LEN));
            let source = FileSource::open(file.path()).unwrap();
            let mut stream = source.open(0, None);
            stream.next().unwrap().unwrap();
            change(file.as_file_mut());
            let error = stream.next().expect_err(case);
            assert!(error.to_string().contains("changed during the import"), "{case}: {error}");
        }
    }

    #[test]
    fn a_pipe_is_read_once_and_only_from_its_start() {
        let bytes = pattern(3 * CHUNK_LEN + 5);
        let (reader, mut writer) = io::pipe().unwrap();
        let sent = bytes.clone();
        let thread = std::thread::spawn(move || writer.write_all(&sent));
        let handle = std::os::fd::OwnedFd::from(reader);
        let source = FileSource::new(Path::new("pipe"), handle.into()).unwrap();
        assert_eq!((source.facts().length, source.facts().ranges), (None, false));
        assert!(source.open(1, None).next().is_err());
        assert!(source.open(0, Some(9)).next().is_err());
        assert!(read(&source, 0, None).unwrap() == bytes);
        assert!(source.open(0, None).next().is_err());
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn an_open_error_contains_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let error = FileSource::open(directory.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot read {}", directory.path().display()));
        let missing = directory.path().join("missing");
        let error = FileSource::open(&missing).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot open {}", missing.display()));
    }

    #[test]
    fn a_file_address_names_a_path() {
        assert_eq!(path_of("file:///a%20b").unwrap(), Path::new("/a b"));
        assert_eq!(path_of("file://localhost/a").unwrap(), Path::new("/a"));
        assert!(path_of("file://elsewhere/a").is_err());
    }
}
