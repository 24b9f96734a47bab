//! Sends a volume as upstream's upload servers accept it: a device byte by byte, or a file system as a tar archive, in snappy
//! frames.

use std::cell::Cell;
use std::io::{self, Write};
use std::iter;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use clonestream::snappy::{BLOCK_MAX, Encoder, IDENTIFIER};
use clonestream::tar;
use pipeline::zeroes::is_zero;
use pipeline::{Buffer, Pool};

use crate::error::Error;
use crate::in_order::{process_in_order, thread_count};
use crate::progress::Progress;
use crate::volume::{
    PART_LEN, Part, SourceFile, SourceVolume, TreeMember, TreeMemberKind, VolumeContent,
    data_ranges,
};

/// Ranges in the sparse map of one file: 16 MiB of memory, and as much of headers.
const PARTS_MAX: usize = 1 << 20;
/// Zeroes in one job: compressed, they are short.
const ZEROES_MAX: u64 = 16 << 20;

/// A part of the stream, before compression.
enum Job {
    Bytes(Vec<u8>),
    Part(Part),
}

struct EncoderThread {
    buffer: Buffer,
    encoder: Encoder,
}

pub(super) fn write(
    volume: &SourceVolume,
    preallocate: bool,
    progress: &Progress,
    out: &mut impl Write,
) -> Result<(), Error> {
    let sent = |source: io::Error| Error::Transport { what: "send to", source };
    out.write_all(&IDENTIFIER).map_err(sent)?;
    let count = thread_count();
    let pool = Pool::new(PART_LEN, count);
    let encoder_thread = |_| EncoderThread { buffer: pool.take(), encoder: Encoder::default() };
    let encoders = (0..count).map(encoder_thread).collect();
    let work = |encoder_thread: &mut EncoderThread, job: Job| encode(encoder_thread, job, progress);
    let sink = |chunks: Result<Vec<u8>, Error>| out.write_all(&chunks?).map_err(sent);
    match &volume.content {
        VolumeContent::Disk(disk) => {
            // Known holes are not read, but sent as zeroes: the format has no offsets.
            let parts = disk.parts(0, true).flat_map(split_holes).map(|part| Ok(Job::Part(part)));
            process_in_order(encoders, parts, work, sink)
        }
        VolumeContent::Tree(root) => {
            process_in_order(encoders, archive_jobs(volume, root, !preallocate), work, sink)
        }
    }
}

fn encode(
    encoder_thread: &mut EncoderThread,
    job: Job,
    progress: &Progress,
) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    match job {
        Job::Bytes(bytes) => encoder_thread.encoder.encode(&bytes, &mut out),
        Job::Part(Part::Hole(len)) => {
            encoder_thread.encoder.encode_zeroes(len, &mut out);
            progress.add(len);
        }
        Job::Part(Part::Data(content, range)) => {
            let len = (range.end - range.start) as usize;
            content.read(range.start, len, &mut encoder_thread.buffer)?;
            for block in encoder_thread.buffer[..len].chunks(BLOCK_MAX) {
                if is_zero(block) {
                    encoder_thread.encoder.encode_zeroes(block.len() as u64, &mut out);
                } else {
                    encoder_thread.encoder.encode(block, &mut out);
                }
            }
            progress.add(len as u64);
        }
    }
    Ok(out)
}

/// Splits holes into jobs of bounded length.
fn split_holes(part: Part) -> impl Iterator<Item = Part> {
    let (data, mut hole) = match part {
        Part::Hole(len) => (None, len),
        data @ Part::Data(..) => (Some(data), 0),
    };
    data.into_iter().chain(iter::from_fn(move || {
        let len = hole.min(ZEROES_MAX);
        hole -= len;
        (len > 0).then_some(Part::Hole(len))
    }))
}

type Jobs<'a> = Box<dyn Iterator<Item = Result<Job, Error>> + 'a>;

fn archive_jobs<'a>(
    volume: &'a SourceVolume,
    root: &'a OwnedFd,
    sparse: bool,
) -> impl Iterator<Item = Result<Job, Error>> + 'a {
    let archive_len = Rc::new(Cell::new(0));
    let end = Rc::clone(&archive_len);
    let members = volume.walk(root).flat_map(move |member| -> Jobs<'a> {
        match member.and_then(|member| member_jobs(volume, root, &member, sparse, &archive_len)) {
            Ok(jobs) => jobs,
            Err(error) => Box::new(iter::once(Err(error))),
        }
    });
    let trailer = iter::once_with(move || Ok(Job::Bytes(tar::trailer(end.get()))));
    members.chain(trailer)
}

fn member_jobs<'a>(
    volume: &SourceVolume,
    root: &OwnedFd,
    member: &TreeMember,
    sparse: bool,
    archive_len: &Cell<u64>,
) -> Result<Jobs<'a>, Error> {
    let content = match member.kind {
        TreeMemberKind::Regular => Some(Arc::new(volume.file(root, &member.path)?)),
        _ => None,
    };
    let size = content.as_ref().map_or(0, |content| content.size());
    let data: Vec<Range<u64>> = match &content {
        Some(content) if sparse => data_ranges(content, PARTS_MAX),
        _ => iter::once(0..size).filter(|range| !range.is_empty()).collect(),
    };
    let has_holes = data.iter().map(|range| range.end - range.start).sum::<u64>() < size;
    let mut path = member.path.clone();
    let kind = match &member.kind {
        TreeMemberKind::Regular if has_holes => tar::MemberKind::Sparse(size, &data),
        TreeMemberKind::Regular => tar::MemberKind::Regular(size),
        TreeMemberKind::Directory => {
            path.push(b'/');
            tar::MemberKind::Directory
        }
        TreeMemberKind::Symlink(target) => tar::MemberKind::Symlink(target),
        TreeMemberKind::HardLink(target) => tar::MemberKind::HardLink(target),
    };
    let header = tar::Member {
        path: &path,
        kind,
        mode: member.mode,
        owner: member.owner,
        modified: member.modified.0,
    };
    let content_len = header.content_len();
    let header = header.header();
    let padding = tar::padding(content_len);
    archive_len.set(archive_len.get() + header.len() as u64 + content_len + padding as u64);
    let header = iter::once(Ok(Job::Bytes(header)));
    let Some(content) = content else { return Ok(Box::new(header)) };
    let parts = data.into_iter().flat_map(move |range| range_parts(&content, range, !sparse));
    let padding = (padding > 0).then(|| Ok(Job::Bytes(vec![0; padding])));
    Ok(Box::new(header.chain(parts.map(|part| Ok(Job::Part(part)))).chain(padding)))
}

/// The parts of one range. With `skip_holes`, known holes are not read, and sent as zeroes.
fn range_parts(
    content: &Arc<SourceFile>,
    range: Range<u64>,
    skip_holes: bool,
) -> impl Iterator<Item = Part> + use<> {
    let mut at = range.start;
    let end = range.end;
    content.parts(at, skip_holes).flat_map(split_holes).map_while(move |part| {
        let len = match &part {
            Part::Hole(len) => *len,
            Part::Data(_, range) => range.end - range.start,
        };
        let left = end - at;
        at += len.min(left);
        (left > 0).then(|| match part {
            Part::Hole(len) => Part::Hole(len.min(left)),
            Part::Data(content, range) => {
                Part::Data(content, range.start..range.end.min(range.start + left))
            }
        })
    })
}
