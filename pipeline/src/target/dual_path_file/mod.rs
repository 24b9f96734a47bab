//! One file or device with two I/O paths: direct for what is large and aligned, through the page cache for the rest.

mod direct;
mod zeroing;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Advice;

use self::direct::Direct;
pub use self::zeroing::Zeroing;
use super::allocation::AllocationAhead;
use super::old_data::OldData;
use super::write_back::WriteBack;
use crate::buffer::Pool;
use crate::io_counters::{copy_counted, count_system_call};
use crate::sink::ALIGNMENT;
use crate::sys;

/// Less than this goes through the page cache even where it is aligned: the kernel gathers small writes, while direct
/// I/O waits for each. Measured on ext4 over virtio with one writer: 4 KiB pieces 4 × faster, 16 KiB 3 ×, 64 KiB about
/// even in wall time, and direct I/O the cheaper from there on.
const DIRECT_MIN: usize = 64 << 10;

/// The largest plausible block of a file system.
const BLOCK_MAX: u64 = 64 << 10;

/// Buffers for memory that is not aligned, and for zeroes: large enough that a request each costs little.
const BOUNCE_LEN: usize = 1 << 20;
const BOUNCE_COUNT: usize = 2;

/// One open file or device. Ranges that do not overlap can be used at the same time.
pub struct DualPathFile {
    buffered: File,
    direct: Option<Direct>,
    write_back: WriteBack,
    /// For a sparse file on a file system where that is of use.
    ahead: Option<AllocationAhead>,
    bounce: Arc<Pool>,
    old_data: OldData,
    /// Pages (or larger blocks of the device) wholly inside a request are its own; those at its edges may be shared with
    /// a neighbour, and always go through the page cache, which joins the two.
    io_block: u64,
}

impl DualPathFile {
    /// Takes an open file, and opens it once more for direct I/O where that works. Tests of the other path turn
    /// `try_direct` off.
    pub fn new(buffered: File, path: &Path, try_direct: bool) -> Self {
        let io_block = io_block(&buffered);
        let direct = try_direct.then(|| Direct::open(&buffered, path, io_block)).flatten();
        // No reading ahead: it would bring pages into memory that another thread is just writing past it. Only advice.
        let _ = rustix::fs::fadvise(&buffered, 0, None, Advice::Random);
        Self {
            buffered,
            direct,
            write_back: WriteBack::default(),
            ahead: None,
            bounce: Pool::new(BOUNCE_LEN, BOUNCE_COUNT),
            old_data: OldData::new(),
            io_block,
        }
    }

    /// For a sparse file with a disk of `size` bytes: lets direct writes allocate more than they need, which
    /// [`close`](Self::close) deallocates. `resumed`: an earlier process may have done the same.
    #[must_use]
    pub fn allocating_ahead(mut self, size: u64, resumed: bool) -> Self {
        self.ahead = AllocationAhead::new(&self.buffered, size, resumed);
        self
    }

    /// The buffered descriptor.
    pub fn file(&self) -> &File {
        &self.buffered
    }

    /// Large writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    /// Writes all of `bytes`.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (head, middle) = self.cut(at, bytes.len());
        let Some(direct) = self.direct().filter(|_| middle.len() >= DIRECT_MIN) else {
            return self.write_buffered(at, bytes);
        };
        self.write_buffered(at, &bytes[..head])?;
        let begin = at + head as u64;
        match self.write_direct(direct, begin, &bytes[middle.clone()]) {
            Err(error) if direct.is_refusal(&error) => {
                self.write_buffered(begin, &bytes[middle.clone()])?;
            }
            result => result?,
        }
        self.write_buffered(at + middle.end as u64, &bytes[middle.end..])
    }

    /// Writes pieces that follow one another: by one request, where each of them could go past the page cache.
    pub fn write_pieces(&self, at: u64, pieces: &[&[u8]]) -> io::Result<()> {
        let fits = |direct: &&Direct| {
            let mut len = 0;
            let whole = pieces.iter().all(|piece| {
                len += piece.len();
                piece.len().is_multiple_of(self.io_block as usize) && direct.takes(piece)
            });
            whole && at.is_multiple_of(self.io_block) && len >= DIRECT_MIN
        };
        let mut written = match self.direct().filter(fits) {
            Some(direct) if pieces.len() > 1 => {
                let end = at + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
                self.with_space(at..end, true, || direct.gather(at, pieces))?
            }
            _ => 0,
        };
        // The rest, which is all where that was not tried or refused.
        let mut at = at;
        for piece in pieces {
            let done = written.min(piece.len());
            written -= done;
            self.write(at + done as u64, &piece[done..])?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes the range by `write`. `direct`: past the page cache.
    fn with_space<T>(
        &self,
        range: Range<u64>,
        direct: bool,
        write: impl Fn() -> io::Result<T>,
    ) -> io::Result<T> {
        match &self.ahead {
            Some(ahead) => ahead.write(&self.buffered, range, direct, write),
            None => write(),
        }
    }

    fn write_direct(&self, direct: &Direct, at: u64, bytes: &[u8]) -> io::Result<()> {
        let write = |bytes: &[u8], at| {
            self.with_space(at..at + bytes.len() as u64, true, || {
                count_system_call();
                direct.file.write_all_at(bytes, at)
            })
        };
        if direct.takes(bytes) {
            return write(bytes, at);
        }
        let mut bounce = self.bounce.take();
        let pieces = bytes.chunks(BOUNCE_LEN).zip((at..).step_by(BOUNCE_LEN));
        for (piece, at) in pieces {
            let aligned = &mut bounce[..piece.len()];
            copy_counted(aligned, piece);
            write(aligned, at)?;
        }
        Ok(())
    }

    fn write_buffered(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // In pieces, so that one huge write does not fill the page cache either.
        for (piece, at) in bytes.chunks(1 << 20).zip((at..).step_by(1 << 20)) {
            let range = at..at + piece.len() as u64;
            self.with_space(range.clone(), false, || {
                count_system_call();
                self.buffered.write_all_at(piece, at)
            })?;
            self.write_back.touched(&self.buffered, range)?;
        }
        Ok(())
    }

    /// Fills `buffer`, or fails where the file ends before.
    pub fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (head, middle) = self.cut(at, buffer.len());
        let direct = self
            .direct()
            .filter(|direct| middle.len() >= DIRECT_MIN && direct.takes(&buffer[middle.clone()]));
        let Some(direct) = direct else { return self.read_buffered(at, buffer) };
        self.read_buffered(at, &mut buffer[..head])?;
        let begin = at + head as u64;
        count_system_call();
        match direct.file.read_exact_at(&mut buffer[middle.clone()], begin) {
            Err(error) if direct.is_refusal(&error) => {
                self.read_buffered(begin, &mut buffer[middle.clone()])?;
            }
            result => result?,
        }
        self.read_buffered(at + middle.end as u64, &mut buffer[middle.end..])
    }

    fn read_buffered(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        count_system_call();
        self.buffered.read_exact_at(buffer, at)?;
        self.write_back.touched(&self.buffered, at..at + buffer.len() as u64)
    }

    /// Makes the data durable, and the length of the file with it.
    pub fn sync(&self) -> io::Result<()> {
        // One descriptor is enough: all pages belong to the file, and errors are counted there too.
        count_system_call();
        self.buffered.sync_data()
    }

    /// Makes everything durable. Returns errors of closing too.
    pub fn close(self) -> io::Result<()> {
        if let Some(ahead) = &self.ahead {
            ahead.release_all(&self.buffered)?;
        }
        count_system_call();
        self.buffered.sync_all()?;
        if let Some(direct) = self.direct {
            sys::close(direct.file)?;
        }
        sys::close(self.buffered)
    }

    fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref().filter(|direct| !direct.has_refused())
    }

    /// Bytes before the first whole grain of a request, and where in it the whole blocks are.
    fn cut(&self, at: u64, len: usize) -> (usize, Range<usize>) {
        let head = (at.wrapping_neg() % self.io_block).min(len as u64) as usize;
        let middle = len.saturating_sub(head) / self.io_block as usize * self.io_block as usize;
        (head, head..head + middle)
    }
}

/// The unit in which the page cache holds a file: pages, or larger blocks of the file system.
fn io_block(file: &File) -> u64 {
    let page = (ALIGNMENT as u64).max(sys::page_size());
    // Larger figures are the preferred transfer size of a network file system.
    let blocks = page..=BLOCK_MAX;
    let block = rustix::fs::fstatvfs(file).ok().map(|facts| facts.f_frsize);
    block.filter(|block| block.is_power_of_two() && blocks.contains(block)).unwrap_or(page)
}

#[cfg(test)]
mod tests {
    use super::direct::PIECES_MAX;
    use super::*;

    #[test]
    fn late_refusal_of_direct_io_falls_back_to_buffered_io() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut disk_file = DualPathFile::new(file.reopen().unwrap(), file.path(), true);
        if let Some(direct) = &mut disk_file.direct {
            // Pretend that any memory would do, and let the kernel find out.
            direct.memory = 1;
        }
        let expected: Vec<u8> = (0..300_001_u32).map(|at| (at % 251) as u8).collect();
        disk_file.write(0, &expected[1..]).unwrap();
        disk_file.write(0, &expected).unwrap();
        disk_file.write_pieces(0, &[&expected[..200_000], &expected[200_000..]]).unwrap();
        let mut read = vec![0; expected.len() + 1];
        disk_file.read(0, &mut read[1..]).unwrap();
        assert!(read[1..] == expected);
        disk_file.close().unwrap();
        assert!(std::fs::read(file.path()).unwrap() == expected);
    }

    #[test]
    fn writing_pieces_equals_writing_them_joined() {
        let pool = Pool::new(1 << 20, 1);
        let mut memory = pool.take();
        for (at, byte) in memory.iter_mut().enumerate() {
            *byte = (at % 251) as u8 + 1;
        }
        let (block, many) = (4096, PIECES_MAX + 1);
        for lens in [
            vec![],
            vec![0],
            vec![16 * block],
            vec![16 * block; 2],
            vec![block, 20 * block, 3 * block],
            vec![block; 15],
            vec![16 * block, 7, 20 * block],
            vec![16 * block, 100],
            vec![0, 64 * block, 0],
            vec![64 * block; 3],
        ] {
            for at in [0, 512, 4096, 1 << 20] {
                for direct in [true, false] {
                    let file = tempfile::NamedTempFile::new().unwrap();
                    let disk_file = DualPathFile::new(file.reopen().unwrap(), file.path(), direct);
                    let mut from = 0;
                    let pieces = lens.iter().map(|len| {
                        from += len;
                        &memory[from - len..from]
                    });
                    let pieces: Vec<_> = pieces.collect();
                    disk_file.write_pieces(at, &pieces).unwrap();
                    disk_file.close().unwrap();
                    let found = std::fs::read(file.path()).unwrap();
                    let start = if from == 0 { 0 } else { at as usize };
                    assert_eq!(found.len(), start + from, "{lens:?} at {at}");
                    assert!(found[start..] == memory[..from], "{lens:?} at {at}");
                }
            }
        }
        // More than one request takes.
        let file = tempfile::NamedTempFile::new().unwrap();
        let disk_file = DualPathFile::new(file.reopen().unwrap(), file.path(), true);
        disk_file.write_pieces(0, &vec![&memory[..block]; many]).unwrap();
        disk_file.close().unwrap();
        let found = std::fs::read(file.path()).unwrap();
        assert_eq!(found.len(), many * block);
        assert!(found.chunks(block).all(|piece| piece == &memory[..block]));
    }

    #[test]
    fn a_request_is_cut_into_its_own_blocks_and_shared_edges() {
        let file = tempfile::tempfile().unwrap();
        let disk_file = DualPathFile::new(file, Path::new("none"), false);
        let io_block = disk_file.io_block as usize;
        let check =
            |at: usize, len: usize, expected| assert_eq!(disk_file.cut(at as u64, len), expected);
        check(0, 0, (0, 0..0));
        check(0, 2 * io_block, (0, 0..2 * io_block));
        check(1, io_block - 1, (io_block - 1, io_block - 1..io_block - 1));
        check(1, 2, (2, 2..2));
        check(io_block - 1, io_block + 5, (1, 1..1 + io_block));
        check(5, io_block, (io_block - 5, io_block - 5..io_block - 5));
    }
}
