//! Where zstd frames begin and end, found without decoding them. (RFC 8878, section 3.1.)

use std::io;

use super::STREAM;
use crate::decompress::Wire;
use crate::frames::{FrameHeader, NoFrame};

/// The header of a frame that holds data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DataFrame {
    header_len: usize,
    has_checksum: bool,
    /// Bytes of history to keep.
    pub window: u64,
    /// Needs a dictionary that is not part of the stream.
    pub dictionary: bool,
    /// Bytes that it decodes to.
    pub content_len: Option<u64>,
}

impl FrameHeader for DataFrame {
    const STREAM: &'static str = STREAM;
    const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
    const LEN_MAX: usize = 18;

    fn parse(fields: &[u8]) -> Result<Option<Self>, NoFrame> {
        let Some((&descriptor, fields)) = fields.split_first() else { return Ok(None) };
        if descriptor & 0x08 != 0 {
            return Err(NoFrame::BadHeader("a frame's header has its reserved bit set"));
        }
        Ok(Self::parse_fields(descriptor, fields))
    }
}

impl DataFrame {
    fn parse_fields(descriptor: u8, fields: &[u8]) -> Option<Self> {
        let single_segment = descriptor & 0x20 != 0;
        let window_len = usize::from(!single_segment);
        let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content_len_len = match descriptor >> 6 {
            0 => usize::from(single_segment),
            1 => 2,
            2 => 4,
            _ => 8,
        };
        let (window, rest) = fields.split_at_checked(window_len)?;
        let (dictionary, rest) = rest.split_at_checked(dictionary_len)?;
        let content_len = rest.get(..content_len_len)?;

        let mut number = [0; 8];
        number[..content_len_len].copy_from_slice(content_len);
        let number = u64::from_le_bytes(number);
        let content_len = match content_len_len {
            0 => None,
            2 => Some(number + 256),
            _ => Some(number),
        };
        let window = match (window, content_len) {
            ([descriptor], _) => {
                let base = 1_u64 << (10 + (descriptor >> 3));
                base + base / 8 * u64::from(descriptor & 7)
            }
            (_, len) => len.unwrap_or(0),
        };
        Some(Self {
            header_len: 5 + window_len + dictionary_len + content_len_len,
            has_checksum: descriptor & 0x04 != 0,
            window,
            dictionary: dictionary.iter().any(|byte| *byte != 0),
            content_len,
        })
    }

    /// Moves the frame from `wire` to the end of `bytes`, unless that would hold more than `max` then: in this case
    /// nothing changes.
    pub(super) fn take(
        &self,
        wire: &mut Wire<'_>,
        bytes: &mut Vec<u8>,
        max: usize,
    ) -> io::Result<bool> {
        const BLOCK_HEADER: usize = 3;
        let held = bytes.len();
        wire.take(self.header_len, bytes, STREAM)?;
        loop {
            wire.take(BLOCK_HEADER, bytes, STREAM)?;
            let [.., a, b, c] = **bytes else { unreachable!("three bytes were just taken") };
            let header = u32::from_le_bytes([a, b, c, 0]);
            let (is_last, kind, size) = (header & 1 != 0, header >> 1 & 3, header >> 3);
            let content = match kind {
                RLE => 1,
                RESERVED => return Err(wire.corrupt(STREAM, "a block has the reserved type")),
                _ => size as usize,
            };
            let checksum = if is_last && self.has_checksum { 4 } else { 0 };
            if bytes.len() + content + checksum > max {
                wire.unread(bytes.split_off(held));
                return Ok(false);
            }
            wire.take(content + checksum, bytes, STREAM)?;
            if is_last {
                return Ok(true);
            }
        }
    }
}

/// Types of blocks, in addition to raw (0) and compressed (2).
const RLE: u32 = 1;
const RESERVED: u32 = 3;
