//! The content of one frame, block by block, of which libzstd decodes only what is needed.
//!
//! Disks are full of zeroes, and zstd stores 128 KiB of them as a block of four bytes. Once the whole window holds nothing but
//! zeroes, another such block changes nothing that later blocks can refer to: it is counted and hashed here, and libzstd never
//! gets it. So libzstd cannot verify what depends on all blocks. It gets a header without the frame's checksum and length,
//! which are verified here. (A match that reaches beyond the window is invalid, and may be decoded to other bytes than libzstd
//! would.)

use std::io;

use ::zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

use super::STREAM;
use super::frame::{BlockHeader, DataFrame};
use super::xxh64::Xxh64;
use crate::bytes::is_zero;
use crate::decompress::{Content, Wire};

/// Bytes of a compressed block that may hold nothing but zeroes: the first one of each of the parts that `zstd -T` compresses in
/// parallel, which is never stored as a repeated byte.
const FEW: usize = 32;
/// Zeroes of one [`Content::Zeroes`], at most about as many.
const ZEROES_MAX: u64 = 1 << 30;

/// One frame that is being decoded.
pub(super) struct FrameContent {
    frame: DataFrame,
    position: Position,
    /// Of the content so far, if the frame has one.
    checksum: Option<Xxh64>,
    /// Bytes of the content so far.
    len: u64,
    /// Zeroes at the end of what libzstd has decoded.
    zeroes: u64,
}

/// What follows on the wire.
#[derive(Clone, Copy)]
enum Position {
    BlockHeader,
    /// In a block: so many compressed bytes, or none and perhaps content that libzstd still has.
    Block {
        left: usize,
        is_last: bool,
        may_be_zero: bool,
    },
    Checksum,
    End,
}

impl FrameContent {
    /// Takes the header from the wire. The decoder has decoded whole frames, if any.
    pub(super) fn take_header(
        frame: DataFrame,
        decoder: &mut DCtx<'static>,
        wire: &mut Wire<'_>,
    ) -> io::Result<Self> {
        let header = frame.take_header_without_checks(wire)?;
        give(decoder, wire, &header)?;
        let checksum = frame.has_checksum.then(Xxh64::new);
        Ok(Self { frame, position: Position::BlockHeader, checksum, len: 0, zeroes: 0 })
    }

    /// More of the content: as [`Container::read`](crate::decompress::Container::read).
    pub(super) fn read(
        &mut self,
        decoder: &mut DCtx<'static>,
        wire: &mut Wire<'_>,
        out: &mut [u8],
    ) -> io::Result<Content> {
        let mut skipped = 0;
        loop {
            match self.position {
                _ if skipped >= ZEROES_MAX => return Ok(Content::Zeroes(skipped)),
                Position::BlockHeader => skipped += self.enter_block(decoder, wire)?,
                _ if skipped > 0 => return Ok(Content::Zeroes(skipped)),
                Position::Block { left, is_last, may_be_zero } => {
                    let (consumed, decoded) = decode(decoder, wire, left, out)?;
                    let left = left - consumed;
                    self.position = if left > 0 || decoded == out.len() {
                        Position::Block { left, is_last, may_be_zero }
                    } else if is_last {
                        self.check_len(wire, decoded)?;
                        Position::Checksum
                    } else {
                        Position::BlockHeader
                    };
                    if decoded > 0 {
                        return Ok(self.add(&out[..decoded], may_be_zero));
                    }
                }
                Position::Checksum => {
                    self.check_checksum(wire)?;
                    self.position = Position::End;
                }
                Position::End => return Ok(Content::Bytes(0)),
            }
        }
    }

    /// Passes over a block that libzstd need not decode, and returns the number of its zeroes, or enters another one.
    fn enter_block(&mut self, decoder: &mut DCtx<'static>, wire: &mut Wire<'_>) -> io::Result<u64> {
        let (header, block) = BlockHeader::take(wire)?;
        let BlockHeader { is_last, stored_len, repeated_len } = block;
        if let Some(len) = repeated_len {
            let [byte] = wire.array(STREAM)?;
            if byte == 0 && !is_last && self.zeroes >= self.frame.window {
                if len > self.frame.block_max() {
                    return Err(wire.corrupt(STREAM, "a block is larger than its frame allows"));
                }
                self.add_zeroes(len);
                return Ok(len);
            }
            wire.unread(vec![byte]);
        }
        give(decoder, wire, &header)?;
        self.position =
            Position::Block { left: stored_len, is_last, may_be_zero: stored_len <= FEW };
        Ok(0)
    }

    /// What libzstd has decoded.
    fn add(&mut self, bytes: &[u8], may_be_zero: bool) -> Content {
        let len = bytes.len() as u64;
        if may_be_zero && is_zero(bytes) {
            self.zeroes += len;
            self.add_zeroes(len);
            return Content::Zeroes(len);
        }
        self.len += len;
        if let Some(checksum) = &mut self.checksum {
            checksum.write(bytes);
        }
        self.zeroes = 0;
        Content::Bytes(bytes.len())
    }

    #[cfg(test)]
    pub(super) fn decoded_zeroes(&self) -> u64 {
        self.zeroes
    }

    fn add_zeroes(&mut self, len: u64) {
        self.len += len;
        if let Some(checksum) = &mut self.checksum {
            checksum.write_zeroes(len);
        }
    }

    /// Before the last bytes are returned, of which there are `last`.
    fn check_len(&self, wire: &Wire<'_>, last: usize) -> io::Result<()> {
        match self.frame.content_len {
            Some(len) if len != self.len + last as u64 => {
                Err(wire.corrupt(STREAM, "a frame's content is not as long as its header states"))
            }
            _ => Ok(()),
        }
    }

    fn check_checksum(&self, wire: &mut Wire<'_>) -> io::Result<()> {
        let Some(checksum) = &self.checksum else { return Ok(()) };
        let stored = u32::from_le_bytes(wire.array(STREAM)?);
        if stored != checksum.finish() as u32 {
            return Err(wire.corrupt(STREAM, "the checksum of a frame does not match its content"));
        }
        Ok(())
    }
}

/// Passes on the header of the frame or of a block. No content comes out of it.
fn give(decoder: &mut DCtx<'static>, wire: &Wire<'_>, header: &[u8]) -> io::Result<()> {
    let mut input = InBuffer::around(header);
    let mut nothing = [0; 0];
    // libzstd refuses to be called without progress, so this ends.
    while input.pos() < header.len() {
        decoder
            .decompress_stream(&mut OutBuffer::around(&mut nothing[..]), &mut input)
            .map_err(|code| wire.corrupt(STREAM, get_error_name(code)))?;
    }
    Ok(())
}

/// Decodes from up to `left` bytes of the wire into `out`. Returns how many bytes were used and decoded.
fn decode(
    decoder: &mut DCtx<'static>,
    wire: &mut Wire<'_>,
    left: usize,
    out: &mut [u8],
) -> io::Result<(usize, usize)> {
    let bytes = if left == 0 { &[] } else { wire.fill()? };
    let is_truncated = left > 0 && bytes.is_empty();
    let mut input = InBuffer::around(&bytes[..left.min(bytes.len())]);
    let mut output = OutBuffer::around(out);
    let outcome = decoder.decompress_stream(&mut output, &mut input);
    let (consumed, decoded) = (input.pos(), output.pos());
    wire.consume(consumed);
    match outcome {
        Err(code) => Err(wire.corrupt(STREAM, get_error_name(code))),
        Ok(_) if is_truncated && decoded == 0 => Err(wire.truncated(STREAM)),
        Ok(_) => Ok((consumed, decoded)),
    }
}
