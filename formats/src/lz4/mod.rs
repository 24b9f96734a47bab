//! LZ4 frames, version 1.6 of their format: one after another, some of them skippable. The legacy frames of old programs
//! are not read.
//!
//! Frames hold blocks of at most 4 MiB, which may refer to the 64 KiB before them. Every checksum that is there is verified.

mod frame;

use std::hash::Hasher;
use std::io;

use lz4_flex::block::decompress_into_with_dict;
use twox_hash::XxHash32;

use crate::Error;
use crate::decompress::{Container, Content, Next, Wire};
use crate::frames;
use frame::{BlockHeader, DataFrame};
pub(crate) use frame::{LEGACY_MAGIC, MAGIC};

const STREAM: &str = "lz4 stream";
/// Maximum distance in bytes to which a block may refer back.
const HISTORY: usize = 64 << 10;

/// An LZ4 stream: each frame is a part, none of them a unit.
pub(crate) struct Lz4 {
    any_frame: bool,
    window: u64,
    frame: Option<Decoding>,
}

/// A frame that is being decoded.
struct Decoding {
    header: DataFrame,
    checksum: XxHash32,
    len: u64,
    /// The current block as it was on the wire.
    packed: Vec<u8>,
    /// The current block decoded, of which `given` bytes were returned.
    block: Vec<u8>,
    given: usize,
    /// The content before the current block, up to [`HISTORY`] bytes; kept if blocks may refer to it.
    history: Vec<u8>,
}

impl Lz4 {
    pub(crate) fn new() -> Self {
        Self { any_frame: false, window: 0, frame: None }
    }
}

impl Container for Lz4 {
    fn next(&mut self, wire: &mut Wire<'_>) -> io::Result<Next> {
        let Some(header) = frames::find::<DataFrame>(wire, &mut self.any_frame)? else {
            return Ok(Next::End);
        };
        wire.skip(header.header_len as u64, STREAM)?;
        if header.dictionary {
            return Err(Error::Unsupported { what: STREAM, feature: "a dictionary" }.into());
        }
        self.window = self.window.max((header.block_max + HISTORY) as u64);
        self.frame = Some(Decoding::new(header));
        Ok(Next::Inline)
    }

    fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<Content> {
        let Some(frame) = &mut self.frame else { return Ok(Content::Bytes(0)) };
        while frame.given == frame.block.len() {
            if !frame.next_block(wire)? {
                self.frame = None;
                return Ok(Content::Bytes(0));
            }
        }
        let rest = &frame.block[frame.given..];
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        frame.given += len;
        Ok(Content::Bytes(len))
    }

    fn window(&self) -> u64 {
        self.window
    }
}

impl Decoding {
    fn new(header: DataFrame) -> Self {
        Self {
            header,
            checksum: XxHash32::with_seed(0),
            len: 0,
            packed: Vec::new(),
            block: Vec::new(),
            given: 0,
            history: Vec::new(),
        }
    }

    /// Decodes the next block. False: there is none, and the frame is verified.
    fn next_block(&mut self, wire: &mut Wire<'_>) -> io::Result<bool> {
        let DataFrame { block_max, linked, .. } = self.header;
        if linked {
            keep_tail(&mut self.history, &self.block);
        }
        self.block.clear();
        self.given = 0;
        let Some(header) = BlockHeader::parse(wire.array(STREAM)?) else {
            return self.check_end(wire).map(|()| false);
        };
        if header.len > block_max {
            return Err(wire.corrupt(STREAM, "a block is larger than its frame allows"));
        }
        self.packed.clear();
        wire.take(header.len, &mut self.packed, STREAM)?;
        if self.header.block_checksums {
            let expected = u32::from_le_bytes(wire.array(STREAM)?);
            if XxHash32::oneshot(0, &self.packed) != expected {
                return Err(wire.corrupt(STREAM, "the checksum of a block does not match"));
            }
        }
        if header.plain {
            std::mem::swap(&mut self.block, &mut self.packed);
        } else {
            self.block.resize(block_max, 0);
            match decompress_into_with_dict(&self.packed, &mut self.block, &self.history) {
                Ok(len) => self.block.truncate(len),
                Err(_) => return Err(wire.corrupt(STREAM, "a block cannot be decoded")),
            }
        }
        if self.header.content_checksum {
            self.checksum.write(&self.block);
        }
        self.len += self.block.len() as u64;
        if self.header.content_len.is_some_and(|len| self.len > len) {
            return Err(wire.corrupt(STREAM, "a frame holds more than it promised"));
        }
        Ok(true)
    }

    fn check_end(&self, wire: &mut Wire<'_>) -> io::Result<()> {
        if self.header.content_len.is_some_and(|len| self.len != len) {
            return Err(wire.corrupt(STREAM, "a frame holds less than it promised"));
        }
        if self.header.content_checksum
            && u32::from_le_bytes(wire.array(STREAM)?) != self.checksum.finish_32()
        {
            return Err(wire.corrupt(STREAM, "the checksum of a frame does not match its content"));
        }
        Ok(())
    }
}

/// Leaves the last [`HISTORY`] bytes of `history` and `block` in `history`.
fn keep_tail(history: &mut Vec<u8>, block: &[u8]) {
    let block = &block[block.len().saturating_sub(HISTORY)..];
    let surplus = (history.len() + block.len()).saturating_sub(HISTORY);
    history.drain(..surplus);
    history.extend_from_slice(block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_the_last_64_kib_with_any_blocks() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        for step in [1000, HISTORY - 1, HISTORY, HISTORY + 1, 150_000] {
            let mut history = Vec::new();
            let mut end = 0;
            for block in bytes.chunks(step) {
                keep_tail(&mut history, block);
                end += block.len();
                assert_eq!(history, &bytes[end.saturating_sub(HISTORY)..end], "{step}");
            }
        }
    }
}
