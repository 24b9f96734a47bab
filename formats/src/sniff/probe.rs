//! What a stream holds under all its compressions, from a prefix of it.

use std::io::{self, BufRead, Read};

use super::{Compression, ImageFormat, Sniffed, sniff};
use crate::Error;
use crate::decompress::{Limits, Serial};

/// Bytes kept of what one compression yields.
const YIELD_MAX: u64 = 1 << 20;

/// What a stream is, seen through its compressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedHead {
    /// To be undone in this order: the outermost first.
    pub compressions: Vec<Compression>,
    /// What is left then.
    pub image: ImageFormat,
    /// The first bytes of the image: as many as the prefix yields, at most 1 MiB where something is compressed.
    pub image_head: Vec<u8>,
    /// Bytes of history that the decoders need at most. 0: nothing is compressed.
    pub window: u64,
}

/// Recognises a stream by `head`, its first bytes: 256 KiB are enough for every ordinary stream. `whole`: nothing
/// follows them.
///
/// A name is undone only once: the inner one of two gzips is the image's own business, and the image is raw.
///
/// # Errors
/// [`Error::Empty`] when there is nothing, at whatever depth. Whatever is wrong behind a good magic number:
/// such a stream is never taken for a raw disk. [`Error::WindowTooLarge`] beyond the default [`Limits`].
/// [`Error::HeadTooShort`] when `head` is too short. [`Error::Foreign`] for known formats that are not supported.
pub fn probe_head(head: &[u8], whole: bool) -> Result<ProbedHead, Error> {
    probe_head_up_to(head, whole, YIELD_MAX)
}

/// As [`probe_head`], but keeps up to `yield_max` bytes of what a compression yields.
///
/// # Errors
/// As [`probe_head`].
pub fn probe_head_up_to(head: &[u8], whole: bool, yield_max: u64) -> Result<ProbedHead, Error> {
    let mut look = ProbedHead {
        compressions: Vec::new(),
        image: ImageFormat::Raw,
        image_head: Vec::new(),
        window: 0,
    };
    let mut layer = Layer { bytes: head.to_vec(), whole };
    loop {
        if layer.bytes.is_empty() {
            return Err(match look.compressions.last() {
                Some(outer) if !layer.whole => {
                    Error::HeadTooShort { what: outer.stream(), bytes: head.len() }
                }
                None if !layer.whole => Error::HeadTooShort { what: "image", bytes: 0 },
                _ => Error::Empty { what: "image" },
            });
        }
        match sniff(&layer.bytes) {
            Sniffed::Compressed(kind) if !look.compressions.contains(&kind) => {
                look.compressions.push(kind);
                let (inner, window) = layer.undo(kind, yield_max)?;
                look.window = look.window.max(window);
                layer = inner;
            }
            Sniffed::Compressed(_) => break,
            Sniffed::Foreign(foreign) => return Err(Error::Foreign(foreign)),
            Sniffed::Image(image) => {
                look.image = image;
                break;
            }
        }
    }
    look.image_head = layer.bytes;
    Ok(look)
}

/// The first bytes under some compressions, or all of them.
struct Layer {
    bytes: Vec<u8>,
    whole: bool,
}

impl Layer {
    /// One layer deeper, and the window that it takes to get there.
    fn undo(&self, kind: Compression, yield_max: u64) -> Result<(Self, u64), Error> {
        let prefix = Prefix { rest: &self.bytes, whole: self.whole };
        let mut decoder = Serial::new(kind, Box::new(prefix), Limits::default());
        let mut bytes = Vec::new();
        let outcome = decoder.by_ref().take(yield_max).read_to_end(&mut bytes);
        let window = decoder.window();
        let whole = match outcome {
            // Exactly as many may be all there is; to call it a part is the safe side.
            Ok(_) => (bytes.len() as u64) < yield_max,
            Err(error) => match error.downcast::<Error>() {
                Ok(damage) => return Err(damage),
                Err(_prefix_ended) => false,
            },
        };
        Ok((Self { bytes, whole }, window))
    }
}

/// A part of a stream: where it ends, more would follow.
struct Prefix<'a> {
    rest: &'a [u8],
    whole: bool,
}

impl Read for Prefix<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(out)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Prefix<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.rest.is_empty() && !self.whole {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(self.rest)
    }

    fn consume(&mut self, n: usize) {
        self.rest = &self.rest[n..];
    }
}
