//! GNU tar archives, written as `tar -c` and `tar -c --sparse` write them: what a clone of a file system has been so far.
//!
//! Made are headers and what goes between contents; the contents are the caller's. Files with holes are of the old GNU
//! form (type `S`), which every tar that knows holes can read. Sources: tar(5) of the BSDs, and the tables in GNU tar's
//! manual, "Storing Sparse Files".

use std::ops::Range;

/// Headers and content are counted in blocks.
pub const BLOCK: usize = 512;
/// Archives are counted in records.
const RECORD: u64 = 20 * BLOCK as u64;

const NAME_LEN: usize = 100;
/// Parts of a map in the header, and in each block behind it.
const PARTS_IN_HEADER: usize = 4;
const PARTS_IN_BLOCK: usize = 21;
const PART_LEN: usize = 24;

/// What stands before each content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Relative. A folder's ends with a slash.
    pub path: &'a [u8],
    /// What it is.
    pub kind: MemberKind<'a>,
    /// Permission bits.
    pub mode: u32,
    /// Numbers of user and group.
    pub owner: (u32, u32),
    /// When it was changed, in seconds since 1970.
    pub modified: i64,
}

/// What a [`Member`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind<'a> {
    /// A file, and its bytes.
    Regular(u64),
    /// A file of so many bytes, of which only these parts are content: in order, none empty.
    Sparse(u64, &'a [Range<u64>]),
    /// A folder.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// Another name of the member of this path.
    HardLink(&'a [u8]),
}

impl Member<'_> {
    /// All that goes before the content: whole blocks.
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
                out.extend(long_name(kind, name));
            }
        }
        let mut block = self.block(kind, self.path, link, self.content_len());
        let MemberKind::Sparse(size, parts) = self.kind else {
            seal(&mut block);
            out.extend(block);
            return out;
        };
        // The map ends at the end of the file, and says so where there is a hole.
        let end = size..size;
        let has_end = parts.last().is_none_or(|last| last.end < size);
        let mut parts = parts.iter().chain(has_end.then_some(&end)).peekable();
        put_parts(&mut block[386..482], &mut parts, PARTS_IN_HEADER);
        block[482] = u8::from(parts.peek().is_some());
        number(&mut block[483..495], size);
        seal(&mut block);
        out.extend(block);
        while parts.peek().is_some() {
            let mut block = [0; BLOCK];
            put_parts(&mut block[..504], &mut parts, PARTS_IN_BLOCK);
            block[504] = u8::from(parts.peek().is_some());
            out.extend(block);
        }
        out
    }

    /// Bytes of content that follow.
    pub fn content_len(&self) -> u64 {
        match self.kind {
            MemberKind::Regular(size) => size,
            MemberKind::Sparse(_, parts) => parts.iter().map(|part| part.end - part.start).sum(),
            MemberKind::Directory | MemberKind::Symlink(_) | MemberKind::HardLink(_) => 0,
        }
    }

    fn block(&self, kind: u8, path: &[u8], link: &[u8], size: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        copy(&mut block[..NAME_LEN], path);
        number(&mut block[100..108], u64::from(self.mode & 0o7777));
        number(&mut block[108..116], self.owner.0.into());
        number(&mut block[116..124], self.owner.1.into());
        number(&mut block[124..136], size);
        signed(&mut block[136..148], self.modified);
        block[156] = kind;
        copy(&mut block[157..157 + NAME_LEN], link);
        block[257..265].copy_from_slice(b"ustar  \0");
        block
    }
}

/// Zeroes that fill the last block of a content.
pub fn padding(content_len: u64) -> usize {
    (BLOCK - (content_len % BLOCK as u64) as usize) % BLOCK
}

/// What ends an archive that has so many bytes before.
pub fn trailer(len: u64) -> Vec<u8> {
    let end = (len + 2 * BLOCK as u64).next_multiple_of(RECORD);
    vec![0; (end - len) as usize]
}

/// A member whose content is a name that has no room in a header.
fn long_name(kind: u8, name: &[u8]) -> Vec<u8> {
    let none = MemberKind::Directory;
    let path: &[u8] = b"././@LongLink";
    let member = Member { path, kind: none, mode: 0o644, owner: (0, 0), modified: 0 };
    let len = name.len() + 1;
    let mut block = member.block(kind, path, &[], len as u64);
    seal(&mut block);
    let mut out = block.to_vec();
    out.extend(name);
    out.resize(BLOCK + len.next_multiple_of(BLOCK), 0);
    out
}

fn put_parts<'a>(field: &mut [u8], parts: &mut impl Iterator<Item = &'a Range<u64>>, most: usize) {
    for (slot, part) in field.chunks_exact_mut(PART_LEN).take(most).zip(parts) {
        number(&mut slot[..12], part.start);
        number(&mut slot[12..], part.end - part.start);
    }
}

fn copy(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// Octal digits and a zero; or, what is too large for that, the number itself behind a bit that says so.
fn number(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    if value >> (3 * digits).min(63) == 0 {
        let text = format!("{value:0digits$o}");
        field[..digits].copy_from_slice(text.as_bytes());
        field[digits] = 0;
    } else {
        signed_binary(field, i128::from(value));
    }
}

fn signed(field: &mut [u8], value: i64) {
    match u64::try_from(value) {
        Ok(value) => number(field, value),
        Err(_) => signed_binary(field, value.into()),
    }
}

fn signed_binary(field: &mut [u8], value: i128) {
    let bytes = value.to_be_bytes();
    let len = field.len();
    field.copy_from_slice(&bytes[bytes.len() - len..]);
    field[0] = if value < 0 { 0xff } else { field[0] | 0x80 };
}

/// Writes the sum of all bytes, its own place counted as spaces.
fn seal(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    number(&mut block[148..155], sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_too_large_for_digits_are_binary() {
        let written = |value: i64| {
            let mut field = [0; 12];
            signed(&mut field, value);
            field
        };
        assert_eq!(&written(0o644), b"00000000644\0");
        assert_eq!(&written((1 << 33) - 1), b"77777777777\0");
        assert_eq!(written(1 << 33), [0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(written(-1), [0xff; 12]);
        let mut small = [0; 8];
        number(&mut small, u64::from(u32::MAX));
        assert_eq!(small, [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn an_archive_is_whole_records() {
        for len in [0, 512, 10240 - 1024, 10240 - 512, 10240, 51200] {
            let end = len + trailer(len).len() as u64;
            assert!(end.is_multiple_of(10240) && end >= len + 1024, "{len}");
        }
        assert_eq!((padding(0), padding(1), padding(511), padding(512)), (0, 511, 1, 0));
    }
}
