//! The two structures of fixed size: the preamble, and the header before each payload.

use super::WHAT;
use crate::Error;
use crate::offer::{SourceIdentity, StreamPosition, VERSION};

pub(super) const MAGIC: [u8; 8] = *b"CDICLONE";
pub(super) const PREAMBLE_LEN: usize = 48;
pub(super) const HEADER_LEN: usize = 32;

/// Whether `head` is the beginning of an extent stream.
pub fn is_extent_stream(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// The first bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    pub identity: SourceIdentity,
    /// Everything before this position is left out: the receiver has it.
    pub begin: StreamPosition,
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
        if !is_extent_stream(bytes) {
            return Err(corrupt("the magic number is missing"));
        }
        if crc_fast::crc32_iscsi(&bytes[..44]).to_le_bytes() != bytes[44..] {
            return Err(corrupt("the checksum of the preamble is wrong"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(Error::Version { what: WHAT, version });
        }
        if bytes[10..12] != [0; 2] {
            return Err(corrupt("the preamble uses reserved fields"));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[12..28]);
        let begin = StreamPosition { entry: u64_at(bytes, 28), at: u64_at(bytes, 36) };
        Ok(Self { identity: SourceIdentity(identity), begin })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Entry = 1,
    Data = 2,
    Zero = 3,
    End = 4,
}

/// How the data of a frame is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Plain = 0,
    /// One LZ4 block.
    Lz4 = 1,
    /// One zstd frame.
    Zstd = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub kind: Kind,
    pub coding: Coding,
    pub payload_len: u32,
    /// Entry: its index. End: the number of entries. Data, zero: the offset in the content.
    pub at: u64,
    /// Entry: its size. End: the bytes of content in the stream. Data, zero: the bytes of content.
    pub len: u64,
    pub payload_sum: u32,
}

impl Header {
    /// `chain` is the checksum of the previous frame, and becomes that of this one.
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

    /// `stream_at` is the frame's offset in the stream, for errors.
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
            _ => return Err(corrupt("a frame has an unknown kind")),
        };
        let coding = match bytes[1] {
            0 => Coding::Plain,
            1 => Coding::Lz4,
            2 => Coding::Zstd,
            _ => return Err(corrupt("a frame has an unknown coding")),
        };
        if bytes[2..4] != [0; 2] {
            return Err(corrupt("a frame uses reserved fields"));
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
