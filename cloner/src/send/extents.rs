//! The new stream: what is data, and nothing else.

use std::io::{self, Write};
use std::iter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clonestream::extents::{Entry, EntryKind, Packer, Piece, Preamble, Writer};
use pipeline::zeroes::{Run, runs};
use pipeline::{Buffer, Pool};

use crate::error::Error;
use crate::in_order::{in_order, threads};
use crate::progress::Progress;
use crate::volume::{Kind, Member, MemberKind, PIECE_LEN, Part, Volume};

/// Zeroes between data that are fewer go with the data, in which they compress to nothing: a frame each would cost more.
const ZEROES_MIN: usize = 16 << 10;

enum Job {
    Entry(Entry, PathBuf),
    Part(Part),
}

/// What a thread has made of a job.
enum Made {
    Entry(Entry, PathBuf),
    Zeroes(u64),
    Runs(Vec<Sent>),
}

enum Sent {
    Zeroes(u64),
    Data(Piece),
}

struct Hand {
    buffer: Buffer,
    packer: Packer,
}

/// Writes the whole stream, or what of it the receiver has not.
pub(super) fn write(
    volume: &Volume,
    preamble: &Preamble,
    progress: &Progress,
    out: &mut impl Write,
) -> Result<(), Error> {
    let sent = |source: io::Error| Error::Transport { what: "send to", source };
    let mut writer = Writer::begin(out, preamble).map_err(sent)?;
    let mut at = volume.path().to_owned();
    let count = threads();
    let pool = Pool::new(PIECE_LEN, count);
    let hand = |_| Hand { buffer: pool.take(), packer: Packer::new() };
    let hands: Vec<_> = (0..count).map(hand).collect();
    let begin = preamble.begin;
    let jobs: Box<dyn Iterator<Item = Result<Job, Error>> + '_> = match &volume.kind {
        // An entry that is complete is not begun again.
        Kind::Disk(_) if begin.entry > 0 => Box::new(iter::empty()),
        Kind::Disk(disk) => {
            let entry = Job::Entry(Entry::disk(disk.size()), volume.path().to_owned());
            progress.add(begin.at.min(disk.size()));
            let parts = disk.parts(begin.at, true).map(Job::Part);
            Box::new(iter::once(entry).chain(parts).map(Ok))
        }
        Kind::Tree(root) => {
            let members = volume.walk(root).enumerate().flat_map(move |(index, member)| {
                let from = match (index as u64).cmp(&begin.entry) {
                    std::cmp::Ordering::Less => None,
                    std::cmp::Ordering::Equal => Some(begin.at),
                    std::cmp::Ordering::Greater => Some(0),
                };
                of_member(volume, root, member, from, progress)
            });
            Box::new(members)
        }
    };
    let work = |hand: &mut Hand, job: Job| make(hand, job, progress);
    in_order(hands, jobs, work, |made: Result<Made, Error>| {
        match made? {
            Made::Entry(entry, path) => {
                // What goes wrong here is about the entry before where that is not complete.
                writer.entry(&entry).map_err(Error::sending(&path))?;
                at = path;
            }
            Made::Zeroes(len) => writer.zeroes(len).map_err(Error::sending(&at))?,
            Made::Runs(all) => {
                for run in all {
                    let written = match run {
                        Sent::Zeroes(len) => writer.zeroes(len),
                        Sent::Data(piece) => writer.data(&piece),
                    };
                    written.map_err(Error::sending(&at))?;
                }
            }
        }
        Ok(())
    })?;
    writer.end().map(drop).map_err(Error::sending(volume.path()))
}

/// An entry and its content from `from` on, or nothing.
fn of_member<'a>(
    volume: &'a Volume,
    root: &'a OwnedFd,
    member: Result<Member, Error>,
    from: Option<u64>,
    progress: &Progress,
) -> Box<dyn Iterator<Item = Result<Job, Error>> + 'a> {
    let begun = member.and_then(|member| {
        let Some(from) = from else {
            progress.add(member.allocated);
            return Ok(None);
        };
        let content = match member.kind {
            MemberKind::Regular => Some(Arc::new(volume.file(root, &member.path)?)),
            _ => None,
        };
        let size = content.as_ref().map_or(0, |content| content.size());
        let entry = entry_of(member, size);
        let named = volume.path().join(name_of(&entry.path));
        let parts = content.map(|content| content.parts(from, true).map(Job::Part));
        Ok(Some(iter::once(Job::Entry(entry, named)).chain(parts.into_iter().flatten())))
    });
    match begun {
        Ok(None) => Box::new(iter::empty()),
        Ok(Some(jobs)) => Box::new(jobs.map(Ok)),
        Err(error) => Box::new(iter::once(Err(error))),
    }
}

fn name_of(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

fn entry_of(member: Member, size: u64) -> Entry {
    let kind = match member.kind {
        MemberKind::Regular => EntryKind::Regular,
        MemberKind::Directory => EntryKind::Directory,
        MemberKind::Symlink(target) => EntryKind::Symlink(target),
        MemberKind::HardLink(target) => EntryKind::HardLink(target),
    };
    Entry { path: member.path, kind, size, mode: member.mode, modified: member.modified }
}

fn make(hand: &mut Hand, job: Job, progress: &Progress) -> Result<Made, Error> {
    match job {
        Job::Entry(entry, path) => Ok(Made::Entry(entry, path)),
        Job::Part(Part::Hole(len)) => Ok(Made::Zeroes(len)),
        Job::Part(Part::Data(content, range)) => {
            let len = (range.end - range.start) as usize;
            content.read(range.start, len, &mut hand.buffer)?;
            let bytes = &hand.buffer[..len];
            let mut all = Vec::new();
            let mut data = 0..0;
            for run in long_runs(bytes, range.start) {
                match run {
                    Run::Data(range) => data = range,
                    Run::Zero(range) => {
                        if !data.is_empty() {
                            all.push(Sent::Data(hand.packer.pack(&bytes[data])));
                            data = 0..0;
                        }
                        all.push(Sent::Zeroes(range.len() as u64));
                    }
                }
            }
            if !data.is_empty() {
                all.push(Sent::Data(hand.packer.pack(&bytes[data])));
            }
            progress.add(len as u64);
            Ok(Made::Runs(all))
        }
    }
}

/// Data and zeroes taking turns, where short runs of zeroes between data are data.
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
    fn short_zeroes_go_with_the_data_around_them() {
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
