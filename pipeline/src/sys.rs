//! System calls that no safe crate offers: the only `unsafe` of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd};

/// `_IO(0x12, 94)` of linux/fs.h. libc has none of these.
const BLKROGET: libc::c_ulong = 0x125e;

/// `_IO(0x12, 119)` of linux/fs.h.
const BLKDISCARD: libc::c_ulong = 0x1277;

/// `_IO(0x12, 127)` of linux/fs.h.
const BLKZEROOUT: libc::c_ulong = 0x127f;

/// `cachestat` of Linux 6.5, the same number on every architecture. libc does not have it yet.
const SYS_CACHESTAT: libc::c_long = 451;

/// A block device takes no writes.
pub fn is_read_only(device: &File) -> io::Result<bool> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as `device` is borrowed, and the ioctl writes one int through the pointer,
    // which is there until it returns.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET as _, &raw mut answer) })?;
    Ok(answer != 0)
}

/// A block device accepts the command to discard blocks. Nothing is discarded.
pub fn can_discard(device: &File) -> bool {
    // Linux examines whether the device can discard before it examines the range, which begins inside a sector.
    let nowhere: [u64; 2] = [1, 512];
    // SAFETY: the descriptor is open as long as `device` is borrowed, and the ioctl reads two u64 through the pointer,
    // which are there until it returns. It writes no memory.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD as _, nowhere.as_ptr()) };
    match checked(result) {
        Ok(()) => true,
        Err(error) => error.raw_os_error() != Some(libc::EOPNOTSUPP),
    }
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

/// Whether all pages of a range are in the page cache. `false` where the kernel does not report it.
pub fn is_cached(file: &File, range: &Range<u64>) -> bool {
    let page = page_size().max(1);
    let pages = (range.start / page)..range.end.div_ceil(page);
    let argument: [u64; 2] = [range.start, range.end.saturating_sub(range.start)];
    // The first of them: pages in the cache. The others: dirty, in write-back, evicted, evicted a short time ago.
    let mut answer = [0_u64; 5];
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call reads two u64 through the first pointer and
    // writes five through the second, and both are there until it returns.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            argument.as_ptr(),
            answer.as_mut_ptr(),
            0_u32,
        )
    };
    result == 0 && answer[0] >= pages.end.saturating_sub(pages.start)
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{Advice, fadvise};

    use super::*;

    #[test]
    fn range_is_cached_until_its_pages_are_evicted() {
        // Not in tmpfs, which evicts nothing.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let range = 4096..20_000;
        assert!(!is_cached(&file, &range));
        file.write_all(&[1; 20_000]).unwrap();
        // Of no byte all are cached, unless the kernel does not have the call: then nothing counts as cached.
        let is_known = is_cached(&file, &(0..0));
        assert_eq!(is_cached(&file, &range), is_known);
        assert!(!is_cached(&file, &(4096..30_000)));
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        assert!(!is_cached(&file, &range));
    }
}
