//! The descriptor for I/O past the page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::io_counters::count_system_call;
use crate::sink::ALIGNMENT;

/// Alignment of memory for direct I/O where the kernel does not report it.
const MEMORY_ALIGNMENT: u32 = 512;

/// Pieces of one request: IOV_MAX of Linux.
pub(super) const PIECES_MAX: usize = 1024;

pub(super) struct Direct {
    pub(super) file: File,
    /// What the memory's address has to be a multiple of.
    pub(super) memory: usize,
    /// The file system accepted the flag at opening and refused a request.
    refused: AtomicBool,
}

impl Direct {
    /// A second descriptor for the file behind `buffered`. `None` where direct I/O is unknown, or requires more than
    /// pages and `io_block` give.
    pub(super) fn open(buffered: &File, path: &Path, io_block: u64) -> Option<Self> {
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
    pub(super) fn gather(&self, at: u64, pieces: &[&[u8]]) -> io::Result<usize> {
        let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let slices = &slices[..slices.len().min(PIECES_MAX)];
        count_system_call();
        let written = retry_on_intr(|| rustix::io::pwritev(&self.file, slices, at));
        written
            .map_err(io::Error::from)
            .or_else(|error| if self.is_refusal(&error) { Ok(0) } else { Err(error) })
    }

    pub(super) fn takes(&self, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(self.memory)
    }

    /// A request was refused.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Some file systems take the flag and then refuse each request. From then on all goes through the page cache.
    pub(super) fn is_refusal(&self, error: &io::Error) -> bool {
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
