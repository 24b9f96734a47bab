//! A gzip stream whose long members are decoded elsewhere.

use std::io::{self, BufRead};

use crc32fast::Hasher;

use super::Gzip;
use crate::decompress::{Walk, Wire, read_all_parts};
use crate::sniff::Compression;
use crate::speculation::{BodyDecoder, Damaged};

/// Reads a gzip stream in order, and lends the body of a member: its deflate data, without header and trailer.
pub struct GzipReader {
    walk: Walk<Gzip>,
}

impl Default for GzipReader {
    fn default() -> Self {
        Self { walk: Walk::over(Compression::Gzip, Box::new(Gzip::new(0))) }
    }
}

impl GzipReader {
    /// As reading from [`decompress::reader`](crate::decompress::reader).
    ///
    /// # Errors
    /// The same. Also when the body is lent.
    pub fn read(&mut self, input: &mut dyn BufRead, out: &mut [u8]) -> io::Result<usize> {
        read_all_parts(&mut self.walk, input, out)
    }

    /// Compressed bytes that were read so far of the body in which the reader is. 0: it is in none.
    pub fn body_len(&mut self) -> u64 {
        let at = self.walk.at();
        let inside = self.walk.inline().filter(|gzip| !gzip.body_ended);
        inside.map_or(0, |gzip| at.saturating_sub(gzip.body_at))
    }

    /// Lends the body in which the reader is.
    pub fn lend_body(&mut self) -> Option<BodyDecoder> {
        let gzip = self.walk.inline().filter(|gzip| !gzip.body_ended)?;
        Some(BodyDecoder::new(std::mem::take(&mut gzip.inflate)))
    }

    /// The next bytes of a body that is lent: `len_max`, or fewer at the end of the stream.
    ///
    /// # Errors
    /// Those of `input`.
    pub fn next_chunk(&mut self, input: &mut dyn BufRead, len_max: usize) -> io::Result<Vec<u8>> {
        let mut wire = Wire::new(self.walk.ahead(), input);
        let mut chunk = Vec::with_capacity(len_max);
        while chunk.len() < len_max {
            let bytes = wire.fill()?;
            if bytes.is_empty() {
                break;
            }
            let some = bytes.len().min(len_max - chunk.len());
            chunk.extend_from_slice(&bytes[..some]);
            wire.consume(some);
        }
        Ok(chunk)
    }

    /// Takes the body back, at its end or at that of the stream. `unused` were the last bytes of its chunks; `checksum`
    /// is of all that was decoded elsewhere, `len` bytes.
    pub fn return_body(&mut self, body: BodyDecoder, checksum: &Hasher, len: u64, unused: Vec<u8>) {
        let (ahead, gzip) = self.walk.parts();
        ahead.put_back(unused);
        gzip.body_ended = body.has_ended();
        gzip.inflate = body.into_inflate();
        gzip.crc.combine(checksum);
        gzip.len = gzip.len.wrapping_add(len as u32); // modulo 2^32, as the trailer
    }

    /// The error for a damaged chunk that begins `chunk_at` bytes behind the start of the stream.
    pub fn damaged(chunk_at: u64, damaged: Damaged) -> io::Error {
        let (at, because) = (chunk_at + damaged.at as u64, damaged.because);
        crate::Error::Corrupt { what: super::STREAM, at, because }.into()
    }

    /// The position of the next chunk in the stream, in bytes.
    pub fn at(&self) -> u64 {
        self.walk.at()
    }
}
