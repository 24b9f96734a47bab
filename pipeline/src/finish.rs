//! The ends of an import: which size a disk gets, what is checked and cut after the transfer, and how it becomes durable
//! and visible.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use contract::{ByteCount, Checksum};
use formats::sniff::{TAIL_BYTES, foreign_by_tail};
use formats::vhd;

use crate::activity_times::Activity;
use crate::error::Error;
use crate::import::{Import, PlannedImport};
use crate::options::{FileSpace, Options, Target};
use crate::progress::ProgressPhase;
use crate::resume::{journal_path, remove_journal};
use crate::routes::Outcome;
use crate::sink::Sink;
use crate::target::{Disk, DiskOptions};

/// A file length (1 GiB) that every file system supports.
const FILE_LENGTH_MIN: u64 = 1 << 30;

const _: () = assert!(TAIL_BYTES == vhd::FOOTER_LEN, "one read of the end serves both checks");

/// Whether the disk will be a sparse file of which only the data has to fit.
pub fn has_free_holes(target: &Target, file_space: FileSpace) -> bool {
    let is_device = std::fs::metadata(&target.path).is_ok_and(|f| f.file_type().is_block_device());
    file_space == FileSpace::Data && !target.preallocate && !is_device
}

/// The largest disk that fits with all its bytes.
pub fn largest_size(target: &Target) -> Result<ByteCount, Error> {
    let free = crate::target::available(&target.path)
        .map_err(|source| target_failed("examine the free space of", &target.path, source))?;
    let free = ByteCount::new(free);
    Ok(target.available.map_or(free, |limit| limit.min(free)))
}

/// A disk is never shrunk, and a file is as long as its volume requires.
pub fn final_size(target: &Target, virtual_size: u64) -> u64 {
    virtual_size.max(target.grow_to.map_or(0, ByteCount::get))
}

/// The size that a disk is opened with.
#[derive(Clone, Copy, Debug)]
pub enum DiskSize {
    /// Virtual size.
    KnownBytes(u64),
    /// Known only at the end of the stream: at most this.
    UpTo(ByteCount),
}

impl DiskSize {
    pub fn new(virtual_size: Option<u64>, available: ByteCount) -> Self {
        virtual_size.map_or(Self::UpTo(available), Self::KnownBytes)
    }

    /// Opens the target without what an earlier process left.
    pub fn open_new(self, target: &Target) -> Result<Arc<Disk>, Error> {
        self.open(target, false)
    }

    /// Opens what an earlier process left, if it did.
    pub fn open_resumed(self, target: &Target) -> Result<Arc<Disk>, Error> {
        self.open(target, true)
    }

    fn open(self, target: &Target, resume: bool) -> Result<Arc<Disk>, Error> {
        let open = |size, preallocate| {
            Disk::open(&target.path, &DiskOptions { size, preallocate, resume }).map(Arc::new)
        };
        let mut size = match self {
            Self::KnownBytes(size) => return open(final_size(target, size), target.preallocate),
            Self::UpTo(available) => available.get(),
        };
        loop {
            match open(size, false) {
                Err(error) if is_too_long(&error) && size > FILE_LENGTH_MIN => size /= 2,
                result => return result,
            }
        }
    }
}

/// Whether the file system does not support files of that length.
fn is_too_long(error: &Error) -> bool {
    matches!(error, Error::Target { source, .. } if source.kind() == io::ErrorKind::FileTooLarge)
}

/// Checks the end of an apparently raw disk after the transfer: removes the footer of a fixed VHD, and refuses a dmg
/// image, whose only signature is there.
pub fn strip_footer(import: &Import<'_>, disk: &Disk, outcome: Outcome) -> Result<Outcome, Error> {
    let footer_at = outcome.virtual_size.saturating_sub(vhd::FOOTER_LEN as u64);
    if footer_at == 0 {
        return Ok(outcome);
    }
    let mut last = [0; vhd::FOOTER_LEN];
    let path = &import.target.path;
    disk.read_at(footer_at, &mut last).map_err(|e| target_failed("read back from", path, e))?;
    if let Some(foreign) = foreign_by_tail(&last) {
        let name = import.source.facts().name.clone();
        return Err(Error::Decode { name, source: formats::Error::Foreign(foreign) });
    }
    let Some(virtual_size) = vhd::fixed_size(&last, outcome.virtual_size) else {
        return Ok(outcome);
    };
    disk.zero_at(footer_at, last.len() as u64)
        .map_err(|e| target_failed("write zeroes to", path, e))?;
    Ok(Outcome { virtual_size, ..outcome })
}

/// Makes the disk of a successful transfer durable and visible. After a failure, removes what cannot be continued.
pub fn conclude(
    planned: &PlannedImport<'_>,
    disk: Arc<Disk>,
    result: Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    let Import { target, options, progress, .. } = planned.import;
    let journal = journal_path(&planned.import);
    let checked = result.and_then(|outcome| {
        check_digest(options, outcome.digest.as_ref())?;
        Ok(outcome)
    });
    match checked {
        Ok(outcome) => {
            progress.enter(ProgressPhase::Finishing);
            let times = progress.times();
            let size = outcome.virtual_size;
            let finished = times.measure(Activity::Sync, || finish_disk(disk, target, size));
            let removed = remove_journal(journal.as_deref());
            finished.and(removed).map(|()| outcome)
        }
        Err(error) => {
            if !(planned.plan.resumable && error.is_worth_another_try()) {
                let _ = remove_journal(journal.as_deref()); // the first error is the cause
                if let Some(disk) = Arc::into_inner(disk) {
                    let _ = disk.abandon();
                }
            }
            Err(error)
        }
    }
}

/// # Errors
/// [`Error::Checksum`].
pub fn check_digest(options: &Options, digest: Option<&Checksum>) -> Result<(), Error> {
    let Some(calculated) = digest else { return Ok(()) };
    match options.expected(*calculated) {
        Some(expected) if expected != *calculated => Err(Error::Checksum {
            expected: expected.to_string(),
            calculated: calculated.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Gives the disk its final size, makes it durable, and lets it be seen.
pub fn finish_disk(disk: Arc<Disk>, target: &Target, virtual_size: u64) -> Result<(), Error> {
    let mut disk = Arc::into_inner(disk).ok_or(Error::Panicked)?;
    if disk.was_there() {
        return disk.finish();
    }
    disk.end_at(final_size(target, virtual_size), target.preallocate)?;
    if !disk.starts_zeroed() && virtual_size < disk.size() {
        disk.zero_at(virtual_size, disk.size() - virtual_size)
            .map_err(|source| target_failed("write zeroes to", &target.path, source))?;
    }
    disk.finish()
}

pub fn target_failed(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Target { what, path: path.to_owned(), source }
}
