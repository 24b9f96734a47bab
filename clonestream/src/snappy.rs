//! The framing format of snappy: what every clone stream has been wrapped in so far.
//!
//! ```text
//!  │ ff 06 00 00 sNaPpY │ 00 length checksum snappy │ 01 length checksum bytes │ …
//! ```
//!
//! Nothing marks the end: a stream may end behind any chunk. Made here because a chunk needs nothing of the one before, so
//! that all cores can make them; read by `snap`'s own `FrameDecoder`. Source: snappy's `framing_format.txt`.

use snap::raw::{self, max_compress_len};

/// What a stream begins with.
pub const IDENTIFIER: [u8; 10] = *b"\xff\x06\x00\x00sNaPpY";
/// The most bytes that one chunk holds, before compression.
pub const BLOCK_MAX: usize = 1 << 16;

const COMPRESSED: u8 = 0x00;
const PLAIN: u8 = 0x01;
const HEADER_LEN: usize = 4;
const SUM_LEN: usize = 4;

/// Makes chunks. Each thread has one of its own, and the chunks may be sent in any order that makes sense.
pub struct Encoder {
    raw: raw::Encoder,
    /// A chunk of nothing but zeroes, which disks are full of.
    zeroes: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        let mut encoder = Self { raw: raw::Encoder::new(), zeroes: Vec::new() };
        let mut zeroes = Vec::new();
        encoder.encode(&[0; BLOCK_MAX], &mut zeroes);
        encoder.zeroes = zeroes;
        encoder
    }
}

impl Encoder {
    /// Appends `bytes` as chunks to `out`.
    pub fn encode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for block in bytes.chunks(BLOCK_MAX) {
            self.block(block, out);
        }
    }

    /// Appends chunks of `len` zeroes, as fast as memory can be copied.
    pub fn encode_zeroes(&mut self, len: u64, out: &mut Vec<u8>) {
        for _ in 0..len / BLOCK_MAX as u64 {
            out.extend_from_slice(&self.zeroes);
        }
        let rest = (len % BLOCK_MAX as u64) as usize;
        if rest > 0 {
            self.block(&[0; BLOCK_MAX][..rest], out);
        }
    }

    fn block(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let content = start + HEADER_LEN + SUM_LEN;
        out.resize(content + max_compress_len(block.len()), 0);
        // Fails only where the room is too small.
        let packed = self.raw.compress(block, &mut out[content..]).unwrap_or(usize::MAX);
        let worth_it = packed < block.len() - block.len() / 8;
        let kind = if worth_it { COMPRESSED } else { PLAIN };
        out.truncate(content + if worth_it { packed } else { 0 });
        if !worth_it {
            out.extend_from_slice(block);
        }
        let len = (out.len() - start - HEADER_LEN) as u32; // far less than 2^24
        out[start..start + HEADER_LEN].copy_from_slice(&(len << 8 | u32::from(kind)).to_le_bytes());
        out[start + HEADER_LEN..content].copy_from_slice(&masked_sum(block).to_le_bytes());
    }
}

/// CRC-32C, turned and shifted, so that a checksum of checksums still is one.
fn masked_sum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
