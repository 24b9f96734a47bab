//! The content of a compressed image, in order and in pieces.

use std::io::{self, Read};
use std::sync::Arc;

use formats::decompress::{Limits, readers};
use formats::sniff::Compression;

use super::TransferContext;
use crate::buffer::Pool;
use crate::error::Error;
use crate::parallel_gzip::{ParallelGzip, Piece};
use crate::progress::Progress;
use crate::wire::Wire;

/// Decodes all compressions around an image.
pub enum Decompressed<'a> {
    /// One gzip stream, on several threads.
    ParallelGzip(Box<ParallelGzip<&'a mut Wire>>),
    /// Anything else, on the thread that takes the pieces.
    Serial(SerialPieces<'a>),
}

impl<'a> Decompressed<'a> {
    /// The content of `wire`, without `compressions`, the outermost first.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn new(
        context: &TransferContext<'_>,
        compressions: &[Compression],
        wire: &'a mut Wire,
    ) -> Result<Self, Error> {
        if compressions == [Compression::Gzip] && context.gzip_threads > 1 {
            let buffer_len = context.pool.buffer_len();
            let gzip =
                ParallelGzip::new(wire, context.gzip_threads, buffer_len, &context.progress)?;
            return Ok(Self::ParallelGzip(Box::new(gzip)));
        }
        let reader = readers(compressions, Box::new(wire), Limits::default());
        let mut pieces = SerialPieces::new(context, reader, 0);
        pieces.decompresses = !compressions.is_empty();
        Ok(Self::Serial(pieces))
    }

    /// The next piece; `None` once all is complete and verified.
    ///
    /// # Errors
    /// See [`explain`](crate::wire::explain).
    pub fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        match self {
            Self::ParallelGzip(gzip) => gzip.next_piece(),
            Self::Serial(pieces) => pieces.next_piece(),
        }
    }
}

/// Reads into buffers of the import's pool.
pub struct SerialPieces<'a> {
    reader: Box<dyn Read + 'a>,
    pool: Arc<Pool>,
    progress: Arc<Progress>,
    at: u64,
    /// Reading is decompressing, not just copying.
    decompresses: bool,
}

impl<'a> SerialPieces<'a> {
    /// The content of `reader`, which decompresses. Its first byte belongs to address `at`.
    pub fn new(context: &TransferContext<'_>, reader: Box<dyn Read + 'a>, at: u64) -> Self {
        let (pool, progress) = (Arc::clone(&context.pool), Arc::clone(&context.progress));
        Self { reader, pool, progress, at, decompresses: true }
    }

    fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        let mut buffer = self.pool.take();
        let mut fill = || buffer.fill_from(&mut *self.reader, self.at);
        let range = if self.decompresses {
            self.progress.times().measure_decompression(fill)?
        } else {
            fill()?
        };
        self.at += range.len() as u64;
        Ok((!range.is_empty()).then_some(Piece::Data(buffer, range)))
    }
}
