//! What the pipeline asks of a source: bytes from a position on, in order, with retries already done.

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

    /// The same bytes can be had again. Not so from a pipe.
    fn can_reopen(&self) -> bool {
        true
    }
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
