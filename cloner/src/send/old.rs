//! The streams that every upload server takes: a device byte by byte or a file system as an archive, in snappy's frames.

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
use crate::in_order::{in_order, threads};
use crate::progress::Progress;
use crate::volume::{Content, Kind, Member, MemberKind, PIECE_LEN, Part, Volume, data_of};

/// Parts in the map of one file: 16 MiB of memory, and as much of headers.
const PARTS_MAX: usize = 1 << 20;
/// Zeroes in one piece of work: they are short when compressed.
const ZEROES_MAX: u64 = 16 << 20;

/// A piece of the stream, before it is compressed.
enum Job {
    Bytes(Vec<u8>),
    Part(Part),
}

/// What each thread has.
struct Hand {
    buffer: Buffer,
    encoder: Encoder,
}

/// Writes the whole stream.
pub(super) fn write(
    volume: &Volume,
    preallocate: bool,
    progress: &Progress,
    out: &mut impl Write,
) -> Result<(), Error> {
    let sent = |source: io::Error| Error::Transport { what: "send to", source };
    out.write_all(&IDENTIFIER).map_err(sent)?;
    let count = threads();
    let pool = Pool::new(PIECE_LEN, count);
    let hand = |_| Hand { buffer: pool.take(), encoder: Encoder::default() };
    let hands = (0..count).map(hand).collect();
    let work = |hand: &mut Hand, job: Job| encode(hand, job, progress);
    let sink = |chunks: Result<Vec<u8>, Error>| out.write_all(&chunks?).map_err(sent);
    match &volume.kind {
        Kind::Disk(disk) => {
            // Where holes are known they are not read, but they are sent: nothing else says where things belong.
            let parts = disk.parts(0, true).flat_map(bounded).map(|part| Ok(Job::Part(part)));
            in_order(hands, parts, work, sink)
        }
        Kind::Tree(root) => in_order(hands, archive(volume, root, !preallocate), work, sink),
    }
}

fn encode(hand: &mut Hand, job: Job, progress: &Progress) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    match job {
        Job::Bytes(bytes) => hand.encoder.encode(&bytes, &mut out),
        Job::Part(Part::Hole(len)) => {
            hand.encoder.encode_zeroes(len, &mut out);
            progress.add(len);
        }
        Job::Part(Part::Data(content, range)) => {
            let len = (range.end - range.start) as usize;
            content.read(range.start, len, &mut hand.buffer)?;
            for block in hand.buffer[..len].chunks(BLOCK_MAX) {
                if is_zero(block) {
                    hand.encoder.encode_zeroes(block.len() as u64, &mut out);
                } else {
                    hand.encoder.encode(block, &mut out);
                }
            }
            progress.add(len as u64);
        }
    }
    Ok(out)
}

/// Holes in pieces.
fn bounded(part: Part) -> impl Iterator<Item = Part> {
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

/// All members, and the archive's end.
fn archive<'a>(
    volume: &'a Volume,
    root: &'a OwnedFd,
    sparse: bool,
) -> impl Iterator<Item = Result<Job, Error>> + 'a {
    let archive_len = Rc::new(Cell::new(0));
    let end = Rc::clone(&archive_len);
    let members = volume.walk(root).flat_map(move |member| -> Jobs<'a> {
        match member.and_then(|member| of_member(volume, root, &member, sparse, &archive_len)) {
            Ok(jobs) => jobs,
            Err(error) => Box::new(iter::once(Err(error))),
        }
    });
    let trailer = iter::once_with(move || Ok(Job::Bytes(tar::trailer(end.get()))));
    members.chain(trailer)
}

fn of_member<'a>(
    volume: &Volume,
    root: &OwnedFd,
    member: &Member,
    sparse: bool,
    archive_len: &Cell<u64>,
) -> Result<Jobs<'a>, Error> {
    let content = match member.kind {
        MemberKind::Regular => Some(Arc::new(volume.file(root, &member.path)?)),
        _ => None,
    };
    let size = content.as_ref().map_or(0, |content| content.size());
    let data: Vec<Range<u64>> = match &content {
        Some(content) if sparse => data_of(content, PARTS_MAX),
        _ => iter::once(0..size).filter(|range| !range.is_empty()).collect(),
    };
    let has_holes = data.iter().map(|range| range.end - range.start).sum::<u64>() < size;
    let mut path = member.path.clone();
    let kind = match &member.kind {
        MemberKind::Regular if has_holes => tar::MemberKind::Sparse(size, &data),
        MemberKind::Regular => tar::MemberKind::Regular(size),
        MemberKind::Directory => {
            path.push(b'/');
            tar::MemberKind::Directory
        }
        MemberKind::Symlink(target) => tar::MemberKind::Symlink(target),
        MemberKind::HardLink(target) => tar::MemberKind::HardLink(target),
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
    let parts = data.into_iter().flat_map(move |range| of_range(&content, range, !sparse));
    let padding = (padding > 0).then(|| Ok(Job::Bytes(vec![0; padding])));
    Ok(Box::new(header.chain(parts.map(|part| Ok(Job::Part(part)))).chain(padding)))
}

/// The bytes of one range. What an archive without holes has as zeroes need not be read where the file system knows it.
fn of_range(
    content: &Arc<Content>,
    range: Range<u64>,
    look: bool,
) -> impl Iterator<Item = Part> + use<> {
    let mut at = range.start;
    let end = range.end;
    content.parts(at, look).flat_map(bounded).map_while(move |part| {
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
