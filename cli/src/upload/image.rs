//! The file that is uploaded: compressed chunks without its holes, and its checksum.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use contract::{Checksum, Hasher};
use pipeline::zeroes::is_zero;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use zstd::bulk::Compressor;

/// Bytes of data per frame.
pub const CHUNK: u64 = 1 << 20;
/// Bytes of a hole per frame, which compress to a few hundred bytes.
const HOLE: u64 = 8 << 20;
/// Compression level: it has to keep up with the network.
const LEVEL: i32 = 1;

/// An image in a file.
pub struct Image {
    file: File,
    identity: FileIdentity,
    name: String,
    /// The last extent found: its range, and whether it holds data.
    known: (Range<u64>, bool),
    /// Hash of the bytes before `hashed`. `None`: no checksum is requested.
    hasher: Option<Hasher>,
    hashed: u64,
    compressor: FrameCompressor,
    buffer: Vec<u8>,
}

/// Changes when the file's content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    length: u64,
    inode: u64,
    modified: (i64, i64),
}

/// A compressed part of the image.
#[derive(Clone, Debug)]
pub struct CompressedFrame {
    /// Bytes of the image.
    pub length: u64,
    /// A zstd frame.
    pub frame: Bytes,
}

impl Image {
    /// Opens a regular file. `hash`: [`checksum`](Self::checksum) will be called.
    ///
    /// # Errors
    /// When it is not a regular file, or empty.
    pub fn open(path: &Path, hash: bool) -> Result<Self> {
        let failed = || format!("cannot open {}", path.display());
        let file = File::open(path).with_context(failed)?;
        if !file.metadata().with_context(failed)?.is_file() {
            bail!("{} is not a regular file: only files can be resumed", path.display());
        }
        let identity = FileIdentity::read(&file).with_context(failed)?;
        if identity.length == 0 {
            bail!("{} is empty", path.display());
        }
        Ok(Self {
            file,
            identity,
            name: path.file_name().map(|name| name.to_string_lossy().into()).unwrap_or_default(),
            known: (0..0, false),
            hasher: hash.then(Hasher::sha256),
            hashed: 0,
            compressor: FrameCompressor::new().context("cannot compress")?,
            buffer: Vec::new(),
        })
    }

    pub fn length(&self) -> u64 {
        self.identity.length
    }

    /// Identifies the file and its present content, by which the server recognizes a resumed upload.
    pub fn fingerprint(&self) -> String {
        let name: String = self.name.chars().take(64).collect();
        let FileIdentity { length, inode, modified: (seconds, nanoseconds) } = self.identity;
        format!("{name}/{length}/{inode}/{seconds}.{nanoseconds:09}")
    }

    /// # Errors
    /// When it has changed since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        if FileIdentity::read(&self.file).context("cannot read the image's metadata")?
            != self.identity
        {
            bail!("the image was changed during the upload");
        }
        Ok(())
    }

    /// Compresses the next part, from `at`, before `end`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pack(&mut self, at: u64, end: u64) -> io::Result<CompressedFrame> {
        let length = self.take(at, end)?;
        let frame = if self.buffer.is_empty() {
            self.compressor.zeroes(length)?
        } else {
            self.compressor.pack(&self.buffer)?
        };
        Ok(CompressedFrame { length, frame })
    }

    /// The checksum of the file, if requested. Reads the bytes not read yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn checksum(&mut self) -> io::Result<Option<Checksum>> {
        while self.hasher.is_some() && self.hashed < self.length() {
            self.take(self.hashed, self.length())?;
        }
        Ok(self.hasher.clone().map(Hasher::finish))
    }

    /// Reads the next part into the buffer, which stays empty if the part is all zeroes. Returns its length.
    fn take(&mut self, at: u64, end: u64) -> io::Result<u64> {
        self.buffer.clear();
        let (extent, is_data) = self.extent(at);
        let end = end.min(extent.end);
        let length = (end - at).min(if is_data { CHUNK - at % CHUNK } else { HOLE });
        if is_data {
            self.buffer.resize(length as usize, 0);
            self.file.read_exact_at(&mut self.buffer, at)?;
        }
        self.hash(at, length);
        if is_zero(&self.buffer) {
            self.buffer.clear();
        }
        Ok(length)
    }

    /// The extent (data or hole) that contains byte `at`.
    fn extent(&mut self, at: u64) -> (Range<u64>, bool) {
        if !self.known.0.contains(&at) {
            let size = self.length();
            self.known = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) if data > at => (at..data.min(size), false),
                Ok(_) => {
                    let hole = seek(&self.file, SeekFrom::Hole(at)).unwrap_or(size);
                    (at..if hole > at { hole.min(size) } else { size }, true)
                }
                Err(Errno::NXIO) => (at..size, false),
                Err(_) => (at..size, true), // no SEEK_DATA on this file system
            };
        }
        self.known.clone()
    }

    /// Hashes the part of the buffer, or of `length` zeroes, that was not hashed yet.
    fn hash(&mut self, at: u64, length: u64) {
        let Some(hasher) = &mut self.hasher else { return };
        if at > self.hashed || at + length <= self.hashed {
            return; // hashed already, or `checksum` will read it
        }
        let new = (self.hashed - at) as usize;
        match self.buffer.get(new..) {
            Some(bytes) if !self.buffer.is_empty() => hasher.update(bytes),
            _ => {
                let zeroes = [0; 1 << 16];
                let mut left = at + length - self.hashed;
                while left > 0 {
                    let some = left.min(zeroes.len() as u64);
                    hasher.update(&zeroes[..some as usize]);
                    left -= some;
                }
            }
        }
        self.hashed = at + length;
    }
}

impl FileIdentity {
    fn read(file: &File) -> io::Result<Self> {
        let facts = file.metadata()?;
        let modified = (facts.mtime(), facts.mtime_nsec());
        Ok(Self { length: facts.len(), inode: facts.ino(), modified })
    }
}

/// Creates zstd frames.
struct FrameCompressor {
    zstd: Compressor<'static>,
    /// The frame of [`HOLE`] zeroes.
    hole: Bytes,
}

impl FrameCompressor {
    fn new() -> io::Result<Self> {
        let mut zstd = Compressor::new(LEVEL)?;
        let hole = zstd.compress(&vec![0; HOLE as usize])?.into();
        Ok(Self { zstd, hole })
    }

    fn pack(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
        self.zstd.compress(bytes).map(Bytes::from)
    }

    fn zeroes(&mut self, length: u64) -> io::Result<Bytes> {
        match length {
            HOLE => Ok(self.hole.clone()),
            length => self.pack(&vec![0; length as usize]), // at most HOLE
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::{MIB, SparseDisk};

    use super::*;

    fn image(folder: &tempfile::TempDir, disk: &SparseDisk) -> Image {
        let path = folder.path().join("disk.img");
        disk.write_to(&path);
        Image::open(&path, true).unwrap()
    }

    #[test]
    fn frames_hold_the_image_and_holes_are_small() {
        let folder = tempfile::tempdir().unwrap();
        let disk = SparseDisk::mixed(24 * MIB, 5);
        let bytes = disk.bytes();
        let mut image = image(&folder, &disk);
        let mut hasher = Hasher::sha256();
        hasher.update(&bytes);
        let expected = hasher.finish();
        for begin in [0, 1, CHUNK - 1, CHUNK, 5 * CHUNK + 512] {
            let (mut found, mut at) = (Vec::new(), begin);
            while at < image.length() {
                let CompressedFrame { length, frame } = image.pack(at, image.length()).unwrap();
                found.extend(zstd::decode_all(&*frame).unwrap());
                at += length;
                assert_eq!(found.len() as u64, at - begin);
            }
            assert!(found == bytes[begin as usize..], "from {begin}");
            assert_eq!(image.checksum().unwrap(), Some(expected));
        }
        let mut compressor = FrameCompressor::new().unwrap();
        assert!(compressor.zeroes(HOLE).unwrap().len() < 2048);
        assert_eq!(zstd::decode_all(&*compressor.zeroes(7).unwrap()).unwrap(), [0; 7]);
    }

    #[test]
    fn checksum_does_not_depend_on_the_order_of_reads() {
        let folder = tempfile::tempdir().unwrap();
        let disk = SparseDisk::mixed(9 * MIB, 6);
        let mut hasher = Hasher::sha256();
        hasher.update(&disk.bytes());
        let expected = hasher.finish();
        for places in [vec![], vec![3 * CHUNK], vec![0, 0, 700, 9 * CHUNK - 1, CHUNK]] {
            let mut image = image(&folder, &disk);
            for at in places {
                image.pack(at, image.length()).unwrap();
            }
            assert_eq!(image.checksum().unwrap(), Some(expected));
        }
    }

    #[test]
    fn fingerprint_identifies_the_file_and_changes_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let first = Image::open(&path, false).unwrap();
        assert_eq!(first.fingerprint(), Image::open(&path, false).unwrap().fingerprint());
        first.check_unchanged().unwrap();
        std::fs::write(&path, "three").unwrap();
        assert!(first.check_unchanged().is_err());
        assert_ne!(first.fingerprint(), Image::open(&path, false).unwrap().fingerprint());
        std::fs::write(&path, "").unwrap();
        assert!(Image::open(&path, false).is_err());
        assert!(Image::open(folder.path(), false).is_err());
    }
}
