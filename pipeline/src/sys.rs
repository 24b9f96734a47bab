//! System calls that no safe crate offers: the only `unsafe` of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd};

/// `_IO(0x12, 94)` of linux/fs.h. libc has neither this nor the next.
const BLKROGET: libc::c_ulong = 0x125e;

/// `_IO(0x12, 127)` of linux/fs.h.
const BLKZEROOUT: libc::c_ulong = 0x127f;

/// A block device takes no writes.
pub fn is_read_only(device: &File) -> io::Result<bool> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as `device` is borrowed, and the ioctl writes one int through the pointer,
    // which is there until it returns.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET as _, &raw mut answer) })?;
    Ok(answer != 0)
}

/// Makes a range of a block device read as zeroes and keeps it allocated: by the device's own command where there is one,
/// else the kernel writes them. Both ends are multiples of the logical block size.
pub fn zero_out(device: &File, range: Range<u64>) -> io::Result<()> {
    let argument: [u64; 2] = [range.start, range.end.saturating_sub(range.start)];
    // SAFETY: the descriptor is open as long as `device` is borrowed, and the ioctl reads two u64 through the pointer,
    // which are there until it returns. It writes no memory.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKZEROOUT as _, argument.as_ptr()) };
    checked(result)
}

/// Starts writing the dirty pages of a range to storage, and does not wait.
pub fn start_write_back(file: &File, range: &Range<u64>) -> io::Result<()> {
    sync_file_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Returns once the pages of a range that were dirty have left memory. Nothing is durable by that. An error of the
/// storage is reported here, and will then not be reported by a later fsync.
pub fn finish_write_back(file: &File, range: &Range<u64>) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(file, range, flags)
}

fn sync_file_range(file: &File, range: &Range<u64>, flags: libc::c_uint) -> io::Result<()> {
    let signed = |value: u64| libc::off64_t::try_from(value).map_err(io::Error::other);
    let (start, len) = (signed(range.start)?, signed(range.end.saturating_sub(range.start))?);
    // SAFETY: the descriptor is open as long as `file` is borrowed; no memory is passed.
    checked(unsafe { libc::sync_file_range(file.as_raw_fd(), start, len, flags) })
}

/// Closes a file and returns the error that dropping it would hide: a network file system may report a lost write only now.
pub fn close(file: File) -> io::Result<()> {
    // SAFETY: `into_raw_fd` gave up ownership, so nothing else closes or uses the descriptor.
    checked(unsafe { libc::close(file.into_raw_fd()) })
}

/// Bytes of a page of memory.
pub fn page_size() -> u64 {
    // SAFETY: no memory is passed. It cannot fail for this name, and -1 would become 0.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(0)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
