//! The two fixed shapes: of the preamble, and of what is before each payload.

use super::WHAT;
use crate::Error;
use crate::offer::{Identity, Position, VERSION};

pub(super) const MAGIC: [u8; 8] = *b"CDICLONE";
pub(super) const PREAMBLE_LEN: usize = 48;
pub(super) const HEADER_LEN: usize = 32;

/// Whether a stream that begins with `head` is one of these.
pub fn is_extents(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// What a stream says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Of the source.
    pub identity: Identity,
    /// All before this place is left out.
    pub begin: Position,
}

impl Preamble {
    pub(super) fn to_bytes(self) -> [u8; PREAMBLE_LEN] {
        let mut bytes = [0; PREAMBLE_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.identity.0);
        bytes[28..36].copy_from_slice(&self.begin.entry.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.begin.at.to_le_bytes());
        let sum = crc_fast::crc32_iscsi(&bytes[..44]);
        bytes[44..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; PREAMBLE_LEN]) -> Result<Self, Error> {
        let corrupt = |because| Error::Corrupt { what: WHAT, at: 0, because };
        if !is_extents(bytes) {
            return Err(corrupt("it does not begin as one"));
        }
        if crc_fast::crc32_iscsi(&bytes[..44]).to_le_bytes() != bytes[44..] {
            return Err(corrupt("the checksum of its beginning is wrong"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(Error::Version { what: WHAT, version });
        }
        if bytes[10..12] != [0; 2] {
            return Err(corrupt("its beginning asks for what is not known here"));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[12..28]);
        let begin = Position { entry: u64_at(bytes, 28), at: u64_at(bytes, 36) };
        Ok(Self { identity: Identity(identity), begin })
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Entry = 1,
    Data = 2,
    Zero = 3,
    End = 4,
}

/// How a payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Plain = 0,
    /// A block of LZ4.
    Lz4 = 1,
}

/// What is before each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub coding: Coding,
    pub payload_len: u32,
    /// Of an entry and the end: a number. Else the place in the content.
    pub at: u64,
    /// Of an entry its size, of the end all bytes of content. Else the bytes of content.
    pub len: u64,
    pub payload_sum: u32,
}

impl Header {
    /// `chain` is the sum before, and becomes the sum of this.
    pub(super) fn to_bytes(self, chain: &mut u32) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.kind as u8;
        bytes[1] = self.coding as u8;
        bytes[4..8].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_sum.to_le_bytes());
        *chain = sum(*chain, &bytes);
        bytes[28..].copy_from_slice(&chain.to_le_bytes());
        bytes
    }

    /// Takes the frame at byte `stream_at` apart.
    pub(super) fn parse(
        bytes: &[u8; HEADER_LEN],
        chain: &mut u32,
        stream_at: u64,
    ) -> Result<Self, Error> {
        let corrupt = |because| Error::Corrupt { what: WHAT, at: stream_at, because };
        *chain = sum(*chain, bytes);
        if chain.to_le_bytes() != bytes[28..] {
            return Err(corrupt("the checksum of a frame is wrong"));
        }
        let kind = match bytes[0] {
            1 => Kind::Entry,
            2 => Kind::Data,
            3 => Kind::Zero,
            4 => Kind::End,
            _ => return Err(corrupt("a frame is of no known kind")),
        };
        let coding = match bytes[1] {
            0 => Coding::Plain,
            1 => Coding::Lz4,
            _ => return Err(corrupt("a frame is coded in no known way")),
        };
        if bytes[2..4] != [0; 2] {
            return Err(corrupt("a frame asks for what is not known here"));
        }
        Ok(Self {
            kind,
            coding,
            payload_len: u32_at(bytes, 4),
            at: u64_at(bytes, 8),
            len: u64_at(bytes, 16),
            payload_sum: u32_at(bytes, 24),
        })
    }
}

fn sum(chain: u32, header: &[u8; HEADER_LEN]) -> u32 {
    let mut bytes = [0; HEADER_LEN];
    bytes[..4].copy_from_slice(&chain.to_le_bytes());
    bytes[4..].copy_from_slice(&header[..28]);
    crc_fast::crc32_iscsi(&bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
