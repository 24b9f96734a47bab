//! Where guest data ends.

use std::io;

/// The target as the pipeline sees it: a run of bytes, written in any order from several threads.
///
/// Every method may be called concurrently for ranges that do not overlap.
pub trait Sink: Send + Sync {
    /// Writes all of `bytes`. Anything is allowed. Fastest are pieces of 1 MiB and more of which address, length and
    /// memory are multiples of [`ALIGNMENT`]: they go past the page cache where the target can do that. Unaligned memory
    /// costs a copy, and pieces below 64 KiB and unaligned edges go through the page cache. Neighbours may meet within
    /// one block.
    ///
    /// # Errors
    /// Of the operating system; the range is then undefined.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes `pieces`, of which each begins where the one before it ends: what [`write_at`](Self::write_at) would do with
    /// all of them in one, and as fast where address, length and memory of each are such multiples.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at).
    fn write_pieces_at(&self, at: u64, pieces: &[&[u8]]) -> io::Result<()> {
        write_each_at(self, at, pieces)
    }

    /// Makes the range read as zeroes: a hole in a file, and on a block device whatever is certain to hide old data.
    ///
    /// # Errors
    /// Of the operating system; the range is then undefined.
    fn zero_at(&self, at: u64, len: u64) -> io::Result<()>;

    /// Reads back what was written (parked clusters, read-back checks).
    ///
    /// # Errors
    /// Of the operating system, or when the range ends behind the target.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Ranges that were not written read as zeroes: a new sparse file, a device that was discarded and checked. Then
    /// [`zero_at`](Self::zero_at) need not be called for a range that was never written. Otherwise every byte of the disk
    /// has to be either written or zeroed, up to the end of a file that is longer than its image too.
    fn starts_zeroed(&self) -> bool;

    /// Returns once all before it would survive a power cut.
    ///
    /// # Errors
    /// On I/O errors. Data written before is then lost: never report success afterwards.
    fn sync(&self) -> io::Result<()>;
}

/// [`Sink::write_pieces_at`], a piece at a time.
///
/// # Errors
/// As for [`Sink::write_at`].
pub fn write_each_at(sink: &(impl Sink + ?Sized), mut at: u64, pieces: &[&[u8]]) -> io::Result<()> {
    for piece in pieces {
        sink.write_at(at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// What direct I/O requires of addresses, lengths and memory: the largest logical block size in use, and the page size.
pub const ALIGNMENT: usize = 4096;
