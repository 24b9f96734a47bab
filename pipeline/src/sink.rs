//! Where guest data ends.

use std::io;
use std::ops::Range;

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

    /// Where bytes may be parked that are not the guest's, besides the disk itself. A file does not grow beyond
    /// `file_max` bytes for that. Only on a disk that is written from its start and cannot be resumed.
    fn parking_space(&self, file_max: u64) -> ParkingSpace;

    /// As [`write_at`](Self::write_at), for bytes that are parked: inside the disk, in the range of
    /// [`parking_space`](Self::parking_space), or across the end of the disk. What lies behind the disk is never part of a
    /// finished one.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at).
    fn park_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads back parked bytes.
    ///
    /// # Errors
    /// As for [`read_at`](Self::read_at).
    fn read_parked_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Zeroes a range in which bytes were parked.
    ///
    /// # Errors
    /// As for [`zero_at`](Self::zero_at).
    fn clear_parked_at(&self, at: u64, len: u64) -> io::Result<()>;

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

/// See [`Sink::parking_space`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkingSpace {
    /// Addresses, counted as those of the disk. What of them is behind the disk may be used, and may fail for lack of
    /// space all the same.
    pub range: Range<u64>,
    /// Why there is not more, as a clause for messages.
    pub limited_by: String,
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
