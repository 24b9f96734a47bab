//! Compressed clusters of disk images: the whole input is available, and the size of the output is known.
//!
//! qcow2 stores the compressed length of a cluster in units of 512 bytes, so up to 511 bytes of no meaning may follow.
//! A cluster is good once its output is full. A grain of a vmdk states its length and its guest address; only the one
//! at the disk's end may hold less than a grain.

use libdeflater::{DecompressionError, Decompressor};
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective, find_frame_compressed_size};

use crate::Error;
use crate::bytes::{le_u32, le_u64};
use crate::inflate::Inflate;

const DEFLATE: &str = "deflate-compressed cluster";
const ZSTD: &str = "zstd-compressed cluster";
const GRAIN: &str = "compressed grain";
/// Sector address, 8 bytes; length, 4 bytes.
pub(crate) const GRAIN_HEADER: usize = 12;
const SECTOR: u64 = 512;

/// How compressed clusters of an image are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// A raw deflate stream, without zlib's header. Bytes may follow its end.
    Deflate,
    /// Zstandard frames. Bytes may follow the end of the last.
    Zstd,
    /// A vmdk's marker, which contains its guest address and how long it is, and a zlib stream.
    Grain,
}

/// Decodes clusters, one after another. Keep one per thread: it holds tables that are costly to make.
pub struct ClusterDecoder {
    deflate: Decompressor,
    zstd: DCtx<'static>,
}

impl Default for ClusterDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterDecoder {
    /// # Panics
    /// When there is no memory for some kilobytes of tables, as any allocation.
    pub fn new() -> Self {
        Self { deflate: Decompressor::new(), zstd: DCtx::create() }
    }

    /// Fills `out` from a cluster that `codec` compressed. Where the disk ends in it, only the first `needed` bytes of
    /// `out` need be filled. `guest` is its address.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the stream is invalid, or holds less. `out` then holds anything.
    pub fn decode(
        &mut self,
        codec: Codec,
        input: &[u8],
        guest: u64,
        needed: usize,
        out: &mut [u8],
    ) -> Result<(), Error> {
        match codec {
            Codec::Deflate => self.inflate(input, out),
            Codec::Zstd => self.unzstd(input, out),
            Codec::Grain => self.grain(input, guest, needed, out),
        }
    }

    /// Fills the first `needed` bytes of `out`, or more, from a grain that belongs at `guest`.
    fn grain(
        &mut self,
        input: &[u8],
        guest: u64,
        needed: usize,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let wrong = |because| Error::Corrupt { what: GRAIN, at: 0, because };
        if input.len() < GRAIN_HEADER {
            return Err(wrong("it is cut short"));
        }
        if le_u64(input, 0).checked_mul(SECTOR) != Some(guest) {
            return Err(wrong("it belongs elsewhere"));
        }
        let len = le_u32(input, 8) as usize;
        let stream = input[GRAIN_HEADER..].get(..len).ok_or_else(|| wrong("it is cut short"))?;
        match self.deflate.zlib_decompress(stream, out) {
            Ok(n) if n >= needed => Ok(()),
            Ok(_) => Err(wrong("it holds less than a grain")),
            Err(_) => Err(invalid(GRAIN)),
        }
    }

    /// Fills `out` from a raw deflate stream (no zlib header, no checksum).
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the stream is invalid, or ends before `out` is full. `out` then holds anything.
    pub fn inflate(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), Error> {
        match self.deflate.deflate_decompress(input, out) {
            Ok(n) if n == out.len() => Ok(()),
            Ok(_) => Err(too_short(DEFLATE, input)),
            // The stream continues after the cluster. libdeflate stops before it has written all that fits.
            Err(DecompressionError::InsufficientSpace) => inflate_prefix(input, out),
            Err(_) => Err(invalid(DEFLATE)),
        }
    }

    /// Fills `out` from a zstd frame.
    ///
    /// # Errors
    /// As [`inflate`](Self::inflate).
    pub fn unzstd(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let frame = find_frame_compressed_size(input).map_err(|_| invalid(ZSTD))?;
        match self.zstd.decompress(out, &input[..frame.min(input.len())]) {
            Ok(n) if n == out.len() => Ok(()),
            Ok(_) => Err(too_short(ZSTD, input)),
            Err(_) => self.unzstd_prefix(input, out),
        }
    }

    /// As [`unzstd`](Self::unzstd), where the frame may continue after the cluster.
    fn unzstd_prefix(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), Error> {
        self.zstd.reset(ResetDirective::SessionOnly).map_err(|_| invalid(ZSTD))?;
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(&mut *out);
        loop {
            let before = (input.pos(), output.pos());
            let left = self.zstd.decompress_stream(&mut output, &mut input);
            if left.is_err() {
                return Err(invalid(ZSTD));
            }
            if output.pos() == output.capacity() {
                return Ok(());
            }
            if left == Ok(0) || (input.pos(), output.pos()) == before {
                return Err(invalid(ZSTD));
            }
        }
    }
}

/// As [`ClusterDecoder::inflate`], where the stream may continue after the cluster.
fn inflate_prefix(input: &[u8], out: &mut [u8]) -> Result<(), Error> {
    match Inflate::new().inflate(input, out) {
        Ok(progress) if progress.decoded == out.len() => Ok(()),
        _ => Err(invalid(DEFLATE)),
    }
}

fn too_short(what: &'static str, input: &[u8]) -> Error {
    Error::Corrupt { what, at: input.len() as u64, because: "it holds less than a cluster" }
}

fn invalid(what: &'static str) -> Error {
    Error::Corrupt { what, at: 0, because: "its compressed data is invalid" }
}
