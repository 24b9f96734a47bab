//! The file that is uploaded: its pieces without its holes, packed, and what all of it hashes to.

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

/// As much is read and packed at a time.
pub const PIECE: u64 = 1 << 20;
/// As much of a hole is packed at a time: a few hundred bytes of it.
const HOLE: u64 = 8 << 20;
/// Fast above all: it has to keep up with the network.
const LEVEL: i32 = 1;

/// An image in a file.
pub struct Image {
    file: File,
    marks: Marks,
    name: String,
    /// What was learnt last of where data is: a stretch, and whether it is data.
    known: (Range<u64>, bool),
    /// What the bytes before `hashed` hash to. `None`: nobody wants to know.
    hasher: Option<Hasher>,
    hashed: u64,
    packer: Packer,
    buffer: Vec<u8>,
}

/// What changes with a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    length: u64,
    inode: u64,
    modified: (i64, i64),
}

/// A part of the image, ready to be sent.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Of the image.
    pub length: u64,
    /// A frame of zstd.
    pub frame: Bytes,
}

impl Image {
    /// Opens a regular file. `hash`: what all of it hashes to will be asked for.
    ///
    /// # Errors
    /// When it is no file, or there is nothing in it.
    pub fn open(path: &Path, hash: bool) -> Result<Self> {
        let failed = || format!("cannot open {}", path.display());
        let file = File::open(path).with_context(failed)?;
        if !file.metadata().with_context(failed)?.is_file() {
            bail!("{} is no file: only files can be gone on with", path.display());
        }
        let marks = Marks::of(&file).with_context(failed)?;
        if marks.length == 0 {
            bail!("{} is empty", path.display());
        }
        Ok(Self {
            file,
            marks,
            name: path.file_name().map(|name| name.to_string_lossy().into()).unwrap_or_default(),
            known: (0..0, false),
            hasher: hash.then(Hasher::sha256),
            hashed: 0,
            packer: Packer::new().context("cannot compress")?,
            buffer: Vec::new(),
        })
    }

    /// Bytes of it.
    pub fn length(&self) -> u64 {
        self.marks.length
    }

    /// Tells it from other files, and from what it may become: by this the server knows it again.
    pub fn fingerprint(&self) -> String {
        let name: String = self.name.chars().take(64).collect();
        let Marks { length, inode, modified: (seconds, nanoseconds) } = self.marks;
        format!("{name}/{length}/{inode}/{seconds}.{nanoseconds:09}")
    }

    /// # Errors
    /// When it has changed since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        if Marks::of(&self.file).context("cannot look at the image")? != self.marks {
            bail!("the image was changed while it was uploaded");
        }
        Ok(())
    }

    /// The next part, from `at` on and before `end`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pack(&mut self, at: u64, end: u64) -> io::Result<Packed> {
        let length = self.take(at, end)?;
        let frame = match self.buffer.is_empty() {
            true => self.packer.zeroes(length)?,
            false => self.packer.pack(&self.buffer)?,
        };
        Ok(Packed { length, frame })
    }

    /// What all of it hashes to, if that was wanted. Reads what was not read yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn checksum(&mut self) -> io::Result<Option<Checksum>> {
        while self.hasher.is_some() && self.hashed < self.length() {
            self.take(self.hashed, self.length())?;
        }
        Ok(self.hasher.clone().map(Hasher::finish))
    }

    /// Reads the next part into the buffer, which stays empty if that is all zeroes. Returns its length.
    fn take(&mut self, at: u64, end: u64) -> io::Result<u64> {
        self.buffer.clear();
        let (stretch, is_data) = self.stretch(at);
        let end = end.min(stretch.end);
        let length = (end - at).min(if is_data { PIECE - at % PIECE } else { HOLE });
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

    /// Where data or a hole is that has the byte `at`.
    fn stretch(&mut self, at: u64) -> (Range<u64>, bool) {
        if !self.known.0.contains(&at) {
            let size = self.length();
            self.known = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) if data > at => (at..data.min(size), false),
                Ok(_) => {
                    let hole = seek(&self.file, SeekFrom::Hole(at)).unwrap_or(size);
                    (at..if hole > at { hole.min(size) } else { size }, true)
                }
                Err(Errno::NXIO) => (at..size, false),
                Err(_) => (at..size, true), // a file system that does not tell
            };
        }
        self.known.clone()
    }

    /// Hashes what of the buffer, or of as many zeroes, was not hashed yet. What was left out before is read for that.
    fn hash(&mut self, at: u64, length: u64) {
        let Some(hasher) = &mut self.hasher else { return };
        if at > self.hashed || at + length <= self.hashed {
            return; // all of it was, or `checksum` comes to it
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

impl Marks {
    fn of(file: &File) -> io::Result<Self> {
        let facts = file.metadata()?;
        let modified = (facts.mtime(), facts.mtime_nsec());
        Ok(Self { length: facts.len(), inode: facts.ino(), modified })
    }
}

/// Makes frames of zstd.
struct Packer {
    zstd: Compressor<'static>,
    /// Of the longest run of zeroes.
    hole: Bytes,
}

impl Packer {
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
            length => self.pack(&vec![0; length as usize]), // not longer
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
    fn frames_hold_the_image_and_holes_weigh_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let disk = SparseDisk::mixed(24 * MIB, 5);
        let bytes = disk.bytes();
        let mut image = image(&folder, &disk);
        let mut hasher = Hasher::sha256();
        hasher.update(&bytes);
        let expected = hasher.finish();
        for begin in [0, 1, PIECE - 1, PIECE, 5 * PIECE + 512] {
            let (mut found, mut at) = (Vec::new(), begin);
            while at < image.length() {
                let Packed { length, frame } = image.pack(at, image.length()).unwrap();
                found.extend(zstd::decode_all(&*frame).unwrap());
                at += length;
                assert_eq!(found.len() as u64, at - begin);
            }
            assert!(found == bytes[begin as usize..], "from {begin}");
            assert_eq!(image.checksum().unwrap(), Some(expected));
        }
        let mut packer = Packer::new().unwrap();
        assert!(packer.zeroes(HOLE).unwrap().len() < 2048);
        assert_eq!(zstd::decode_all(&*packer.zeroes(7).unwrap()).unwrap(), [0; 7]);
    }

    #[test]
    fn what_is_sent_in_any_order_hashes_to_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let disk = SparseDisk::mixed(9 * MIB, 6);
        let mut hasher = Hasher::sha256();
        hasher.update(&disk.bytes());
        let expected = hasher.finish();
        for places in [vec![], vec![3 * PIECE], vec![0, 0, 700, 9 * PIECE - 1, PIECE]] {
            let mut image = image(&folder, &disk);
            for at in places {
                image.pack(at, image.length()).unwrap();
            }
            assert_eq!(image.checksum().unwrap(), Some(expected));
        }
    }

    #[test]
    fn another_file_has_another_fingerprint_and_a_change_is_seen() {
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
