//! One disk to another.

use std::path::Path;
use std::sync::Arc;

use pipeline::zeroes::{Run, runs};
use pipeline::{Buffer, Disk, DiskOptions, Pool, Sink};

use crate::error::Error;
use crate::in_order::{in_order, threads};
use crate::progress::Progress;
use crate::volume::{Content, PIECE_LEN, Part};

/// Where a piece of work belongs.
struct Job {
    at: u64,
    part: Part,
}

/// Copies all of a content to a file or device, where nothing is to be found before all of it is there.
pub(super) fn copy(
    content: &Arc<Content>,
    target: &Path,
    preallocate: bool,
    progress: &Progress,
) -> Result<(), Error> {
    let options = DiskOptions { size: content.size(), preallocate, resume: false };
    let disk = Disk::open(target, &options)?;
    let count = threads();
    let pool = Pool::new(PIECE_LEN, count);
    let buffers: Vec<Buffer> = (0..count).map(|_| pool.take()).collect();
    let mut next = 0;
    let jobs = content.parts(0, true).map(|part| {
        let at = next;
        next += match &part {
            Part::Hole(len) => *len,
            Part::Data(_, range) => range.end - range.start,
        };
        Ok(Job { at, part })
    });
    let work = |buffer: &mut Buffer, job: Job| put(&disk, buffer, job, progress);
    match in_order(buffers, jobs, work, |done| done) {
        Ok(()) => Ok(disk.finish()?),
        Err(error) => {
            if let Err(left) = disk.abandon() {
                tracing::warn!("what was written to {} stays: {left}", target.display());
            }
            Err(error)
        }
    }
}

fn put(disk: &Disk, buffer: &mut Buffer, job: Job, progress: &Progress) -> Result<(), Error> {
    let failed = |source| Error::Target { what: "write to", path: disk.path().to_owned(), source };
    let zero = |at, len| {
        if disk.starts_zeroed() { Ok(()) } else { disk.zero_at(at, len).map_err(failed) }
    };
    let Job { at, part } = job;
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
