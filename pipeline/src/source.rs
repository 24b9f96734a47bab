//! What the pipeline asks of a source: bytes from a position on, in order, with retries already done.

use std::ops::Range;

use bytes::Bytes;

/// Why a source gave up, retries included. The text names the place and what was tried; the cause is its `source()`.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// What is known of a source before its body is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFacts {
    /// How messages name it: a path, or an address without credentials and query.
    pub name: String,
    /// Bytes on the wire, where the source says so.
    pub length: Option<u64>,
    /// Any part can be asked for at any time, and two answers are parts of the same image (strong validator).
    pub ranges: bool,
    /// What changes whenever the bytes change: a strong ETag, or a file's size and time of change. `None`: unknown.
    pub validator: Option<String>,
    /// How many streams it is worth to read at a time: 1 for a local file, more where latency is to be hidden.
    pub streams_max: usize,
}

/// Somewhere an image comes from. Retries, redirects and credentials are its own business.
pub trait Source: Send + Sync {
    /// What is known of it. Does not change while it is open.
    fn facts(&self) -> &SourceFacts;

    /// The bytes from `at` up to `end` (exclusive), or to the end of the image. Opening is lazy: it costs no request
    /// until the first [`ByteStream::next`]. Where `facts().ranges` is false only `at == 0` with no `end` is allowed.
    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream>;

    /// What is known of `at..end` without reading it: ascending, without gaps, from `at` on, and possibly ending early
    /// (then the rest is asked for anew), but never empty. `None`: nothing is known, so all of it has to be read. The
    /// same question has the same answer as long as the validator is the same.
    ///
    /// # Errors
    /// As for [`ByteStream::next`].
    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        let _ = (at, end);
        Ok(None)
    }

    /// The bytes are a guest's disk whatever they look like: nothing is decompressed or decoded, for a guest can make
    /// its disk look like anything.
    fn is_disk(&self) -> bool {
        false
    }

    /// The same bytes can be had again. Not so from a pipe.
    fn can_reopen(&self) -> bool {
        true
    }
}

/// A stretch of a source, and what is known of it. See [`Source::extents`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it is.
    pub range: Range<u64>,
    /// What it holds.
    pub kind: ExtentKind,
}

/// What an [`Extent`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Bytes to be read.
    Data,
    /// Zeroes, which need no reading.
    Zero,
    /// What an earlier import has put into the target already. Only in a [delta](crate::Delta).
    Unchanged,
}

/// Bytes of an image in order. Dropping it ends the transfer.
pub trait ByteStream: Send {
    /// Blocks for the next bytes, never empty; `None` only at the true end: all that was asked for, or all that the
    /// source announced, has been handed over. A connection that merely ended is an error.
    ///
    /// # Errors
    /// When retries are used up, the source refused, or it changed in the middle. The stream is then finished.
    fn next(&mut self) -> Result<Option<Bytes>, SourceError>;
}
