//! The content as a plain reader, for what is inside of a gzip stream and no disk.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use super::{ParallelGzip, Piece};
use crate::error::Error;
use crate::io_counters::copy_counted;
use crate::memory::{MEMORY_MIN, cores, share_memory};
use crate::progress::Progress;

/// A gzip stream that several threads decode.
pub struct ParallelGzipReader<R> {
    gzip: ParallelGzip<R>,
    /// What is left of the last piece.
    piece: Option<Piece>,
}

/// How many threads are worth it on this machine. With fewer than two, [`formats::decompress::reader`] does the same for less.
pub fn gzip_threads() -> usize {
    share_memory(MEMORY_MIN, cores(), 1).gzip_threads
}

impl<R: BufRead> ParallelGzipReader<R> {
    /// Decodes `input` from its start on so many threads.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn new(input: R, threads: usize) -> Result<Self, Error> {
        const PIECE: usize = 256 << 10;
        let progress = Arc::new(Progress::default());
        Ok(Self { gzip: ParallelGzip::new(input, threads, PIECE, &progress)?, piece: None })
    }
}

impl<R: BufRead> Read for ParallelGzipReader<R> {
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
