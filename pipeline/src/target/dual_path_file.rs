//! One file or device with two I/O paths: direct for what is large and aligned, through the page cache for the rest.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use super::allocation::AllocationAhead;
use super::old_data::OldData;
use super::write_back::WriteBack;
use crate::buffer::Pool;
use crate::io_counters::{copy_counted, count_system_call};
use crate::sink::ALIGNMENT;
use crate::sys;
use crate::zeroes::is_zero;

/// Less than this goes through the page cache even where it is aligned: the kernel gathers small writes, while direct
/// I/O waits for each. Measured on ext4 over virtio with one writer: 4 KiB pieces 4 × faster, 16 KiB 3 ×, 64 KiB about
/// even in wall time, and direct I/O the cheaper from there on.
const DIRECT_MIN: usize = 64 << 10;

/// A slow device takes some milliseconds for a request to unmap: as long as writing so many bytes.
const LONG_HOLE: u64 = 1 << 20;

/// Alignment of memory for direct I/O where the kernel does not report it.
const MEMORY_ALIGNMENT: u32 = 512;

/// The largest plausible block of a file system.
const BLOCK_MAX: u64 = 64 << 10;

/// Buffers for memory that is not aligned, and for zeroes: large enough that a request each costs little.
const BOUNCE_LEN: usize = 1 << 20;
const BOUNCE_COUNT: usize = 2;

/// Pieces of one request: IOV_MAX of Linux.
const PIECES_MAX: usize = 1024;

/// How a range is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// Deallocate it.
    Hole,
    /// Deallocate it if it is long, on a device that takes its time for that; write it if it is short. What is zero
    /// already is left.
    LongHole,
    /// Keep it allocated and mark it as zero (files).
    Keep,
    /// Leave it to the kernel, which knows a command of the device or writes (devices).
    Command,
    /// As `Command`, but what is zero already is left. Not for devices whose discarded blocks may read as zeroes now and
    /// as something else later.
    CommandWhereNotZero,
    /// Write them.
    Write,
}

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

struct Direct {
    file: File,
    /// What the memory's address has to be a multiple of.
    memory: usize,
    /// The file system accepted the flag at opening and refused a request.
    refused: AtomicBool,
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

    /// Makes the range read as zeroes. Where the storage does not know the better way, they are written.
    pub fn zero(&self, how: Zeroing, at: u64, len: u64) -> io::Result<()> {
        let end = at + len;
        let (from, to) = (at.next_multiple_of(self.io_block), end / self.io_block * self.io_block);
        let worth_it = match how {
            Zeroing::Hole | Zeroing::Keep => from < to,
            Zeroing::LongHole => from + LONG_HOLE <= to,
            Zeroing::Command | Zeroing::CommandWhereNotZero => from + DIRECT_MIN as u64 <= to,
            Zeroing::Write => false,
        };
        if !worth_it {
            return self.write_zeroes(at..end);
        }
        self.write_zeroes(at..from)?;
        self.zero_blocks(how, from..to)?;
        self.write_zeroes(to..end)
    }

    /// As [`zero`](Self::zero), for whole blocks.
    fn zero_blocks(&self, how: Zeroing, range: Range<u64>) -> io::Result<()> {
        let leaves_zeroes = match how {
            Zeroing::LongHole | Zeroing::CommandWhereNotZero => true,
            Zeroing::Hole | Zeroing::Keep | Zeroing::Command | Zeroing::Write => false,
        };
        // Pieces that follow one another are zeroed by one request.
        let mut not_zero = range.start..range.start;
        if leaves_zeroes {
            for from in range.clone().step_by(BOUNCE_LEN) {
                let piece = from..range.end.min(from + BOUNCE_LEN as u64);
                if self.is_zero_already(&piece)? {
                    self.zero_blocks_by(how, not_zero)?;
                    not_zero = piece.end..piece.end;
                }
                not_zero.end = piece.end;
            }
        }
        self.zero_blocks_by(how, not_zero.start..range.end)
    }

    fn zero_blocks_by(&self, how: Zeroing, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.ask_for_zeroes(how, range.clone()).or_else(|_| self.write_zeroes(range))
    }

    /// `range`: at most a buffer. False too if that is not worth reading.
    fn is_zero_already(&self, range: &Range<u64>) -> io::Result<bool> {
        if !self.old_data.is_worth_reading() {
            return Ok(false);
        }
        let mut buffer = self.bounce.take();
        let piece = &mut buffer[..(range.end - range.start) as usize];
        // An error here may be that of an earlier write.
        self.read(range.start, piece)?;
        let was_zero = is_zero(piece);
        self.old_data.count(was_zero);
        Ok(was_zero)
    }

    /// Makes zeroes without writing any from here. The range consists of whole blocks, or ends with the device. An error
    /// leaves the content of the range undefined.
    pub fn ask_for_zeroes(&self, how: Zeroing, range: Range<u64>) -> io::Result<()> {
        count_system_call();
        let flags = match how {
            Zeroing::Hole | Zeroing::LongHole => {
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
            }
            Zeroing::Keep => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            Zeroing::Command | Zeroing::CommandWhereNotZero => {
                return sys::zero_out(&self.buffered, range);
            }
            Zeroing::Write => return Err(io::ErrorKind::Unsupported.into()),
        };
        let len = range.end - range.start;
        Ok(retry_on_intr(|| rustix::fs::fallocate(&self.buffered, flags, range.start, len))?)
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        let most = (BOUNCE_LEN as u64).min(range.end - range.start) as usize;
        if most == 0 {
            return Ok(());
        }
        let mut bounce = self.bounce.take();
        bounce[..most].fill(0);
        let mut at = range.start;
        while at < range.end {
            // Whole blocks begin where the buffer begins: they need no second one, which would be a deadlock.
            let aligned = at.is_multiple_of(self.io_block);
            let border =
                if aligned { at + BOUNCE_LEN as u64 } else { at.next_multiple_of(self.io_block) };
            let to = border.min(range.end);
            self.write(at, &bounce[..(to - at) as usize])?;
            at = to;
        }
        Ok(())
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
        self.direct.as_ref().filter(|direct| !direct.refused.load(Ordering::Relaxed))
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

impl Direct {
    /// A second descriptor for the file behind `buffered`. `None` where direct I/O is unknown, or requires more than
    /// pages and `grain` give.
    fn open(buffered: &File, path: &Path, io_block: u64) -> Option<Self> {
        let facts =
            rustix::fs::statx(buffered, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
        let reported = facts.filter(|facts| facts.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
        let (memory, block) = match reported {
            Some(facts) => (facts.stx_dio_mem_align, facts.stx_dio_offset_align),
            None => (MEMORY_ALIGNMENT, ALIGNMENT as u32),
        };
        let enough =
            |wanted: u32, given: u64| wanted.is_power_of_two() && u64::from(wanted) <= given;
        if !enough(memory, ALIGNMENT as u64) || !enough(block, io_block) {
            return None;
        }
        let mut options = OpenOptions::new();
        let direct = options.read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let file = direct.open(path).ok()?;
        // The name may mean another file by now.
        let (one, two) = (buffered.metadata().ok()?, file.metadata().ok()?);
        let same = (one.dev(), one.ino(), one.rdev()) == (two.dev(), two.ino(), two.rdev());
        same.then(|| Self { file, memory: memory as usize, refused: AtomicBool::new(false) })
    }

    /// Writes as much of `pieces` as one request takes, and returns how much that was: nothing where it is refused.
    fn gather(&self, at: u64, pieces: &[&[u8]]) -> io::Result<usize> {
        let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let slices = &slices[..slices.len().min(PIECES_MAX)];
        count_system_call();
        let written = retry_on_intr(|| rustix::io::pwritev(&self.file, slices, at));
        written
            .map_err(io::Error::from)
            .or_else(|error| if self.is_refusal(&error) { Ok(0) } else { Err(error) })
    }

    fn takes(&self, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(self.memory)
    }

    /// Some file systems take the flag and then refuse each request. From then on all goes through the page cache.
    fn is_refusal(&self, error: &io::Error) -> bool {
        let refused = [Errno::INVAL, Errno::OPNOTSUPP]
            .iter()
            .any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()));
        if refused {
            tracing::debug!("direct I/O is refused, going through the page cache");
            self.refused.store(true, Ordering::Relaxed);
        }
        refused
    }
}

#[cfg(test)]
mod tests {
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
