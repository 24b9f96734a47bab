//! The bytes of one file or device, and which of them are worth reading.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pipeline::sink::ALIGNMENT;
use rustix::fs::OFlags;

use super::segments::Segments;
use crate::error::Error;

/// Bytes of one piece of work. Pieces end at multiples of it.
pub(crate) const PIECE_LEN: usize = 1 << 20;

/// An open file or device.
#[derive(Debug)]
pub(crate) struct Content {
    path: PathBuf,
    file: File,
    /// The same, past the page cache: what is cloned is read once, and nobody else should make room for it.
    direct: Option<File>,
    direct_fails: AtomicBool,
    size: u64,
}

/// A part of a content, in order.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// To be read. At most [`PIECE_LEN`] bytes.
    Data(Arc<Content>, Range<u64>),
    /// So many zeroes, which need not be read.
    Hole(u64),
}

impl Content {
    /// The file or device of this name.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
        };
        Self::new(path.to_owned(), open(OFlags::empty()), || open(OFlags::DIRECT).ok())
    }

    /// What was opened, and can perhaps be opened in another way.
    pub fn new(
        path: PathBuf,
        opened: io::Result<File>,
        direct: impl FnOnce() -> Option<File>,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Source { what: "open", path: path.clone(), source };
        let mut file = opened.map_err(failed)?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?; // of a device too
        let direct = direct();
        Ok(Self { path, file, direct, direct_fails: AtomicBool::new(false), size })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where data is and where holes are, from `from` on. Without `holes` all of it counts as data.
    pub fn parts(self: &Arc<Self>, from: u64, holes: bool) -> impl Iterator<Item = Part> + use<> {
        let content = Arc::clone(self);
        let segments = Segments::new(Arc::clone(self), from, holes);
        segments.flat_map(move |segment| {
            let content = Arc::clone(&content);
            let hole = segment.is_hole.then(|| segment.range.end - segment.range.start);
            let data = if segment.is_hole { 0..0 } else { segment.range };
            let data = pieces(data).map(move |range| Part::Data(Arc::clone(&content), range));
            hole.map(Part::Hole).into_iter().chain(data)
        })
    }

    /// Reads `len` bytes into the beginning of `out`, which is aligned and a piece long.
    pub fn read(&self, at: u64, len: usize, out: &mut [u8]) -> Result<(), Error> {
        if let Some(direct) = &self.direct
            && at.is_multiple_of(ALIGNMENT as u64)
            && !self.direct_fails.load(Ordering::Relaxed)
        {
            let most = len.next_multiple_of(ALIGNMENT).min(out.len());
            match direct.read_at(&mut out[..most], at) {
                Ok(count) if count >= len => return Ok(()),
                // Whatever is the matter is found out below.
                Ok(_) => {}
                Err(_) => self.direct_fails.store(true, Ordering::Relaxed),
            }
        }
        let out = &mut out[..len];
        self.file.read_exact_at(out, at).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                let because = "it has shrunk while it was read".to_owned();
                Error::Unsendable { path: self.path.clone(), because }
            }
            _ => Error::Source { what: "read", path: self.path.clone(), source },
        })
    }
}

fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        let border = (start / PIECE_LEN as u64 + 1).saturating_mul(PIECE_LEN as u64);
        at = border.min(range.end);
        (start < range.end).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use pipeline::Pool;
    use testkit::{Fill, SparseDisk};

    use super::*;

    #[test]
    fn pieces_end_at_borders() {
        let mib = PIECE_LEN as u64;
        assert_eq!(pieces(0..0).next(), None);
        assert!(pieces(5..6).eq(std::iter::once(5..6)));
        let all: Vec<_> = pieces(mib - 1..3 * mib + 1).collect();
        assert_eq!(all, [mib - 1..mib, mib..2 * mib, 2 * mib..3 * mib, 3 * mib..3 * mib + 1]);
    }

    #[test]
    fn parts_put_together_are_the_file_again() {
        let pool = Pool::new(PIECE_LEN, 1);
        let mut buffer = pool.take();
        for (len, holes) in
            [(0, true), (1, true), (5 << 20, true), ((5 << 20) - 77, true), (3 << 20, false)]
        {
            let disk = SparseDisk::new(len).with(1 << 20, 5000, Fill::Pattern).with(
                4 << 20,
                1 << 20,
                Fill::Random(1),
            );
            let file = tempfile::NamedTempFile::new().unwrap();
            disk.write_to(file.path());
            let content = Arc::new(Content::open(file.path()).unwrap());
            assert_eq!(content.size(), len);
            for from in [0, len / 3] {
                let mut bytes = Vec::new();
                let mut hole_bytes = 0;
                for part in content.parts(from, holes) {
                    match part {
                        Part::Hole(len) => {
                            hole_bytes += len;
                            bytes.resize(bytes.len() + len as usize, 0);
                        }
                        Part::Data(content, range) => {
                            let len = (range.end - range.start) as usize;
                            content.read(range.start, len, &mut buffer).unwrap();
                            bytes.extend(&buffer[..len]);
                        }
                    }
                }
                assert!(bytes == disk.bytes()[from as usize..], "{len} {from}");
                assert!(holes || hole_bytes == 0);
            }
        }
    }

    #[test]
    fn a_file_that_shrinks_is_said_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10_000).unwrap();
        let content = Content::open(file.path()).unwrap();
        file.as_file().set_len(5000).unwrap();
        let mut buffer = Pool::new(PIECE_LEN, 1).take();
        let error = content.read(4096, 5904, &mut buffer).unwrap_err();
        assert!(error.to_string().ends_with("it has shrunk while it was read"), "{error}");
    }
}
