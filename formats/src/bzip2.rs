//! bzip2: streams one after another, each of blocks with a checksum of their own, and a checksum of them all.
//!
//! Nothing may follow the last stream. `bzip2 -d` warns of such bytes and ignores them; here they would be the lost part
//! of a disk. Blocks begin in the middle of a byte and do not contain their length, so that they are decoded in order.

use std::io;

use ::bzip2::{Decompress, Error as Refused, Status};

use crate::Error;
use crate::decompress::{Container, Content, Next, Wire};

const STREAM: &str = "bzip2 stream";
/// A digit from 1 to 9 follows: the size of the blocks.
pub(crate) const MAGIC: [u8; 3] = *b"BZh";
const HEADER_LEN: usize = 4;
/// Bytes of a block per unit of the digit. The decoder keeps four bytes for each byte of a block.
const BLOCK_UNIT: u64 = 100_000;
const BYTES_PER_ENTRY: u64 = 4;

/// Bytes of the largest block of a stream that begins with `head`. `None` if it is not bzip2.
pub(crate) fn block_size(head: &[u8]) -> Option<u64> {
    let digit = *head.strip_prefix(&MAGIC)?.first()?;
    (b'1'..=b'9').contains(&digit).then(|| u64::from(digit - b'0') * BLOCK_UNIT)
}

/// A bzip2 stream: each of the streams in it is a part, none of them a unit.
pub(crate) struct Bzip2 {
    any_stream: bool,
    window: u64,
    /// Of the current stream, until that is complete and verified.
    decoder: Option<Decompress>,
}

impl Bzip2 {
    pub(crate) fn new() -> Self {
        Self { any_stream: false, window: 0, decoder: None }
    }
}

impl Container for Bzip2 {
    fn next(&mut self, wire: &mut Wire<'_>) -> io::Result<Next> {
        let head = wire.peek(HEADER_LEN)?;
        let block_size = match (block_size(head), head) {
            (Some(size), _) => size,
            (None, []) if self.any_stream => return Ok(Next::End),
            (None, []) => return Err(Error::Empty { what: STREAM }.into()),
            (None, head) if MAGIC.starts_with(head) => return Err(wire.truncated(STREAM)),
            (None, _) if self.any_stream => {
                return Err(Error::TrailingBytes { what: STREAM, at: wire.at() }.into());
            }
            (None, _) => return Err(wire.corrupt(STREAM, "it does not begin with a header")),
        };
        self.any_stream = true;
        self.window = self.window.max(BYTES_PER_ENTRY * block_size);
        self.decoder = Some(Decompress::new(false));
        Ok(Next::Inline)
    }

    fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<Content> {
        while let Some(decoder) = &mut self.decoder {
            let input = wire.fill()?;
            let ended = input.is_empty();
            let before = (decoder.total_in(), decoder.total_out());
            let outcome = decoder.decompress(input, out);
            let consumed = (decoder.total_in() - before.0) as usize; // of `input`
            let decoded = (decoder.total_out() - before.1) as usize; // into `out`
            wire.consume(consumed);
            match outcome {
                Ok(Status::StreamEnd) => self.decoder = None,
                Ok(Status::MemNeeded) => return Err(Error::OutOfMemory { what: STREAM }.into()),
                Ok(_) if ended && decoded == 0 => return Err(wire.truncated(STREAM)),
                Ok(_) => (),
                Err(refused) => return Err(wire.corrupt(STREAM, because(refused))),
            }
            if decoded > 0 {
                return Ok(Content::Bytes(decoded));
            }
        }
        Ok(Content::Bytes(0))
    }

    fn window(&self) -> u64 {
        self.window
    }
}

fn because(refused: Refused) -> &'static str {
    match refused {
        Refused::Data => "a block or its checksum does not fit",
        Refused::DataMagic => "it does not begin with a header",
        Refused::Sequence | Refused::Param => "the decoder refuses it",
    }
}
