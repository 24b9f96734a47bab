//! Headers of streams and blocks, and the stream footer. (The .xz File Format, sections 2.1 and 3.1.)

use std::io;

use super::STREAM;
use super::check::CheckKind;
use crate::Error;
use crate::decompress::{Limits, Wire};

/// What every stream begins with.
pub(super) const STREAM_MAGIC: [u8; 6] = *b"\xfd7zXZ\0";
const FOOTER_MAGIC: [u8; 2] = *b"YZ";
const STREAM_HEADER_LEN: usize = 12;
const BLOCK_HEADER_MAX: usize = 1024;
const FILTER_LZMA2: u64 = 0x21;

#[derive(Clone, Copy, Debug)]
pub(super) struct StreamHeader {
    flags: [u8; 2],
    check: CheckKind,
}

impl StreamHeader {
    /// Reads it off the wire.
    pub(super) fn read(wire: &mut Wire<'_>) -> io::Result<Self> {
        let (magic, flags): ([u8; 6], [u8; 2]) = (wire.array(STREAM)?, wire.array(STREAM)?);
        let crc = wire.array(STREAM)?;
        if magic != STREAM_MAGIC {
            return Err(wire.corrupt(STREAM, "it does not begin with a stream header"));
        }
        if u32::from_le_bytes(crc) != crc32fast::hash(&flags) {
            return Err(wire.corrupt(STREAM, "the checksum of a stream header does not match"));
        }
        let unknown_check =
            Error::Unsupported { what: STREAM, feature: "an unknown kind of check" };
        Self::from_flags(flags).ok_or_else(|| unknown_check.into())
    }

    /// The header at the beginning of `head`, if it is a good one, and what follows it.
    pub(super) fn parse(head: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = head.split_first_chunk::<STREAM_HEADER_LEN>()?;
        let flags = [header[6], header[7]];
        let parsed = Self::from_flags(flags)?;
        (parsed.bytes() == *header).then_some((parsed, rest))
    }

    fn from_flags(flags: [u8; 2]) -> Option<Self> {
        let [0, number] = flags else { return None };
        Some(Self { flags, check: CheckKind::from_number(number)? })
    }

    /// The header as it was on the wire.
    pub(super) fn bytes(&self) -> [u8; STREAM_HEADER_LEN] {
        let mut bytes = [0; STREAM_HEADER_LEN];
        bytes[..6].copy_from_slice(&STREAM_MAGIC);
        bytes[6..8].copy_from_slice(&self.flags);
        bytes[8..].copy_from_slice(&crc32fast::hash(&self.flags).to_le_bytes());
        bytes
    }

    /// What is behind each block.
    pub(super) fn check(&self) -> CheckKind {
        self.check
    }

    /// Reads the footer, which has to agree with this header and the index before it.
    pub(super) fn check_footer(&self, wire: &mut Wire<'_>, index_len: u64) -> io::Result<()> {
        let crc: [u8; 4] = wire.array(STREAM)?;
        let checked: [u8; 6] = wire.array(STREAM)?;
        let magic: [u8; 2] = wire.array(STREAM)?;
        let [b0, b1, b2, b3, flags @ ..] = checked;
        if magic != FOOTER_MAGIC || u32::from_le_bytes(crc) != crc32fast::hash(&checked) {
            return Err(wire.corrupt(STREAM, "the footer of a stream is invalid"));
        }
        let backward = (u64::from(u32::from_le_bytes([b0, b1, b2, b3])) + 1) * 4;
        if flags != self.flags || backward != index_len {
            return Err(wire.corrupt(STREAM, "the footer of a stream contradicts the rest of it"));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHeader {
    /// Bytes of the header itself.
    pub len: usize,
    /// Bytes of the compressed data, if the header contains it.
    pub packed_len: Option<u64>,
    /// Bytes it decodes to, if the header contains it.
    pub unpacked_len: Option<u64>,
    /// Bytes of history to keep.
    pub window: u64,
}

impl BlockHeader {
    /// Looks at the header that comes next. `None`: it is the index instead.
    pub(super) fn peek(wire: &mut Wire<'_>) -> io::Result<Option<Self>> {
        let len = match wire.peek(1)? {
            [] => return Err(wire.truncated(STREAM)),
            [0, ..] => return Ok(None),
            [size, ..] => header_len(*size),
        };
        match Self::parse(wire.peek(len)?) {
            None => Err(wire.truncated(STREAM)),
            Some(Ok(header)) => Ok(Some(header)),
            Some(Err(because)) => Err(wire.corrupt(STREAM, because)),
        }
    }

    /// The header at the beginning of `head`. `None`: `head` does not hold all of it.
    pub(super) fn parse(head: &[u8]) -> Option<Result<Self, &'static str>> {
        let header = head.get(..header_len(*head.first()?))?;
        let (fields, crc) = header.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32fast::hash(fields) {
            return Some(Err("the checksum of a block header does not match"));
        }
        Some(Self::parse_fields(fields).ok_or("a block header is invalid"))
    }

    /// `fields`: the header without its checksum.
    fn parse_fields(fields: &[u8]) -> Option<Self> {
        const HAS_PACKED_LEN: u8 = 0x40;
        const HAS_UNPACKED_LEN: u8 = 0x80;
        const RESERVED: u8 = 0x3c;
        let [_, flags, rest @ ..] = fields else { return None };
        if flags & RESERVED != 0 {
            return None;
        }
        let mut rest = rest;
        let mut number_if = |bit| match flags & bit {
            0 => Some(None),
            _ => take_number(&mut rest).map(Some),
        };
        let (packed_len, unpacked_len) = (number_if(HAS_PACKED_LEN)?, number_if(HAS_UNPACKED_LEN)?);
        // LZMA2 comes last and only there. What else there is (delta, filters of machine code) is checked by liblzma.
        let mut window = None;
        for _ in 0..=flags & 3 {
            let id = take_number(&mut rest)?;
            let properties_len = usize::try_from(take_number(&mut rest)?).ok()?;
            let (properties, after) = rest.split_at_checked(properties_len)?;
            rest = after;
            if window.is_some() {
                return None;
            }
            if id == FILTER_LZMA2 {
                window = Some(dictionary_len(properties)?);
            }
        }
        let padded = rest.iter().all(|byte| *byte == 0);
        let len = fields.len() + 4;
        window.filter(|_| padded).map(|window| Self { len, packed_len, unpacked_len, window })
    }

    /// Refuses a block whose dictionary is larger than allowed.
    pub(super) fn admit(&self, limits: Limits) -> Result<(), Error> {
        if self.window > limits.window_max {
            let (needed, allowed) = (self.window, limits.window_max);
            return Err(Error::WindowTooLarge { what: STREAM, needed, allowed });
        }
        Ok(())
    }
}

/// Bytes of a block header that begins with `size`: at most [`BLOCK_HEADER_MAX`].
fn header_len(size: u8) -> usize {
    let len = (usize::from(size) + 1) * 4;
    debug_assert!(len <= BLOCK_HEADER_MAX);
    len
}

/// The dictionary size in LZMA2's one byte of properties. (Section 5.3.1.)
fn dictionary_len(properties: &[u8]) -> Option<u64> {
    match *properties {
        [40] => Some(u64::from(u32::MAX)),
        [bits @ 0..40] => Some((2 | u64::from(bits & 1)) << (bits / 2 + 11)),
        _ => None,
    }
}

/// Takes a number of one to nine bytes, seven bits each, the lowest first. (Section 1.2.)
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut reader = NumberReader::default();
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if let Some(number) = reader.push(*byte)? {
            return Some(number);
        }
    }
}

/// Puts a number together byte by byte.
#[derive(Default)]
pub(super) struct NumberReader {
    number: u64,
    bytes: u32,
}

impl NumberReader {
    /// `Some(Some(number))` with its last byte, `None` where the bytes are no number.
    pub(super) fn push(&mut self, byte: u8) -> Option<Option<u64>> {
        if self.bytes == 9 || (self.bytes > 0 && byte == 0) {
            return None;
        }
        self.number |= u64::from(byte & 0x7f) << (7 * self.bytes);
        self.bytes += 1;
        Some((byte & 0x80 == 0).then_some(self.number))
    }
}
