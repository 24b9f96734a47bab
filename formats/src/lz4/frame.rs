//! The headers of LZ4 frames and of their blocks.

use twox_hash::XxHash32;

use super::STREAM;
use crate::frames::{FrameHeader, NoFrame};

pub(crate) const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// Of the frames that old programs, and the builds of Linux kernels, write.
pub(crate) const LEGACY_MAGIC: [u8; 4] = 0x184c_2102_u32.to_le_bytes();

/// Bits of a header's FLG byte.
mod flag {
    pub const DICTIONARY: u8 = 1;
    pub const RESERVED: u8 = 1 << 1;
    pub const CONTENT_CHECKSUM: u8 = 1 << 2;
    pub const CONTENT_LEN: u8 = 1 << 3;
    pub const BLOCK_CHECKSUMS: u8 = 1 << 4;
    pub const INDEPENDENT: u8 = 1 << 5;
    pub const VERSION: u8 = 0b1100_0000;
    pub const VERSION_1: u8 = 0b0100_0000;
}

/// The header of a frame that holds data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DataFrame {
    pub header_len: usize,
    /// Bytes of the largest block.
    pub block_max: usize,
    /// Blocks may refer to those before them.
    pub linked: bool,
    pub block_checksums: bool,
    pub content_checksum: bool,
    pub content_len: Option<u64>,
    /// Needs a dictionary that is not part of the stream.
    pub dictionary: bool,
}

const OTHER_VERSION: NoFrame =
    NoFrame::BadHeader("a frame's header is of another version, or has reserved bits set");
const BAD_BLOCK_SIZE: NoFrame =
    NoFrame::BadHeader("a frame's header names an impossible size of blocks");
const BAD_CHECKSUM: NoFrame = NoFrame::BadHeader("the checksum of a frame's header does not match");

impl FrameHeader for DataFrame {
    const STREAM: &'static str = STREAM;
    const MAGIC: [u8; 4] = MAGIC;
    const LEN_MAX: usize = 19;

    fn parse(fields: &[u8]) -> Result<Option<Self>, NoFrame> {
        let [flags, sizes, optional @ ..] = fields else { return Ok(None) };
        let reserved = flags & flag::RESERVED != 0 || sizes & 0b1000_1111 != 0;
        if flags & flag::VERSION != flag::VERSION_1 || reserved {
            return Err(OTHER_VERSION);
        }
        let block_max = match sizes >> 4 {
            4 => 64 << 10,
            5 => 256 << 10,
            6 => 1 << 20,
            7 => 4 << 20,
            _ => return Err(BAD_BLOCK_SIZE),
        };
        let has = |flag| flags & flag != 0;
        let content_len_len = if has(flag::CONTENT_LEN) { 8 } else { 0 };
        let dictionary_len = if has(flag::DICTIONARY) { 4 } else { 0 };
        let described = 2 + content_len_len + dictionary_len;
        let Some(checksum) = fields.get(described) else { return Ok(None) };
        if (XxHash32::oneshot(0, &fields[..described]) >> 8) as u8 != *checksum {
            return Err(BAD_CHECKSUM);
        }
        Ok(Some(Self {
            header_len: MAGIC.len() + described + 1,
            block_max,
            linked: !has(flag::INDEPENDENT),
            block_checksums: has(flag::BLOCK_CHECKSUMS),
            content_checksum: has(flag::CONTENT_CHECKSUM),
            content_len: if has(flag::CONTENT_LEN) {
                optional.first_chunk().map(|len| u64::from_le_bytes(*len))
            } else {
                None
            },
            dictionary: has(flag::DICTIONARY),
        }))
    }
}

/// What stands before a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BlockHeader {
    pub len: usize,
    /// It is not compressed.
    pub plain: bool,
}

impl BlockHeader {
    /// `None`: the mark behind the last block.
    pub fn parse(bytes: [u8; 4]) -> Option<Self> {
        const PLAIN: u32 = 1 << 31;
        let header = u32::from_le_bytes(bytes);
        let (len, plain) = ((header & !PLAIN) as usize, header & PLAIN != 0);
        (header != 0).then_some(Self { len, plain })
    }
}
