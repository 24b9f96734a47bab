//! The content of a compressed image, in order and in pieces.

use std::io;
use std::sync::Arc;

use formats::decompress::{Content, ContentReader, Limits, readers};
use formats::sniff::Compression;

use super::TransferContext;
use crate::error::Error;
use crate::parallel_gzip::ParallelGzip;
use crate::pieces::{Piece, PieceWriter};
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
    reader: Box<dyn ContentReader + 'a>,
    writer: PieceWriter,
    progress: Arc<Progress>,
    /// Reading is decompressing, not just copying.
    decompresses: bool,
    has_ended: bool,
}

impl<'a> SerialPieces<'a> {
    /// The content of `reader`, which decompresses. Its first byte belongs to address `at`.
    pub fn new(
        context: &TransferContext<'_>,
        reader: Box<dyn ContentReader + 'a>,
        at: u64,
    ) -> Self {
        let writer = PieceWriter::new(&context.pool, at);
        let progress = Arc::clone(&context.progress);
        Self { reader, writer, progress, decompresses: true, has_ended: false }
    }

    fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        loop {
            if let Some(piece) = self.writer.next_piece() {
                return Ok(Some(piece));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.read_content() {
                Ok(Content::Bytes(0)) => {
                    self.has_ended = true;
                    self.writer.flush();
                }
                Ok(Content::Bytes(n)) => self.writer.advance(n),
                Ok(Content::Zeroes(n)) => self.writer.zeroes(n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn read_content(&mut self) -> io::Result<Content> {
        let space = self.writer.space(); // it may wait for the writing threads
        let mut read = || self.reader.read_content(space);
        if self.decompresses { self.progress.times().measure_decompression(read) } else { read() }
    }
}
