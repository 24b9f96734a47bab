//! The content as a plain reader, for what is inside of a gzip stream and no disk.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use formats::decompress::{Limits, reader};
use formats::sniff::Compression;

use super::ParallelGzip;
use crate::error::Error;
use crate::io_counters::copy_counted;
use crate::memory::{MEMORY_MIN, cores, share_memory};
use crate::pieces::Piece;

/// Undoes one compression of what is no disk: as [`formats::decompress::reader`], with several threads for gzip where
/// there are several cores.
///
/// # Errors
/// When the operating system gives no thread.
pub fn decompress<'a>(
    kind: Compression,
    input: Box<dyn BufRead + Send + 'a>,
) -> Result<Box<dyn Read + Send + 'a>, Error> {
    const PIECE: usize = 256 << 10;
    let threads = share_memory(MEMORY_MIN, cores(), 1).gzip_threads;
    if kind != Compression::Gzip || threads < 2 {
        return Ok(reader(kind, input, Limits::default()));
    }
    let gzip = ParallelGzip::new(input, threads, PIECE, &Arc::default())?;
    Ok(Box::new(GzipReader { gzip, piece: None }))
}

/// A gzip stream that several threads decode.
struct GzipReader<R> {
    gzip: ParallelGzip<R>,
    /// What is left of the last piece.
    piece: Option<Piece>,
}

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        if self.piece.is_none() {
            self.piece = self.gzip.next_piece()?;
        }
        let (n, is_used_up) = match &mut self.piece {
            None => return Ok(0),
            Some(Piece::Data(buffer, range)) => {
                let n = range.len().min(out.len());
                copy_counted(&mut out[..n], &buffer[range.start..][..n]);
                range.start += n;
                (n, range.start == range.end)
            }
            Some(Piece::Zeroes(len)) => {
                let n = usize::try_from(*len).unwrap_or(usize::MAX).min(out.len());
                out[..n].fill(0);
                *len -= n as u64;
                (n, *len == 0)
            }
        };
        if is_used_up {
            self.piece = None;
        }
        Ok(n)
    }
}
