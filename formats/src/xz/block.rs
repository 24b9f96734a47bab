//! Decoding one block with liblzma.

use std::io;

use liblzma::stream::{Action, Error as LzmaError, IGNORE_CHECK, Stream};

use super::check::Check;
use super::header::{BlockHeader, StreamHeader};
use super::index::BlockTally;
use super::lzma2::BlockWalk;
use super::{STEP, STREAM};
use crate::Error;
use crate::decompress::{Container, Content, Limits, Next, Wire};

/// A block passing through liblzma.
///
/// The decoder of whole streams is used: it gets the stream's header and then this block, and verifies the block's
/// lengths. It never sees what follows, and is dropped.
pub(super) struct BlockDecoder {
    header: BlockHeader,
    walk: BlockWalk,
    decoder: Stream,
    check: Check,
}

impl BlockDecoder {
    pub(super) fn new(stream: &StreamHeader, header: BlockHeader) -> Result<Self, Error> {
        // The size of the dictionary was checked with the header, and everything else is small.
        let no_limit = u64::MAX;
        let mut decoder = Stream::new_stream_decoder(no_limit, IGNORE_CHECK)
            .map_err(|_| Error::OutOfMemory { what: STREAM })?;
        decoder
            .process(&stream.bytes(), &mut [], Action::Run)
            .map_err(|_| Error::OutOfMemory { what: STREAM })?;
        let walk = BlockWalk::new(&header, stream.check());
        Ok(Self { header, walk, decoder, check: stream.check().start() })
    }

    /// Decodes more of the block. 0: all of it was decoded and verified.
    pub(super) fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut walk = self.walk.clone();
            let mut input = if walk.is_over() { &[] } else { wire.fill()? };
            let truncated = input.is_empty() && !walk.is_over();
            input = &input[..input.len().min(STEP)];
            match walk.advance(input) {
                Ok(n) => input = &input[..n],
                Err(because) => return Err(wire.corrupt(STREAM, because)),
            }
            let (in_before, out_before) = (self.decoder.total_in(), self.decoder.total_out());
            let outcome = self.decoder.process(input, out, Action::Run);
            let consumed = (self.decoder.total_in() - in_before) as usize;
            let decoded = (self.decoder.total_out() - out_before) as usize;
            if consumed < input.len() {
                walk = self.walk.clone();
                walk.advance(&input[..consumed])
                    .map_err(|because| wire.corrupt(STREAM, because))?;
            }
            self.walk = walk;
            wire.consume(consumed);
            match outcome {
                Ok(_) if decoded > 0 => {
                    self.check.update(&out[..decoded]);
                    return Ok(decoded);
                }
                Ok(_) if truncated => return Err(wire.truncated(STREAM)),
                Ok(_) if consumed > 0 => (),
                Ok(_) if self.walk.is_over() && self.check.matches(self.walk.check()) => {
                    return Ok(0);
                }
                Ok(_) if self.walk.is_over() => {
                    return Err(
                        wire.corrupt(STREAM, "the check of a block does not match its content")
                    );
                }
                Ok(_) => return Err(wire.corrupt(STREAM, "a block goes on behind its end")),
                Err(LzmaError::Mem) => return Err(Error::OutOfMemory { what: STREAM }.into()),
                Err(LzmaError::Options) => {
                    return Err(
                        Error::Unsupported { what: STREAM, feature: "an unknown filter" }.into()
                    );
                }
                Err(_) => return Err(wire.corrupt(STREAM, "a block is invalid")),
            }
        }
    }

    /// Counts the block that was read to its end.
    pub(super) fn enter(&self, tally: &mut BlockTally) -> Result<(), &'static str> {
        tally.add(&self.walk, &self.header)
    }
}

/// What a unit holds: the header of a stream and one of its blocks.
pub(crate) struct LoneBlock {
    limits: Limits,
    decoder: Option<BlockDecoder>,
}

impl LoneBlock {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, decoder: None }
    }
}

impl Container for LoneBlock {
    fn next(&mut self, wire: &mut Wire<'_>) -> io::Result<Next> {
        if self.decoder.is_some() && wire.is_at_end()? {
            return Ok(Next::End);
        }
        let stream = StreamHeader::read(wire)?;
        let Some(header) = BlockHeader::peek(wire)? else {
            return Err(wire.corrupt(STREAM, "a block is missing"));
        };
        header.admit(self.limits)?;
        self.decoder = Some(BlockDecoder::new(&stream, header)?);
        Ok(Next::Inline)
    }

    fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<Content> {
        self.decoder.as_mut().map_or(Ok(0), |decoder| decoder.read(wire, out)).map(Content::Bytes)
    }

    fn window(&self) -> u64 {
        self.limits.window_max
    }
}
