//! The interface of a source: bytes from an offset on, in order, with retries already done.

use std::ops::Range;

use bytes::Bytes;

/// Why a source failed after its retries. The text names the location and what was tried; the cause is its `source()`.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// What is known of a source before its body is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFacts {
    /// How messages name it: a path, or an address without credentials and query.
    pub name: String,
    /// Bytes on the wire, if known.
    pub length: Option<u64>,
    /// Any range can be read at any time, and two ranges belong to the same image (strong validator).
    pub ranges: bool,
    /// Changes whenever the bytes change: a strong ETag, or a file's size and modification time. `None`: unknown.
    pub validator: Option<String>,
    /// Number of streams that are read at a time at most: 1 for a local file, more to hide latency.
    pub streams_max: usize,
}

/// Where an image comes from. Implementations handle retries, redirects and credentials.
pub trait Source: Send + Sync {
    /// Does not change while the source is open.
    fn facts(&self) -> &SourceFacts;

    /// The bytes from `at` up to `end` (exclusive), or to the end of the image. Opening is lazy: it costs no request
    /// until the first [`ByteStream::next`]. Where `facts().ranges` is false only `at == 0` with no `end` is allowed.
    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream>;

    /// What is known of `at..end` without reading it: ascending, without gaps, from `at` on, and possibly ending early
    /// (the caller then requests the rest), but never empty. `None`: nothing is known, so all of it has to be read. The
    /// result is the same as long as the validator is.
    ///
    /// # Errors
    /// As for [`ByteStream::next`].
    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        let _ = (at, end);
        Ok(None)
    }

    /// The bytes are a guest's disk even if they look like an image: nothing is decompressed or decoded, since a guest can
    /// write anything to its disk.
    fn is_disk(&self) -> bool {
        false
    }

    /// Limits what all streams opened from now on hold together: bytes received and not yet returned by
    /// [`ByteStream::next`]. Sources that hold no more than one chunk for each stream need not do anything.
    fn limit_receive_memory(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Whether the same bytes can be read again. False for a pipe.
    fn can_reopen(&self) -> bool {
        true
    }
}

/// A range of a source, and what is known of it. See [`Source::extents`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offsets in the source.
    pub range: Range<u64>,
    /// Content.
    pub kind: ExtentKind,
}

/// Content of an [`Extent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Bytes to be read.
    Data,
    /// Zeroes, which need no reading.
    Zero,
    /// Bytes that an earlier import has written to the target. Only in a [delta](crate::Delta).
    Unchanged,
}

/// Bytes of an image in order. Dropping it ends the transfer.
pub trait ByteStream: Send {
    /// Blocks for the next bytes, never empty. `None` only when all requested bytes, or all that the source announced,
    /// have been returned. A connection that ends earlier is an error.
    ///
    /// # Errors
    /// When retries are used up, the source refused, or the image changed. The stream has then ended.
    fn next(&mut self) -> Result<Option<Bytes>, SourceError>;
}
