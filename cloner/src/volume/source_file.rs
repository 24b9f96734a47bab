//! One file or device of the source, in parts, without its holes.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pipeline::is_cached;
use pipeline::sink::ALIGNMENT;
use rustix::fs::OFlags;

use super::segments::FileSegments;
use crate::error::Error;

/// Maximum bytes of a part. Parts end at multiples of it.
pub(crate) const PART_LEN: usize = 1 << 20;

/// An open file or device.
#[derive(Debug)]
pub(crate) struct SourceFile {
    path: PathBuf,
    file: File,
    /// With `O_DIRECT`: the source is read once and should not evict other pages.
    direct: Option<File>,
    direct_fails: AtomicBool,
    size: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// To be read: at most [`PART_LEN`] bytes.
    Data(Arc<SourceFile>, Range<u64>),
    /// That many zeroes, which need not be read.
    Hole(u64),
}

impl SourceFile {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
        };
        Self::new(path.to_owned(), open(OFlags::empty()), || open(OFlags::DIRECT).ok())
    }

    /// `direct` opens the same file with `O_DIRECT`, which not every file system supports.
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

    /// The parts from offset `from` on, in order. Without `holes`, holes count as data.
    pub fn parts(self: &Arc<Self>, from: u64, holes: bool) -> impl Iterator<Item = Part> + use<> {
        let content = Arc::clone(self);
        let segments = FileSegments::new(Arc::clone(self), from, holes);
        segments.flat_map(move |segment| {
            let content = Arc::clone(&content);
            let hole = segment.is_hole.then(|| segment.range.end - segment.range.start);
            let data = if segment.is_hole { 0..0 } else { segment.range };
            let data = split_at_part_borders(data)
                .map(move |range| Part::Data(Arc::clone(&content), range));
            hole.map(Part::Hole).into_iter().chain(data)
        })
    }

    /// Reads `len` bytes into the beginning of `out`, an aligned buffer of [`PART_LEN`] bytes.
    pub fn read(&self, at: u64, len: usize, out: &mut [u8]) -> Result<(), Error> {
        if let Some(direct) = &self.direct
            && at.is_multiple_of(ALIGNMENT as u64)
            && !self.direct_fails.load(Ordering::Relaxed)
            // What is in the page cache need not be read from the storage.
            && !is_cached(&self.file, &(at..at + len as u64))
        {
            let max = len.next_multiple_of(ALIGNMENT).min(out.len());
            match direct.read_at(&mut out[..max], at) {
                Ok(count) if count >= len => return Ok(()),
                // A short read: the buffered read below returns the reason.
                Ok(_) => {}
                Err(_) => self.direct_fails.store(true, Ordering::Relaxed),
            }
        }
        let out = &mut out[..len];
        self.file.read_exact_at(out, at).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                let because = "it has shrunk during the clone".to_owned();
                Error::Unsendable { path: self.path.clone(), because }
            }
            _ => Error::Source { what: "read", path: self.path.clone(), source },
        })
    }
}

fn split_at_part_borders(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        let border = (start / PART_LEN as u64 + 1).saturating_mul(PART_LEN as u64);
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
    fn parts_end_at_multiples_of_their_length() {
        let mib = PART_LEN as u64;
        assert_eq!(split_at_part_borders(0..0).next(), None);
        assert!(split_at_part_borders(5..6).eq(std::iter::once(5..6)));
        let all: Vec<_> = split_at_part_borders(mib - 1..3 * mib + 1).collect();
        assert_eq!(all, [mib - 1..mib, mib..2 * mib, 2 * mib..3 * mib, 3 * mib..3 * mib + 1]);
    }

    #[test]
    fn parts_concatenated_are_the_file() {
        let pool = Pool::new(PART_LEN, 1);
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
            let content = Arc::new(SourceFile::open(file.path()).unwrap());
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
    fn file_that_shrinks_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10_000).unwrap();
        let content = SourceFile::open(file.path()).unwrap();
        file.as_file().set_len(5000).unwrap();
        let mut buffer = Pool::new(PART_LEN, 1).take();
        let error = content.read(4096, 5904, &mut buffer).unwrap_err();
        assert!(error.to_string().ends_with("it has shrunk during the clone"), "{error}");
    }
}
