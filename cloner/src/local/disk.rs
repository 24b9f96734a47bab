//! Copies one disk to another.

use std::path::Path;
use std::sync::Arc;

use pipeline::zeroes::{Run, runs};
use pipeline::{Buffer, Disk, DiskOptions, Pool, Sink};

use crate::error::Error;
use crate::in_order::{process_in_order, thread_count};
use crate::progress::Progress;
use crate::volume::{PART_LEN, Part, SourceFile};

struct CopyJob {
    at: u64,
    part: Part,
}

/// Copies a disk to a file or device that looks empty until the copy is complete.
pub(super) fn copy(
    content: &Arc<SourceFile>,
    target: &Path,
    preallocate: bool,
    progress: &Progress,
) -> Result<(), Error> {
    let options = DiskOptions { size: content.size(), preallocate, resume: false };
    let disk = Disk::open(target, &options)?;
    let count = thread_count();
    let pool = Pool::new(PART_LEN, count);
    let buffers: Vec<Buffer> = (0..count).map(|_| pool.take()).collect();
    let mut next = 0;
    let jobs = content.parts(0, true).map(|part| {
        let at = next;
        next += match &part {
            Part::Hole(len) => *len,
            Part::Data(_, range) => range.end - range.start,
        };
        Ok(CopyJob { at, part })
    });
    let work = |buffer: &mut Buffer, job: CopyJob| copy_part(&disk, buffer, job, progress);
    match process_in_order(buffers, jobs, work, |done| done) {
        Ok(()) => Ok(disk.finish()?),
        Err(error) => {
            if let Err(left) = disk.abandon() {
                tracing::warn!(error = %left, "cannot remove the partial copy {}", target.display());
            }
            Err(error)
        }
    }
}

fn copy_part(
    disk: &Disk,
    buffer: &mut Buffer,
    job: CopyJob,
    progress: &Progress,
) -> Result<(), Error> {
    let failed = |source| Error::Target { what: "write to", path: disk.path().to_owned(), source };
    let zero = |at, len| {
        if disk.starts_zeroed() { Ok(()) } else { disk.zero_at(at, len).map_err(failed) }
    };
    let CopyJob { at, part } = job;
    match part {
        Part::Hole(len) => {
            zero(at, len)?;
            progress.add(len);
        }
        Part::Data(content, range) => {
            let len = (range.end - range.start) as usize;
            content.read(range.start, len, buffer)?;
            for run in runs(&buffer[..len], at) {
                match run {
                    Run::Data(range) => {
                        let at = at + range.start as u64;
                        disk.write_at(at, &buffer[range]).map_err(failed)?;
                    }
                    Run::Zero(range) => zero(at + range.start as u64, range.len() as u64)?,
                }
            }
            progress.add(len as u64);
        }
    }
    Ok(())
}
