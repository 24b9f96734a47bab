//! Encoder of snappy's framing format, which wraps the clone streams of upstream CDI.
//!
//! ```text
//!  │ ff 06 00 00 sNaPpY │ 00 length checksum snappy │ 01 length checksum bytes │ …
//! ```
//!
//! Nothing marks the end: a stream may end after any chunk. Chunks are independent, so all cores can encode them, which
//! `snap`'s `FrameEncoder` does not support; its `FrameDecoder` decodes them. Source: snappy's `framing_format.txt`.

use snap::raw::{self, max_compress_len};

/// First bytes of a stream.
pub const IDENTIFIER: [u8; 10] = *b"\xff\x06\x00\x00sNaPpY";
/// Maximum bytes of one chunk before compression.
pub const BLOCK_MAX: usize = 1 << 16;

const COMPRESSED: u8 = 0x00;
const PLAIN: u8 = 0x01;
const HEADER_LEN: usize = 4;
const SUM_LEN: usize = 4;

/// Encodes chunks. Each thread has its own encoder.
pub struct Encoder {
    raw: raw::Encoder,
    /// An encoded chunk of zeroes, the most frequent content of disks.
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
    pub fn encode(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for block in bytes.chunks(BLOCK_MAX) {
            self.encode_block(block, out);
        }
    }

    /// Appends chunks of `len` zeroes without compressing them again.
    pub fn encode_zeroes(&mut self, len: u64, out: &mut Vec<u8>) {
        for _ in 0..len / BLOCK_MAX as u64 {
            out.extend_from_slice(&self.zeroes);
        }
        let rest = (len % BLOCK_MAX as u64) as usize;
        if rest > 0 {
            self.encode_block(&[0; BLOCK_MAX][..rest], out);
        }
    }

    fn encode_block(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let content = start + HEADER_LEN + SUM_LEN;
        out.resize(content + max_compress_len(block.len()), 0);
        // Fails only if the output is too small, and it has the maximum size.
        let packed = self.raw.compress(block, &mut out[content..]).unwrap_or(usize::MAX);
        let worth_it = packed < block.len() - block.len() / 8;
        let kind = if worth_it { COMPRESSED } else { PLAIN };
        out.truncate(content + if worth_it { packed } else { 0 });
        if !worth_it {
            out.extend_from_slice(block);
        }
        let len = (out.len() - start - HEADER_LEN) as u32; // far less than 2^24
        out[start..start + HEADER_LEN].copy_from_slice(&(len << 8 | u32::from(kind)).to_le_bytes());
        out[start + HEADER_LEN..content].copy_from_slice(&masked_checksum(block).to_le_bytes());
    }
}

/// CRC-32C, masked as the format requires, so that a CRC over data that contains CRCs stays useful.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
