//! How ranges are made to read as zeroes.

use std::io;
use std::ops::Range;

use rustix::fs::FallocateFlags;
use rustix::io::retry_on_intr;

use super::{BOUNCE_LEN, DIRECT_MIN, DualPathFile};
use crate::io_counters::count_system_call;
use crate::sys;
use crate::zeroes::is_zero;

/// A slow device takes some milliseconds for a request to unmap: as long as writing so many bytes.
const LONG_HOLE: u64 = 1 << 20;

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

impl DualPathFile {
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
}
