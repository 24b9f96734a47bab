//! Empty disks.

use std::sync::Arc;
use std::time::Instant;

use contract::ByteCount;

use crate::error::Error;
use crate::finish::{DiskSize, finish_disk, has_free_holes, largest_size, target_failed};
use crate::options::{FileSpace, Report, Target};
use crate::progress::{Progress, ProgressPhase};
use crate::sink::Sink;

/// Zeroes are written in chunks of this size, and each is counted as progress.
const BLANK_CHUNK: u64 = 64 << 20;

/// Creates an empty disk of `size` bytes, or of `target.grow_to` if that is more. A device then reads as zeroes
/// from its first to its last byte. A killed call leaves no disk, and the next call starts again from the first byte.
///
/// # Errors
/// As for [`import`](crate::import()).
pub fn blank(
    size: ByteCount,
    target: &Target,
    file_space: FileSpace,
    progress: &Arc<Progress>,
) -> Result<Report, Error> {
    let started = Instant::now();
    let offered = if has_free_holes(target, file_space) {
        target.available.unwrap_or(size)
    } else {
        largest_size(target)?
    };
    if size > offered {
        return Err(Error::TooLarge { needed: size, offered });
    }
    progress.set_guest_total(size.get());
    progress.enter(ProgressPhase::Transferring);
    let disk = DiskSize::KnownBytes(size.get()).open_new(target)?;
    if disk.starts_zeroed() {
        progress.add_zero(size.get());
    } else {
        for from in (0..size.get()).step_by(BLANK_CHUNK as usize) {
            let len = BLANK_CHUNK.min(size.get() - from);
            disk.zero_at(from, len)
                .map_err(|source| target_failed("write zeroes to", &target.path, source))?;
            progress.add_written(len);
        }
    }
    progress.enter(ProgressPhase::Finishing);
    finish_disk(disk, target, size.get())?;
    progress.enter(ProgressPhase::Done);
    Ok(Report {
        format: "raw".into(),
        route: "blank".into(),
        virtual_size: size.get(),
        zero_bytes: size.get(),
        seconds: started.elapsed().as_secs_f64(),
        ..Report::default()
    })
}
