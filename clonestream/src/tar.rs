//! Headers of GNU tar archives as `tar -c` and `tar -c --sparse` write them: the content of upstream CDI's file system clones.
//!
//! The caller writes the contents between headers and padding. Sparse files have the old GNU format (type `S`), which every
//! tar with sparse support reads. Sources: tar(5) of the BSDs, and GNU tar's manual, "Storing Sparse Files".

use std::ops::Range;

/// Headers and contents are padded to blocks.
pub const BLOCK: usize = 512;
/// Archives are padded to records.
const RECORD: u64 = 20 * BLOCK as u64;

const NAME_LEN: usize = 100;
/// Entries of a sparse map in the header, and in each block after it.
const PARTS_IN_HEADER: usize = 4;
const PARTS_IN_BLOCK: usize = 21;
const PART_LEN: usize = 24;

/// A member of an archive, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Relative; a directory's ends with a slash.
    pub path: &'a [u8],
    pub kind: MemberKind<'a>,
    /// Permission bits.
    pub mode: u32,
    /// User and group ID.
    pub owner: (u32, u32),
    /// Modification time, in seconds since 1970.
    pub modified: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind<'a> {
    /// Size in bytes.
    Regular(u64),
    /// Size in bytes, and the ranges that are content: ascending, none empty.
    Sparse(u64, &'a [Range<u64>]),
    Directory,
    /// The link's target.
    Symlink(&'a [u8]),
    /// Path of an earlier member.
    HardLink(&'a [u8]),
}

impl Member<'_> {
    /// All blocks before the content.
    pub fn header(&self) -> Vec<u8> {
        let none: &[u8] = &[];
        let (kind, link) = match self.kind {
            MemberKind::Regular(_) => (b'0', none),
            MemberKind::Sparse(..) => (b'S', none),
            MemberKind::Directory => (b'5', none),
            MemberKind::Symlink(target) => (b'2', target),
            MemberKind::HardLink(target) => (b'1', target),
        };
        let mut out = Vec::with_capacity(BLOCK);
        for (kind, name) in [(b'K', link), (b'L', self.path)] {
            if name.len() > NAME_LEN {
                out.extend(long_name_member(kind, name));
            }
        }
        let mut block = self.header_block(kind, self.path, link, self.content_len());
        let MemberKind::Sparse(size, parts) = self.kind else {
            write_checksum(&mut block);
            out.extend(block);
            return out;
        };
        // A hole at the end is followed by an empty range at the file's size.
        let end = size..size;
        let has_end = parts.last().is_none_or(|last| last.end < size);
        let mut parts = parts.iter().chain(has_end.then_some(&end)).peekable();
        write_map(&mut block[386..482], &mut parts, PARTS_IN_HEADER);
        block[482] = u8::from(parts.peek().is_some());
        write_number(&mut block[483..495], size);
        write_checksum(&mut block);
        out.extend(block);
        while parts.peek().is_some() {
            let mut block = [0; BLOCK];
            write_map(&mut block[..504], &mut parts, PARTS_IN_BLOCK);
            block[504] = u8::from(parts.peek().is_some());
            out.extend(block);
        }
        out
    }

    /// Bytes of content in the archive.
    pub fn content_len(&self) -> u64 {
        match self.kind {
            MemberKind::Regular(size) => size,
            MemberKind::Sparse(_, parts) => parts.iter().map(|part| part.end - part.start).sum(),
            MemberKind::Directory | MemberKind::Symlink(_) | MemberKind::HardLink(_) => 0,
        }
    }

    fn header_block(&self, kind: u8, path: &[u8], link: &[u8], size: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        write_text(&mut block[..NAME_LEN], path);
        write_number(&mut block[100..108], u64::from(self.mode & 0o7777));
        write_number(&mut block[108..116], self.owner.0.into());
        write_number(&mut block[116..124], self.owner.1.into());
        write_number(&mut block[124..136], size);
        write_signed(&mut block[136..148], self.modified);
        block[156] = kind;
        write_text(&mut block[157..157 + NAME_LEN], link);
        block[257..265].copy_from_slice(b"ustar  \0");
        block
    }
}

/// Zero bytes after a content of that length.
pub fn padding(content_len: u64) -> usize {
    (BLOCK - (content_len % BLOCK as u64) as usize) % BLOCK
}

/// The end of an archive whose members have `len` bytes.
pub fn trailer(len: u64) -> Vec<u8> {
    let end = (len + 2 * BLOCK as u64).next_multiple_of(RECORD);
    vec![0; (end - len) as usize]
}

/// A GNU `@LongLink` member: a path or link target that does not fit into a header.
fn long_name_member(kind: u8, name: &[u8]) -> Vec<u8> {
    let none = MemberKind::Directory;
    let path: &[u8] = b"././@LongLink";
    let member = Member { path, kind: none, mode: 0o644, owner: (0, 0), modified: 0 };
    let len = name.len() + 1;
    let mut block = member.header_block(kind, path, &[], len as u64);
    write_checksum(&mut block);
    let mut out = block.to_vec();
    out.extend(name);
    out.resize(BLOCK + len.next_multiple_of(BLOCK), 0);
    out
}

fn write_map<'a>(field: &mut [u8], parts: &mut impl Iterator<Item = &'a Range<u64>>, most: usize) {
    for (slot, part) in field.chunks_exact_mut(PART_LEN).take(most).zip(parts) {
        write_number(&mut slot[..12], part.start);
        write_number(&mut slot[12..], part.end - part.start);
    }
}

fn write_text(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// Octal digits and NUL; larger numbers in base 256, marked by the highest bit (GNU).
fn write_number(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    if value >> (3 * digits).min(63) == 0 {
        let text = format!("{value:0digits$o}");
        field[..digits].copy_from_slice(text.as_bytes());
        field[digits] = 0;
    } else {
        write_binary(field, i128::from(value));
    }
}

fn write_signed(field: &mut [u8], value: i64) {
    match u64::try_from(value) {
        Ok(value) => write_number(field, value),
        Err(_) => write_binary(field, value.into()),
    }
}

fn write_binary(field: &mut [u8], value: i128) {
    let bytes = value.to_be_bytes();
    let len = field.len();
    field.copy_from_slice(&bytes[bytes.len() - len..]);
    field[0] = if value < 0 { 0xff } else { field[0] | 0x80 };
}

/// The sum of all bytes, with the checksum field taken as spaces.
fn write_checksum(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    write_number(&mut block[148..155], sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_too_large_for_octal_digits_is_binary() {
        let written = |value: i64| {
            let mut field = [0; 12];
            write_signed(&mut field, value);
            field
        };
        assert_eq!(&written(0o644), b"00000000644\0");
        assert_eq!(&written((1 << 33) - 1), b"77777777777\0");
        assert_eq!(written(1 << 33), [0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(written(-1), [0xff; 12]);
        let mut small = [0; 8];
        write_number(&mut small, u64::from(u32::MAX));
        assert_eq!(small, [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn archive_ends_at_a_record_border() {
        for len in [0, 512, 10240 - 1024, 10240 - 512, 10240, 51200] {
            let end = len + trailer(len).len() as u64;
            assert!(end.is_multiple_of(10240) && end >= len + 1024, "{len}");
        }
        assert_eq!((padding(0), padding(1), padding(511), padding(512)), (0, 511, 1, 0));
    }
}
