//! A header: one block, its fields at fixed places.
//!
//! Sources: POSIX.1-2017, "pax Interchange Format", and tar(5) of the BSDs for what GNU adds.

use super::holes::{Holes, old_gnu};
use super::{WHAT, corrupt};
use crate::Error;

const CHECKSUM: std::ops::Range<usize> = 148..156;
const PERMISSIONS: u64 = 0o7777;

/// A header's fields, taken apart.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: Type,
    /// As in the field; what it means depends on the kind.
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) at: u64,
    /// Of a file that has some.
    pub(super) holes: Option<Holes>,
}

/// What a header is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Regular,
    Directory,
    Symlink,
    HardLink,
    Other,
    /// Records about the next entry.
    Pax,
    /// Records about all entries to come.
    PaxGlobal,
    /// GNU: the next entry's path.
    LongName,
    /// GNU: the next entry's link target.
    LongLink,
}

impl Header {
    /// Takes the block found at `at` apart.
    pub(super) fn parse(block: &[u8], at: u64) -> Result<Self, Error> {
        check_sum(block, at)?;
        let is_posix = block[257..263] == *b"ustar\0";
        let name = text(&block[..100]);
        let prefix = if is_posix { text(&block[345..500]) } else { b"" };
        let path = if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() };
        let kind = match block[156] {
            b'0' | 0 if path.ends_with(b"/") => Type::Directory, // as V7 wrote it
            b'0' | b'7' | b'S' | 0 => Type::Regular,
            b'1' => Type::HardLink,
            b'2' => Type::Symlink,
            b'5' => Type::Directory,
            b'x' => Type::Pax,
            b'g' => Type::PaxGlobal,
            b'L' => Type::LongName,
            b'K' => Type::LongLink,
            b'M' => return Err(unsupported("several volumes")),
            _ => Type::Other,
        };
        let size = match block[156] {
            b'3' | b'4' | b'6' | b'V' => 0, // devices, pipes, the label of a tape: never content
            _ => number(&block[124..136]).ok_or(corrupt(at, "a size is not a number"))?,
        };
        let mode = number(&block[100..108]).ok_or(corrupt(at, "a mode is not a number"))?;
        let mode = (mode & PERMISSIONS) as u32;
        let holes = if block[156] == b'S' { Some(old_gnu(block, at)?) } else { None };
        Ok(Self { path, link: text(&block[157..257]).to_vec(), kind, size, mode, at, holes })
    }
}

pub(super) fn unsupported(feature: &'static str) -> Error {
    Error::Unsupported { what: WHAT, feature }
}

/// Bytes up to the first zero.
pub(super) fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// The sum of all bytes, its own place counted as spaces. Old writers added signed bytes up.
fn check_sum(block: &[u8], at: u64) -> Result<(), Error> {
    let (mut sum, mut signed) = (0_u64, 0_i64);
    for (index, &byte) in block.iter().enumerate() {
        let byte = if CHECKSUM.contains(&index) { b' ' } else { byte };
        sum += u64::from(byte);
        signed += i64::from(byte.cast_signed());
    }
    match number(&block[CHECKSUM]) {
        Some(stored) if stored == sum || i64::try_from(stored) == Ok(signed) => Ok(()),
        _ => Err(corrupt(at, "the checksum of a header is wrong")),
    }
}

/// Octal digits between spaces and zeroes; or, where the first bit is set, a big-endian number.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        // The second bit is the sign.
        let first = u64::from(field[0] & 0x7f);
        if first & 0x40 != 0 {
            return None;
        }
        return field[1..].iter().try_fold(first, |number, &byte| {
            (number < 1 << 55).then_some(number << 8 | u64::from(byte))
        });
    }
    let digits = field.iter().position(|&byte| byte != b' ').map_or(&[][..], |at| &field[at..]);
    let end = digits.iter().position(|&byte| byte == 0 || byte == b' ').unwrap_or(digits.len());
    digits[..end].iter().try_fold(0_u64, |number, &digit| match digit {
        b'0'..=b'7' => Some(number << 3 | u64::from(digit - b'0')), // 11 digits of 3 bits
        _ => None,
    })
}
