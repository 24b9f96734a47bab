//! Finding the end of a block without decoding it: LZMA2 is a row of chunks with their lengths.

use super::check::{CHECK_MAX, CheckKind};
use super::header::BlockHeader;

/// A walk over the bytes of one block, from its header to its check.
#[derive(Clone, Debug)]
pub(super) struct BlockWalk {
    at: DecodePosition,
    header_len: u64,
    check: [u8; CHECK_MAX],
    check_len: usize,
    packed_len: u64,
    unpacked_len: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum DecodePosition {
    /// In the block header: so many bytes are left.
    Header { left: u64 },
    /// Before a chunk's control byte.
    Control,
    /// In the lengths behind it.
    Lengths { control: u8, seen: usize, lengths: [u8; 4] },
    /// In the data of a chunk.
    Chunk { left: u64 },
    /// Behind the last chunk: padding and check.
    Tail { left: usize },
}

impl BlockWalk {
    /// Before the first byte of the block's header.
    pub(super) fn new(header: &BlockHeader, check: CheckKind) -> Self {
        let header_len = header.len as u64;
        let at = DecodePosition::Header { left: header_len };
        let (check, check_len) = ([0; CHECK_MAX], check.len());
        Self { at, header_len, check, check_len, packed_len: 0, unpacked_len: 0 }
    }

    /// Walks over `bytes`, and returns how many of them are the block's: fewer than all only where the block is over.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut walked = 0;
        while walked < bytes.len() && !self.is_over() {
            let rest = &bytes[walked..];
            walked += match self.at {
                DecodePosition::Header { ref mut left }
                | DecodePosition::Chunk { ref mut left } => {
                    let n = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= n as u64;
                    n
                }
                DecodePosition::Control | DecodePosition::Lengths { .. } => {
                    self.at = self.after(rest[0])?;
                    self.packed_len += 1;
                    1
                }
                DecodePosition::Tail { ref mut left } => {
                    if *left <= self.check_len {
                        self.check[self.check_len - *left] = rest[0];
                    }
                    *left -= 1;
                    1
                }
            };
            if let DecodePosition::Header { left: 0 } | DecodePosition::Chunk { left: 0 } = self.at
            {
                self.at = DecodePosition::Control;
            }
        }
        Ok(walked)
    }

    /// Where `byte`, a control byte or one of the lengths, leads.
    fn after(&mut self, byte: u8) -> Result<DecodePosition, &'static str> {
        let (control, seen, lengths) = match self.at {
            DecodePosition::Lengths { control, seen, mut lengths } => {
                lengths[seen] = byte;
                (control, seen + 1, lengths)
            }
            _ => match byte {
                0 => {
                    let padding = (self.packed_len + 1).wrapping_neg() % 4;
                    return Ok(DecodePosition::Tail { left: padding as usize + self.check_len });
                }
                1 | 2 | 0x80.. => (byte, 0, [0; 4]),
                _ => return Err("a chunk of LZMA2 data has an invalid kind"),
            },
        };
        let [a, b, c, d] = lengths.map(u64::from);
        let is_packed = control >= 0x80;
        if seen < if is_packed { 4 } else { 2 } {
            return Ok(DecodePosition::Lengths { control, seen, lengths });
        }
        let (unpacked, data) = if is_packed {
            let has_properties = u64::from(control >= 0xc0);
            let high_bits = u64::from(control & 0x1f) << 16;
            ((high_bits | a << 8 | b) + 1, (c << 8 | d) + 1 + has_properties)
        } else {
            ((a << 8 | b) + 1, (a << 8 | b) + 1)
        };
        self.packed_len += data;
        self.unpacked_len += unpacked;
        Ok(DecodePosition::Chunk { left: data })
    }

    /// The last byte of the check was walked over.
    pub(super) fn is_over(&self) -> bool {
        self.at == DecodePosition::Tail { left: 0 }
    }

    /// The check; right once the walk [is over](Self::is_over), as are the lengths.
    pub(super) fn check(&self) -> &[u8] {
        &self.check[..self.check_len]
    }

    /// Bytes of LZMA2 data.
    pub(super) fn packed_len(&self) -> u64 {
        self.packed_len
    }

    /// Bytes that the block decodes to. Filters before LZMA2 do not change the length.
    pub(super) fn unpacked_len(&self) -> u64 {
        self.unpacked_len
    }

    /// Bytes of the block but for its padding, as the index counts them.
    pub(super) fn unpadded_len(&self) -> u64 {
        self.header_len + self.packed_len + self.check_len as u64
    }
}
