//! Where zstd frames begin and end, found without decoding them. (RFC 8878, section 3.1.)

use std::io;

use super::STREAM;
use crate::decompress::Wire;
use crate::frames::{FrameHeader, NoFrame};

/// The header of a frame that holds data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DataFrame {
    header_len: usize,
    /// A checksum follows the last block.
    pub has_checksum: bool,
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
        let single_segment = descriptor & SINGLE_SEGMENT != 0;
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
            has_checksum: descriptor & HAS_CHECKSUM != 0,
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
        let held = bytes.len();
        wire.take(self.header_len, bytes, STREAM)?;
        loop {
            let (header, block) = BlockHeader::take(wire)?;
            bytes.extend_from_slice(&header);
            let checksum = if block.is_last && self.has_checksum { 4 } else { 0 };
            if bytes.len() + block.stored_len + checksum > max {
                wire.unread(bytes.split_off(held));
                return Ok(false);
            }
            wire.take(block.stored_len + checksum, bytes, STREAM)?;
            if block.is_last {
                return Ok(true);
            }
        }
    }

    /// Takes the header from `wire`, and returns one for the same blocks without a checksum, and without the length of the
    /// content where the window does not depend on it.
    pub(super) fn take_header_without_checks(&self, wire: &mut Wire<'_>) -> io::Result<Vec<u8>> {
        let mut header = Vec::new();
        wire.take(self.header_len, &mut header, STREAM)?;
        match &mut header[..] {
            [_, _, _, _, descriptor, ..] if *descriptor & SINGLE_SEGMENT != 0 => {
                *descriptor &= !HAS_CHECKSUM;
            }
            [_, _, _, _, descriptor, _window, ..] => {
                *descriptor = 0;
                header.truncate(6);
            }
            _ => (),
        }
        Ok(header)
    }

    /// The most bytes that a block decodes to.
    pub(super) fn block_max(&self) -> u64 {
        self.window.min(128 << 10)
    }
}

/// Flags of a frame's descriptor.
const SINGLE_SEGMENT: u8 = 0x20;
const HAS_CHECKSUM: u8 = 0x04;

/// The header of a block. (RFC 8878, section 3.1.1.2.)
pub(super) struct BlockHeader {
    pub is_last: bool,
    /// Bytes that follow the header.
    pub stored_len: usize,
    /// For one byte that is repeated: how often.
    pub repeated_len: Option<u64>,
}

impl BlockHeader {
    /// The next header, and its bytes.
    pub(super) fn take(wire: &mut Wire<'_>) -> io::Result<([u8; 3], Self)> {
        const REPEATED: u32 = 1;
        const RESERVED: u32 = 3;
        let bytes = wire.array(STREAM)?;
        let [a, b, c] = bytes;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let (kind, size) = (header >> 1 & 3, header >> 3);
        let (stored_len, repeated_len) = match kind {
            REPEATED => (1, Some(size.into())),
            RESERVED => return Err(wire.corrupt(STREAM, "a block has the reserved type")),
            _ => (size as usize, None),
        };
        Ok((bytes, Self { is_last: header & 1 != 0, stored_len, repeated_len }))
    }
}
