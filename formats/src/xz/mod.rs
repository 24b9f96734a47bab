//! The .xz format, version 1.2: streams one after another, each of them blocks, an index of the blocks, and a footer.
//!
//! liblzma decodes the blocks, one at a time. The framing around them is walked here, because LZMA2 data contains its
//! compressed and decoded lengths chunk by chunk: every block's end can be found without decoding it, whether or not
//! its header has the sizes. A block is then a unit like any other.

mod block;
mod check;
mod header;
mod index;
mod lzma2;

use std::io;

pub(crate) use block::LoneBlock;

use crate::Error;
use crate::decompress::{Container, Content, Limits, Next, Wire};
use crate::sniff::Compression;
use crate::units::CompressedUnit;
use block::BlockDecoder;
use header::{BlockHeader, STREAM_MAGIC, StreamHeader};
use index::BlockTally;
use lzma2::BlockWalk;

const STREAM: &str = "xz stream";
/// Bytes of input that are examined at once.
const STEP: usize = 256 * 1024;

/// An xz stream: each block is a part; units are blocks.
pub(crate) struct Xz {
    limits: Limits,
    unit_max: usize,
    window: u64,
    place: DecodePosition,
}

/// What comes next on the wire.
enum DecodePosition {
    FirstStream,
    PaddingOrStream,
    BlockOrIndex(StreamHeader, BlockTally),
    InBlock(StreamHeader, BlockTally, Box<BlockDecoder>),
}

impl Xz {
    pub(crate) fn new(limits: Limits, unit_max: usize) -> Self {
        Self { limits, unit_max, window: 0, place: DecodePosition::FirstStream }
    }

    /// The header of the next block, or `None` when the index comes.
    fn block_header(&mut self, wire: &mut Wire<'_>) -> io::Result<Option<BlockHeader>> {
        let header = BlockHeader::peek(wire)?;
        if let Some(header) = &header {
            self.window = self.window.max(header.window);
            header.admit(self.limits)?;
        }
        Ok(header)
    }

    /// Takes a block as a whole. `None`: it is too large, and still on the wire.
    fn take_unit(
        &self,
        stream: StreamHeader,
        header: &BlockHeader,
        tally: &mut BlockTally,
        wire: &mut Wire<'_>,
    ) -> io::Result<Option<CompressedUnit>> {
        let packed_len = usize::try_from(header.packed_len.unwrap_or(0)).unwrap_or(usize::MAX);
        if packed_len > self.unit_max {
            return Ok(None);
        }
        let mut bytes = stream.bytes().to_vec();
        let before = bytes.len();
        let at = wire.at() - before as u64; // as if the stream's header stood there
        bytes.reserve_exact(packed_len);
        let mut walk = BlockWalk::new(header, stream.check());
        while !walk.is_over() {
            let input = wire.fill()?;
            if input.is_empty() {
                return Err(wire.truncated(STREAM));
            }
            let input = &input[..input.len().min(STEP)];
            let n = walk.advance(input).map_err(|because| wire.corrupt(STREAM, because))?;
            let input = &wire.fill()?[..n];
            bytes.extend_from_slice(input);
            wire.consume(n);
            if bytes.len() - before > self.unit_max {
                wire.unread(bytes.split_off(before));
                return Ok(None);
            }
        }
        tally.add(&walk, header).map_err(|because| wire.corrupt(STREAM, because))?;
        let (kind, decoded_len, window) = (Compression::Xz, walk.unpacked_len(), header.window);
        Ok(Some(CompressedUnit { kind, at, bytes, decoded_len, window, limits: self.limits }))
    }
}

impl Container for Xz {
    fn next(&mut self, wire: &mut Wire<'_>) -> io::Result<Next> {
        loop {
            let (stream, mut tally) =
                match std::mem::replace(&mut self.place, DecodePosition::FirstStream) {
                    DecodePosition::FirstStream => {
                        if wire.is_at_end()? {
                            return Err(Error::Empty { what: STREAM }.into());
                        }
                        (StreamHeader::read(wire)?, BlockTally::default())
                    }
                    DecodePosition::PaddingOrStream => {
                        if !find_stream(wire)? {
                            return Ok(Next::End);
                        }
                        (StreamHeader::read(wire)?, BlockTally::default())
                    }
                    DecodePosition::BlockOrIndex(stream, tally)
                    | DecodePosition::InBlock(stream, tally, _) => (stream, tally),
                };
            let Some(header) = self.block_header(wire)? else {
                tally.check_index(wire)?;
                stream.check_footer(wire, tally.index_len())?;
                self.place = DecodePosition::PaddingOrStream;
                continue;
            };
            if self.unit_max > 0
                && let Some(unit) = self.take_unit(stream, &header, &mut tally, wire)?
            {
                self.place = DecodePosition::BlockOrIndex(stream, tally);
                return Ok(Next::Unit(unit));
            }
            let decoder = Box::new(BlockDecoder::new(&stream, header)?);
            self.place = DecodePosition::InBlock(stream, tally, decoder);
            return Ok(Next::Inline);
        }
    }

    fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<Content> {
        let DecodePosition::InBlock(_, tally, decoder) = &mut self.place else {
            return Ok(Content::Bytes(0));
        };
        let n = decoder.read(wire, out)?;
        if n == 0 {
            decoder.enter(tally).map_err(|because| wire.corrupt(STREAM, because))?;
        }
        Ok(Content::Bytes(n))
    }

    fn window(&self) -> u64 {
        self.window
    }
}

/// Passes over padding. Whether another stream follows.
fn find_stream(wire: &mut Wire<'_>) -> io::Result<bool> {
    let padding = wire.skip_zeroes()?;
    let start = wire.peek(STREAM_MAGIC.len())?;
    let (ends, begins) = (start.is_empty(), STREAM_MAGIC.starts_with(start));
    if !begins {
        return Err(Error::TrailingBytes { what: STREAM, at: wire.at() }.into());
    }
    if padding % 4 != 0 {
        if ends {
            return Err(wire.truncated(STREAM));
        }
        return Err(wire.corrupt(STREAM, "its padding is not a multiple of four bytes"));
    }
    Ok(!ends)
}

/// Whether a stream begins with a block that can become a unit.
pub(crate) fn begins_with_unit(head: &[u8], unit_max: usize) -> bool {
    let Some((stream, rest)) = StreamHeader::parse(head) else { return false };
    let Some(Ok(header)) = BlockHeader::parse(rest) else { return false };
    match header.packed_len {
        Some(len) => len <= unit_max as u64,
        None => {
            let mut walk = BlockWalk::new(&header, stream.check());
            walk.advance(rest).is_ok() && walk.is_over()
        }
    }
}
