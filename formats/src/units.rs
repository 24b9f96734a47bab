//! Streams of parts that can be decoded on their own, for more than one thread.
//!
//! A [`Splitter`] reads the compressed stream on one thread, cuts it into parts without decoding them, and verifies
//! everything around them. Most parts come as a [`CompressedUnit`]: it owns its bytes, knows how much it decodes to and thereby
//! where the next one's content begins, and can be decoded on any thread. What is too large, or does not contain its
//! length, is decoded inline.
//!
//! | stream | units |
//! |---|---|
//! | xz | every block that is small enough; its end and length are found by walking over its chunks |
//! | zstd | frames with the length of their content, small ones in groups: concatenated and seekable files |
//! | gzip | members as bgzip writes them, in groups |
//! | bzip2, lz4 | none: all is decoded inline |

use std::io::{self, BufRead, Read};

use crate::Error;
use crate::decompress::{Container, Content, ContentReader, Limits, Next, Walk, read_all_parts};
use crate::sniff::Compression;
use crate::{gzip, xz, zstd};

/// Small members and frames are put together until they hold as much as this, decoded.
pub(crate) const GROUP_BYTES: u64 = 1 << 20;

/// Cuts a compressed stream into parts.
pub struct Splitter {
    walk: Walk,
}

/// The next piece of a stream's content.
pub enum Part<'a> {
    /// To be decoded anywhere, in any order.
    Unit(CompressedUnit),
    /// To be decoded here, to its end, before the next part can be had.
    Inline(Inline<'a>),
}

impl Splitter {
    /// A splitter for the beginning of a stream. Units hold at most [`Limits::unit_max`] compressed bytes.
    pub fn new(kind: Compression, limits: Limits) -> Self {
        Self { walk: Walk::new(kind, limits, limits.unit_max) }
    }

    /// The next part, in the order of the stream. `None`: the stream is complete, and everything outside of its units
    /// is verified. An [`Inline`] part that was not read to its end is returned again, to continue with.
    ///
    /// # Errors
    /// As [`decompress::reader`](crate::decompress::reader): those of `input` unchanged, those of the stream as
    /// [`Error`] inside.
    pub fn next<'a>(&'a mut self, input: &'a mut dyn BufRead) -> io::Result<Option<Part<'a>>> {
        Ok(match self.walk.next(input)? {
            Next::Unit(unit) => Some(Part::Unit(unit)),
            Next::Inline => Some(Part::Inline(Inline { walk: &mut self.walk, input })),
            Next::End => None,
        })
    }
}

/// A part that is decoded where it is. Ends with `Ok(0)` once it is complete and verified.
pub struct Inline<'a> {
    walk: &'a mut Walk,
    input: &'a mut dyn BufRead,
}

impl ContentReader for Inline<'_> {
    fn read_content(&mut self, out: &mut [u8]) -> io::Result<Content> {
        self.walk.read_content(self.input, out)
    }
}

impl Read for Inline<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.walk.read(self.input, out)
    }
}

/// A part that can be decoded without the others.
#[derive(Debug)]
pub struct CompressedUnit {
    pub(crate) kind: Compression,
    /// Where `bytes` begin in the stream, for messages.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) decoded_len: u64,
    pub(crate) window: u64,
    pub(crate) limits: Limits,
}

impl CompressedUnit {
    /// Bytes that it decodes to: exactly as many, or the reader fails.
    pub fn decoded_len(&self) -> u64 {
        self.decoded_len
    }

    /// Bytes of memory that it holds.
    pub fn compressed_len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of history that its decoder keeps: memory for as long as the reader lives.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Decodes it. The last byte is returned only when everything was verified.
    pub fn reader(&self) -> UnitReader<'_> {
        let walk = match self.kind {
            Compression::Xz => {
                Walk::<dyn Container>::over(self.kind, Box::new(xz::LoneBlock::new(self.limits)))
            }
            _ => Walk::new(self.kind, self.limits, 0),
        };
        let walk = walk.beginning_at(self.at);
        let left = self.decoded_len;
        UnitReader { kind: self.kind, walk, rest: &self.bytes, left, verified: false }
    }
}

/// Reads the content of a [`CompressedUnit`].
pub struct UnitReader<'a> {
    kind: Compression,
    walk: Walk,
    rest: &'a [u8],
    left: u64,
    /// Nothing came behind the last of them.
    verified: bool,
}

impl UnitReader<'_> {
    fn verify_end(&mut self) -> io::Result<()> {
        if self.left == 0 && !self.verified {
            if read_all_parts(&mut self.walk, &mut self.rest, &mut [0])? > 0 {
                return Err(self.wrong_length("a part holds more than it promised"));
            }
            self.verified = true;
        }
        Ok(())
    }

    fn wrong_length(&self, because: &'static str) -> io::Error {
        Error::Corrupt { what: self.kind.stream(), at: self.walk.at(), because }.into()
    }
}

impl Read for UnitReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        self.verify_end()?; // of a unit that holds nothing
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let n = read_all_parts(&mut self.walk, &mut self.rest, &mut out[..most])?;
        if n == 0 && most > 0 {
            return Err(self.wrong_length("a part holds less than it promised"));
        }
        self.left -= n as u64;
        self.verify_end()?;
        Ok(n)
    }
}

/// Whether the first part of a stream can be a unit: then a [`Splitter`] and several threads are worth it. `head`: the
/// first bytes of the stream, the more the better up to 256 KiB.
pub fn worth_splitting(kind: Compression, head: &[u8], limits: Limits) -> bool {
    match kind {
        Compression::Gzip => gzip::begins_with_bgzf(head),
        Compression::Xz => xz::begins_with_unit(head, limits.unit_max),
        Compression::Zstd => zstd::begins_with_unit(head, limits.unit_max),
        Compression::Bzip2 | Compression::Lz4 => false,
    }
}
