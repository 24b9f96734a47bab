//! Sends a volume as an extent stream: only the ranges with data.

use std::cell::Cell;
use std::io::{self, Write};
use std::iter;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clonestream::extents::{
    Coding, Entry, EntryKind, ExtentWriter, PackedData, Packer, Preamble, WriteError,
};
use pipeline::zeroes::{Run, runs};
use pipeline::{Buffer, Pool};

use super::coding_choice::{CodingChoice, Window};
use crate::error::Error;
use crate::in_order::{STARTED_EACH, process_in_order, thread_count};
use crate::progress::Progress;
use crate::volume::{PART_LEN, Part, SourceVolume, TreeMember, TreeMemberKind, VolumeContent};

/// Shorter runs of zeroes are sent as data: compressed, they cost less than a frame.
const ZEROES_MIN: usize = 16 << 10;

enum Job {
    Entry(Entry, PathBuf),
    Part(Part),
}

enum EncodedJob {
    Entry(Entry, PathBuf),
    Zeroes(u64),
    Part(EncodedPart),
}

struct EncodedPart {
    /// What was wanted: data that it does not make smaller is sent as it is.
    coding: Coding,
    buffer: Buffer,
    runs: Vec<EncodedRun>,
}

enum EncodedRun {
    Zeroes(u64),
    /// Where it is in the buffer, and what is sent of it.
    Data(Range<usize>, PackedData),
}

impl EncodedPart {
    /// Bytes before compression.
    fn data_len(&self) -> u64 {
        let lens = self.runs.iter().map(|run| match run {
            EncodedRun::Zeroes(_) => 0,
            EncodedRun::Data(range, _) => range.len() as u64,
        });
        lens.sum()
    }
}

/// Writes the part of the stream that the receiver does not have.
pub(super) fn write(
    volume: &SourceVolume,
    preamble: &Preamble,
    progress: &Progress,
    out: &mut impl Write,
) -> Result<(), Error> {
    let sent = |source: io::Error| Error::Transport { what: "send to", source };
    let mut writer = ExtentWriter::create(out, preamble).map_err(sent)?;
    let mut at = volume.path().to_owned();
    let count = thread_count();
    // One for each part that is started and not yet written: no thread waits for one.
    let pool = Pool::new(PART_LEN, STARTED_EACH * count);
    let packers: Vec<_> = iter::repeat_with(Packer::new).take(count).collect();
    let mut choice = CodingChoice::default();
    let coding = Cell::new(choice.current());
    let begin = preamble.begin;
    let jobs: Box<dyn Iterator<Item = Result<Job, Error>> + '_> = match &volume.content {
        // The only entry is complete.
        VolumeContent::Disk(_) if begin.entry > 0 => Box::new(iter::empty()),
        VolumeContent::Disk(disk) => {
            let entry = Job::Entry(Entry::disk(disk.size()), volume.path().to_owned());
            progress.add(begin.at.min(disk.size()));
            let parts = disk.parts(begin.at, true).map(Job::Part);
            Box::new(iter::once(entry).chain(parts).map(Ok))
        }
        VolumeContent::Tree(root) => {
            let members = volume.walk(root).enumerate().flat_map(move |(index, member)| {
                let from = match (index as u64).cmp(&begin.entry) {
                    std::cmp::Ordering::Less => None,
                    std::cmp::Ordering::Equal => Some(begin.at),
                    std::cmp::Ordering::Greater => Some(0),
                };
                member_jobs(volume, root, member, from, progress)
            });
            Box::new(members)
        }
    };
    let jobs = jobs.map(|job| job.map(|job| (job, coding.get())));
    let work =
        |packer: &mut Packer, (job, coding)| encode_job(packer, &pool, job, coding, progress);
    let mut last_written = Instant::now();
    process_in_order(packers, jobs, work, |encoded: Result<EncodedJob, Error>| {
        let begin = Instant::now();
        match encoded? {
            EncodedJob::Entry(entry, path) => {
                // An error about missing content belongs to the previous entry, but names this one's path.
                writer.write_entry(&entry).map_err(Error::from_write(&path))?;
                at = path;
            }
            EncodedJob::Zeroes(len) => writer.write_zeroes(len).map_err(Error::from_write(&at))?,
            EncodedJob::Part(part) => {
                write_part(&mut writer, &part).map_err(Error::from_write(&at))?;
                let content = part.data_len();
                // Time for zeroes is not time for data.
                if content > 0 {
                    let (elapsed, sending) = (last_written.elapsed(), begin.elapsed());
                    choice.record(part.coding, Window { content, elapsed, sending });
                    coding.set(choice.current());
                }
            }
        }
        last_written = Instant::now();
        Ok(())
    })?;
    writer.finish().map(drop).map_err(Error::from_write(volume.path()))
}

fn write_part<W: Write>(
    writer: &mut ExtentWriter<W>,
    part: &EncodedPart,
) -> Result<(), WriteError> {
    for run in &part.runs {
        match run {
            EncodedRun::Zeroes(len) => writer.write_zeroes(*len)?,
            EncodedRun::Data(range, packed) => {
                writer.write_data(packed, &part.buffer[range.clone()])?;
            }
        }
    }
    Ok(())
}

/// The entry, and its content from `from` on. `None`: the receiver has all of it.
fn member_jobs<'a>(
    volume: &'a SourceVolume,
    root: &'a OwnedFd,
    member: Result<TreeMember, Error>,
    from: Option<u64>,
    progress: &Progress,
) -> Box<dyn Iterator<Item = Result<Job, Error>> + 'a> {
    let begun = member.and_then(|member| {
        let Some(from) = from else {
            progress.add(member.allocated);
            return Ok(None);
        };
        let content = match member.kind {
            TreeMemberKind::Regular => Some(Arc::new(volume.file(root, &member.path)?)),
            _ => None,
        };
        let size = content.as_ref().map_or(0, |content| content.size());
        let entry = entry_of(member, size);
        let named = volume.path().join(as_path(&entry.path));
        let parts = content.map(|content| content.parts(from, true).map(Job::Part));
        Ok(Some(iter::once(Job::Entry(entry, named)).chain(parts.into_iter().flatten())))
    });
    match begun {
        Ok(None) => Box::new(iter::empty()),
        Ok(Some(jobs)) => Box::new(jobs.map(Ok)),
        Err(error) => Box::new(iter::once(Err(error))),
    }
}

fn as_path(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

fn entry_of(member: TreeMember, size: u64) -> Entry {
    let kind = match member.kind {
        TreeMemberKind::Regular => EntryKind::Regular,
        TreeMemberKind::Directory => EntryKind::Directory,
        TreeMemberKind::Symlink(target) => EntryKind::Symlink(target),
        TreeMemberKind::HardLink(target) => EntryKind::HardLink(target),
    };
    Entry { path: member.path, kind, size, mode: member.mode, modified: member.modified }
}

fn encode_job(
    packer: &mut Packer,
    pool: &Arc<Pool>,
    job: Job,
    coding: Coding,
    progress: &Progress,
) -> Result<EncodedJob, Error> {
    match job {
        Job::Entry(entry, path) => Ok(EncodedJob::Entry(entry, path)),
        Job::Part(Part::Hole(len)) => Ok(EncodedJob::Zeroes(len)),
        Job::Part(Part::Data(content, range)) => {
            let len = (range.end - range.start) as usize;
            let mut buffer = pool.take();
            content.read(range.start, len, &mut buffer)?;
            let encode = |run| match run {
                Run::Data(range) => {
                    let packed = packer.pack(&buffer[range.clone()], coding);
                    EncodedRun::Data(range, packed)
                }
                Run::Zero(range) => EncodedRun::Zeroes(range.len() as u64),
            };
            let runs = long_runs(&buffer[..len], range.start).into_iter().map(encode).collect();
            progress.add(len as u64);
            Ok(EncodedJob::Part(EncodedPart { coding, buffer, runs }))
        }
    }
}

/// Like [`runs`], with short runs of zeroes between data merged into the data.
fn long_runs(bytes: &[u8], at: u64) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for run in runs(bytes, at) {
        match (all.last_mut(), run) {
            (Some(Run::Data(data)), Run::Zero(zero))
                if zero.len() < ZEROES_MIN && zero.end < bytes.len() =>
            {
                data.end = zero.end;
            }
            (Some(Run::Data(data)), Run::Data(more)) => data.end = more.end,
            (_, run) => all.push(run),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use testkit::{Fill, SparseDisk};

    use super::*;

    #[test]
    fn short_runs_of_zeroes_are_merged_into_data() {
        const BLOCK: usize = 4096;
        let with = |data: &[(usize, usize)]| {
            let disk = SparseDisk::new(64 * BLOCK as u64);
            let disk = data.iter().fold(disk, |disk, (at, blocks)| {
                disk.with((at * BLOCK) as u64, (blocks * BLOCK) as u64, Fill::Byte(1))
            });
            long_runs(&disk.bytes(), 0)
        };
        let data = |range: Range<usize>| Run::Data(range.start * BLOCK..range.end * BLOCK);
        let zero = |range: Range<usize>| Run::Zero(range.start * BLOCK..range.end * BLOCK);
        assert_eq!(with(&[]), [zero(0..64)]);
        assert_eq!(with(&[(0, 64)]), [data(0..64)]);
        assert_eq!(with(&[(0, 2), (5, 2)]), [data(0..7), zero(7..64)]);
        assert_eq!(with(&[(0, 2), (6, 2)]), [data(0..2), zero(2..6), data(6..8), zero(8..64)]);
        assert_eq!(with(&[(2, 61)]), [zero(0..2), data(2..63), zero(63..64)]);
    }
}
