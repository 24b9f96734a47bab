//! Undoing one compression, or several around each other, as a stream.
//!
//! Each format is a `Container`: it walks the framing (members, blocks, frames), verifies it, and decodes what lies
//! between. Read one after another these parts are a plain [`reader`]; [`units`](crate::units) hands those that can be
//! decoded on their own to other threads.

mod wire;

use std::io::{self, BufRead, BufReader, Read};

pub(crate) use wire::{Ahead, Wire};

use crate::sniff::Compression;
use crate::units::CompressedUnit;
use crate::{Error, bzip2, gzip, lz4, xz, zstd};

/// What a stream may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of history that one decoder may keep (an xz dictionary, a zstd window). A stream that needs more is
    /// refused before it is decoded.
    pub window_max: u64,
    /// Compressed bytes that one [`CompressedUnit`] may hold.
    pub unit_max: usize,
}

impl Default for Limits {
    /// 128 MiB of history: what `zstd --long` and `--ultra -22` need, and twice of `xz -9`.
    /// 25 MiB a unit: a block of `xz -6` holds 24 MiB, which may not have become smaller.
    fn default() -> Self {
        Self { window_max: 1 << 27, unit_max: 25 << 20 }
    }
}

/// What one read of a [`ContentReader`] yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// So many bytes at the beginning of the buffer. 0: the content ends.
    Bytes(usize),
    /// So many zeroes, which are not in the buffer: more than none.
    Zeroes(u64),
}

/// A reader that need not write long runs of zeroes to memory.
pub trait ContentReader: Read {
    /// As [`Read::read`], except for [`Content::Zeroes`]. The bytes of `out` behind the content are undefined.
    ///
    /// # Errors
    /// As [`Read::read`].
    fn read_content(&mut self, out: &mut [u8]) -> io::Result<Content>;
}

/// Undoes one compression.
///
/// The reader ends with `Ok(0)` only after everything was complete and every checksum of the format agreed. Large
/// buffers are worth it: it decodes straight into them.
///
/// What follows a complete stream: nothing, more members, streams or frames, or the padding that the format knows
/// (zero bytes after gzip, multiples of four of them around xz streams, skippable frames of zstd and lz4). Anything else is
/// [`Error::TrailingBytes`].
///
/// Errors of `input` come through unchanged. What is wrong with the stream is an [`Error`] inside the [`io::Error`].
pub fn reader<'a>(
    kind: Compression,
    input: Box<dyn BufRead + Send + 'a>,
    limits: Limits,
) -> Box<dyn ContentReader + Send + 'a> {
    Box::new(Serial::new(kind, input, limits))
}

/// Undoes several compressions, the outermost first.
pub fn readers<'a>(
    kinds: &[Compression],
    input: Box<dyn BufRead + Send + 'a>,
    limits: Limits,
) -> Box<dyn ContentReader + Send + 'a> {
    const BETWEEN: usize = 256 * 1024; // a level-2 cache holds it together with its neighbours
    match kinds {
        [] => Box::new(Uncompressed(input)),
        [inner] => reader(*inner, input, limits),
        [outer, rest @ ..] => {
            let yields = reader(*outer, input, limits);
            readers(rest, Box::new(BufReader::with_capacity(BETWEEN, yields)), limits)
        }
    }
}

/// Content that is not compressed.
struct Uncompressed<R>(R);

impl<R: Read> Read for Uncompressed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl<R: Read> ContentReader for Uncompressed<R> {
    fn read_content(&mut self, out: &mut [u8]) -> io::Result<Content> {
        self.0.read(out).map(Content::Bytes)
    }
}

/// A compressed format as a row of parts.
pub(crate) trait Container: Send {
    /// Verifies what lies between two parts and enters the next one.
    fn next(&mut self, wire: &mut Wire<'_>) -> io::Result<Next>;

    /// Decodes more of the part entered as [`Next::Inline`] into `out`, which is not empty. No bytes: the part is complete
    /// and verified.
    fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<Content>;

    /// Bytes of history that any part so far needed.
    fn window(&self) -> u64;
}

/// What a [`Container`] found.
pub(crate) enum Next {
    /// A part that was taken from the wire as a whole.
    Unit(CompressedUnit),
    /// A part that has to be decoded where it is.
    Inline,
    /// The stream is complete and verified.
    End,
}

/// A container and how far it has come.
pub(crate) struct Walk<C: ?Sized = dyn Container> {
    kind: Compression,
    container: Box<C>,
    ahead: Ahead,
    state: ReadState,
    /// Zeroes of the inline part that were decoded and not returned yet.
    zeroes: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum ReadState {
    Between,
    Inside,
    Ended,
    Failed,
}

impl Walk {
    /// Hands out units of up to `unit_max` compressed bytes; 0: everything inline.
    pub(crate) fn new(kind: Compression, limits: Limits, unit_max: usize) -> Self {
        let container: Box<dyn Container> = match kind {
            Compression::Gzip => Box::new(gzip::Gzip::new(unit_max)),
            Compression::Xz => Box::new(xz::Xz::new(limits, unit_max)),
            Compression::Zstd => Box::new(zstd::Zstd::new(limits, unit_max)),
            Compression::Bzip2 => Box::new(bzip2::Bzip2::new()),
            Compression::Lz4 => Box::new(lz4::Lz4::new()),
        };
        Self::over(kind, container)
    }
}

impl<C: Container + ?Sized> Walk<C> {
    pub(crate) fn over(kind: Compression, container: Box<C>) -> Self {
        Self { kind, container, ahead: Ahead::default(), state: ReadState::Between, zeroes: 0 }
    }

    /// The same, whose input is what lies behind so many bytes of the stream.
    pub(crate) fn beginning_at(self, at: u64) -> Self {
        Self { ahead: Ahead::beginning_at(at), ..self }
    }

    /// The next part. An inline part that was not read to its end is entered again where it was left.
    pub(crate) fn next(&mut self, input: &mut dyn BufRead) -> io::Result<Next> {
        match self.state {
            ReadState::Inside => return Ok(Next::Inline),
            ReadState::Ended => return Ok(Next::End),
            ReadState::Failed => return Err(self.failed_before()),
            ReadState::Between => (),
        }
        let next = self.container.next(&mut Wire::new(&mut self.ahead, input));
        self.state = match &next {
            Ok(Next::Unit(_)) => ReadState::Between,
            Ok(Next::Inline) => ReadState::Inside,
            Ok(Next::End) => ReadState::Ended,
            Err(_) => ReadState::Failed,
        };
        next
    }

    /// More of the inline part. No bytes: it is complete.
    pub(crate) fn read_content(
        &mut self,
        input: &mut dyn BufRead,
        out: &mut [u8],
    ) -> io::Result<Content> {
        match self.state {
            ReadState::Inside if !out.is_empty() => (),
            ReadState::Failed => return Err(self.failed_before()),
            _ => return Ok(Content::Bytes(0)),
        }
        if self.zeroes > 0 {
            return Ok(Content::Zeroes(std::mem::take(&mut self.zeroes)));
        }
        let read = self.container.read(&mut Wire::new(&mut self.ahead, input), out);
        match &read {
            Ok(Content::Bytes(0)) => self.state = ReadState::Between,
            Ok(_) => (),
            Err(_) => self.state = ReadState::Failed,
        }
        read
    }

    /// As [`read_content`](Self::read_content), with all bytes in `out`.
    pub(crate) fn read(&mut self, input: &mut dyn BufRead, out: &mut [u8]) -> io::Result<usize> {
        self.read_content(input, out).map(|content| self.fill(content, out))
    }

    /// Puts the zeroes of `content` into `out`, and keeps the number of those that do not fit.
    fn fill(&mut self, content: Content, out: &mut [u8]) -> usize {
        match content {
            Content::Bytes(n) => n,
            Content::Zeroes(zeroes) => {
                let n = usize::try_from(zeroes).unwrap_or(usize::MAX).min(out.len());
                out[..n].fill(0);
                self.zeroes = zeroes - n as u64;
                n
            }
        }
    }

    pub(crate) fn window(&self) -> u64 {
        self.container.window()
    }

    /// The container, while an inline part of it is being read.
    pub(crate) fn inline(&mut self) -> Option<&mut C> {
        (self.state == ReadState::Inside).then_some(&mut *self.container)
    }

    pub(crate) fn ahead(&mut self) -> &mut Ahead {
        &mut self.ahead
    }

    pub(crate) fn parts(&mut self) -> (&mut Ahead, &mut C) {
        (&mut self.ahead, &mut self.container)
    }

    /// The position on the wire.
    pub(crate) fn at(&self) -> u64 {
        self.ahead.at()
    }

    /// A caller that continues after an error must not get bytes that look valid.
    fn failed_before(&self) -> io::Error {
        let because = "it was refused before";
        Error::Corrupt { what: self.kind.stream(), at: self.ahead.at(), because }.into()
    }
}

/// All parts of a stream, one after another.
pub(crate) struct Serial<'a> {
    walk: Walk,
    input: Box<dyn BufRead + Send + 'a>,
}

impl<'a> Serial<'a> {
    pub(crate) fn new(
        kind: Compression,
        input: Box<dyn BufRead + Send + 'a>,
        limits: Limits,
    ) -> Self {
        Self { walk: Walk::new(kind, limits, 0), input }
    }

    /// As [`Container::window`].
    pub(crate) fn window(&self) -> u64 {
        self.walk.window()
    }
}

impl Read for Serial<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        read_all_parts(&mut self.walk, &mut *self.input, out)
    }
}

impl ContentReader for Serial<'_> {
    fn read_content(&mut self, out: &mut [u8]) -> io::Result<Content> {
        read_content_of_all_parts(&mut self.walk, &mut *self.input, out)
    }
}

/// One `read` of a stream all of whose parts are inline.
pub(crate) fn read_all_parts<C: Container + ?Sized>(
    walk: &mut Walk<C>,
    input: &mut dyn BufRead,
    out: &mut [u8],
) -> io::Result<usize> {
    read_content_of_all_parts(walk, input, out).map(|content| walk.fill(content, out))
}

fn read_content_of_all_parts<C: Container + ?Sized>(
    walk: &mut Walk<C>,
    input: &mut dyn BufRead,
    out: &mut [u8],
) -> io::Result<Content> {
    if out.is_empty() {
        return Ok(Content::Bytes(0));
    }
    loop {
        match walk.read_content(input, out)? {
            Content::Bytes(0) => match walk.next(input)? {
                Next::Inline => (),
                Next::End => return Ok(Content::Bytes(0)),
                Next::Unit(_) => unreachable!("no units were requested"),
            },
            content => return Ok(content),
        }
    }
}
