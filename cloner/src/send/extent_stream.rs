//! Sends a volume as an extent stream: only the ranges with data.

use std::io::{self, Write};
use std::iter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clonestream::extents::{Entry, EntryKind, ExtentWriter, PackedData, Packer, Preamble};
use pipeline::zeroes::{Run, runs};
use pipeline::{Buffer, Pool};

use crate::error::Error;
use crate::in_order::{process_in_order, thread_count};
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
    Runs(Vec<EncodedRun>),
}

enum EncodedRun {
    Zeroes(u64),
    Data(PackedData),
}

struct EncoderThread {
    buffer: Buffer,
    packer: Packer,
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
    let pool = Pool::new(PART_LEN, count);
    let encoder_thread = |_| EncoderThread { buffer: pool.take(), packer: Packer::new() };
    let encoders: Vec<_> = (0..count).map(encoder_thread).collect();
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
    let work =
        |encoder_thread: &mut EncoderThread, job: Job| encode_job(encoder_thread, job, progress);
    process_in_order(encoders, jobs, work, |encoded: Result<EncodedJob, Error>| {
        match encoded? {
            EncodedJob::Entry(entry, path) => {
                // An error about missing content belongs to the previous entry, but names this one's path.
                writer.write_entry(&entry).map_err(Error::from_write(&path))?;
                at = path;
            }
            EncodedJob::Zeroes(len) => writer.write_zeroes(len).map_err(Error::from_write(&at))?,
            EncodedJob::Runs(all) => {
                for run in all {
                    let written = match run {
                        EncodedRun::Zeroes(len) => writer.write_zeroes(len),
                        EncodedRun::Data(piece) => writer.write_data(&piece),
                    };
                    written.map_err(Error::from_write(&at))?;
                }
            }
        }
        Ok(())
    })?;
    writer.finish().map(drop).map_err(Error::from_write(volume.path()))
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
    encoder_thread: &mut EncoderThread,
    job: Job,
    progress: &Progress,
) -> Result<EncodedJob, Error> {
    match job {
        Job::Entry(entry, path) => Ok(EncodedJob::Entry(entry, path)),
        Job::Part(Part::Hole(len)) => Ok(EncodedJob::Zeroes(len)),
        Job::Part(Part::Data(content, range)) => {
            let len = (range.end - range.start) as usize;
            content.read(range.start, len, &mut encoder_thread.buffer)?;
            let bytes = &encoder_thread.buffer[..len];
            let mut all = Vec::new();
            let mut data = 0..0;
            for run in long_runs(bytes, range.start) {
                match run {
                    Run::Data(range) => data = range,
                    Run::Zero(range) => {
                        if !data.is_empty() {
                            all.push(EncodedRun::Data(encoder_thread.packer.pack(&bytes[data])));
                            data = 0..0;
                        }
                        all.push(EncodedRun::Zeroes(range.len() as u64));
                    }
                }
            }
            if !data.is_empty() {
                all.push(EncodedRun::Data(encoder_thread.packer.pack(&bytes[data])));
            }
            progress.add(len as u64);
            Ok(EncodedJob::Runs(all))
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
