//! Copies one disk to another.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pipeline::zeroes::{Run, runs};
use pipeline::{Buffer, Disk, DiskOptions, Pool, Sink};

use crate::error::Error;
use crate::in_order::{process_in_order, thread_count};
use crate::progress::Progress;
use crate::volume::{PART_LEN, Part, SourceFile};

/// Where a copy is written.
pub(super) struct CopyTarget<'a> {
    pub path: &'a Path,
    pub write: &'a (dyn Fn(u64, &[u8]) -> io::Result<()> + Sync),
    /// Makes `len` bytes at an offset read as zeroes. `None` if they do.
    pub zero: Option<&'a (dyn Fn(u64, u64) -> io::Result<()> + Sync)>,
}

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
    let write = |at, bytes: &[u8]| disk.write_at(at, bytes);
    let zero = |at, len| disk.zero_at(at, len);
    let zero: Option<&(dyn Fn(u64, u64) -> io::Result<()> + Sync)> =
        if disk.starts_zeroed() { None } else { Some(&zero) };
    match copy_parts(content, &CopyTarget { path: target, write: &write, zero }, progress) {
        Ok(()) => Ok(disk.finish()?),
        Err(error) => {
            if let Err(left) = disk.abandon() {
                tracing::warn!(error = %left, "cannot remove the partial copy {}", target.display());
            }
            Err(error)
        }
    }
}

/// Copies on as many threads as make the storage faster, and leaves out what reads as zeroes.
pub(super) fn copy_parts(
    content: &Arc<SourceFile>,
    target: &CopyTarget<'_>,
    progress: &Progress,
) -> Result<(), Error> {
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
    let work = |buffer: &mut Buffer, job: CopyJob| copy_part(target, buffer, job, progress);
    process_in_order(buffers, jobs, work, |done| done)
}

fn copy_part(
    target: &CopyTarget<'_>,
    buffer: &mut Buffer,
    job: CopyJob,
    progress: &Progress,
) -> Result<(), Error> {
    let failed = |source| Error::Target { what: "write to", path: target.path.to_owned(), source };
    let zero = |at, len| target.zero.map_or(Ok(()), |zero| zero(at, len).map_err(failed));
    let CopyJob { at, part } = job;
    match part {
        Part::Hole(len) => zero(at, len)?,
        Part::Data(content, range) => {
            let len = (range.end - range.start) as usize;
            content.read(range.start, len, buffer)?;
            for run in runs(&buffer[..len], at) {
                match run {
                    Run::Data(range) => {
                        let at = at + range.start as u64;
                        (target.write)(at, &buffer[range]).map_err(failed)?;
                    }
                    Run::Zero(range) => zero(at + range.start as u64, range.len() as u64)?,
                }
            }
            progress.add(len as u64);
        }
    }
    Ok(())
}
