//! Content-Encoding of the bodies of `PATCH`: none, or zstd. Offsets count decoded bytes, so that the received part of
//! an interrupted body counts.

use std::io;

use bytes::{Buf, Bytes};
use http::{HeaderMap, header};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::ResumableRefusal;

/// Bytes that are decoded at a time.
const CHUNK_LEN: usize = 256 << 10;
/// 8 MiB, by RFC 9659. Bounds the memory of a decoder.
const WINDOW_LOG_MAX: u32 = 23;

pub enum ContentCoding {
    Identity,
    Zstd(ZstdDecoder),
}

/// Decodes consecutive frames.
pub struct ZstdDecoder {
    zstd: Decoder<'static>,
    /// The input so far ends at the end of a frame.
    is_whole: bool,
    /// The last output filled its buffer: there may be more without further input.
    is_full: bool,
}

impl ContentCoding {
    /// [`ResumableRefusal::Coding`]
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, ResumableRefusal> {
        match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"" | b"identity") => Ok(Self::Identity),
            Some(b"zstd") => ZstdDecoder::new().map(Self::Zstd).map_err(ResumableRefusal::Unpack),
            Some(_) => Err(ResumableRefusal::Coding),
        }
    }

    /// Decodes some of `input`, and removes it there; `None` when `input` is used up.
    ///
    /// # Errors
    /// [`ResumableRefusal::Unpack`]
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ResumableRefusal> {
        match self {
            Self::Identity => Ok(Some(std::mem::take(input)).filter(|bytes| !bytes.is_empty())),
            Self::Zstd(decoder) => decoder.next(input).map_err(ResumableRefusal::Unpack),
        }
    }

    /// [`ResumableRefusal::Broken`] if the body ended within a frame.
    pub fn check_end(&self) -> Result<(), ResumableRefusal> {
        match self {
            Self::Zstd(ZstdDecoder { is_whole: false, .. }) => {
                Err(ResumableRefusal::Broken("the last zstd frame is incomplete".into()))
            }
            Self::Identity | Self::Zstd(_) => Ok(()),
        }
    }
}

impl ZstdDecoder {
    fn new() -> io::Result<Self> {
        let mut zstd = Decoder::new()?;
        zstd.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Self { zstd, is_whole: true, is_full: false })
    }

    fn next(&mut self, input: &mut Bytes) -> io::Result<Option<Bytes>> {
        while !input.is_empty() || self.is_full {
            if self.is_whole && !self.is_full {
                self.zstd.reinit()?;
            }
            let mut piece = vec![0; CHUNK_LEN];
            let status = self.zstd.run_on_buffers(input, &mut piece)?;
            input.advance(status.bytes_read);
            self.is_whole = status.remaining == 0;
            self.is_full = status.bytes_written == piece.len() && !self.is_whole;
            if status.bytes_written > 0 {
                piece.truncate(status.bytes_written);
                return Ok(Some(piece.into()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zstd_coding() -> ContentCoding {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, "zstd".parse().unwrap());
        ContentCoding::from_headers(&headers).unwrap()
    }

    /// All that comes out, of a body that comes in pieces of that length, and whether that was its end.
    fn unpack(body: &[u8], length: usize) -> (Vec<u8>, Result<(), ResumableRefusal>) {
        let (mut coding, mut all) = (zstd_coding(), Vec::new());
        for piece in body.chunks(length) {
            let mut piece = Bytes::copy_from_slice(piece);
            loop {
                match coding.next(&mut piece) {
                    Ok(Some(bytes)) => all.extend_from_slice(&bytes),
                    Ok(None) => break,
                    Err(error) => return (all, Err(error)),
                }
            }
            assert!(piece.is_empty());
        }
        let end = coding.check_end();
        (all, end)
    }

    fn frames(parts: &[Vec<u8>]) -> Vec<u8> {
        parts.iter().flat_map(|part| zstd::bulk::compress(part, 1).unwrap()).collect()
    }

    #[test]
    fn frames_are_decoded_whatever_the_chunks() {
        let noise = testkit::pattern(700_000);
        for parts in [
            vec![],
            vec![vec![]],
            vec![vec![0; 3 << 20]],
            vec![noise.clone(), vec![], vec![0; 5], noise[..CHUNK_LEN].to_vec()],
            vec![vec![7; CHUNK_LEN], vec![8; CHUNK_LEN + 1], vec![9; CHUNK_LEN - 1]],
        ] {
            let (body, expected) = (frames(&parts), parts.concat());
            for length in [1, 100, 65_536, usize::MAX >> 1] {
                if length == 1 && body.len() > 10_000 {
                    continue; // byte by byte it would take long
                }
                let (found, end) = unpack(&body, length);
                assert!(end.is_ok() && found == expected, "pieces of {length}");
            }
        }
    }

    #[test]
    fn truncated_body_yields_its_beginning_and_an_error() {
        let parts = [testkit::pattern(300), testkit::pattern(5000)];
        let body = frames(&parts);
        let first = frames(&parts[..1]).len();
        let whole = parts.concat();
        for len in 0..body.len() {
            let (found, end) = unpack(&body[..len], 64);
            assert!(whole.starts_with(&found), "cut at {len}");
            assert_eq!(end.is_ok(), len == 0 || len == first, "cut at {len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = unpack(&bytes, 100);
        }
    }

    #[test]
    fn other_codings_are_rejected() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, value.parse().unwrap());
            ContentCoding::from_headers(&headers)
        };
        assert!(matches!(of("identity"), Ok(ContentCoding::Identity)));
        assert!(matches!(
            ContentCoding::from_headers(&HeaderMap::new()),
            Ok(ContentCoding::Identity)
        ));
        for other in ["gzip", "zstd, gzip", "br"] {
            assert!(matches!(of(other), Err(ResumableRefusal::Coding)), "{other}");
        }
        let mut bytes = Bytes::from_static(b"abc");
        let mut coding = ContentCoding::Identity;
        assert_eq!(coding.next(&mut bytes).unwrap().unwrap(), "abc");
        assert!(coding.next(&mut bytes).unwrap().is_none());
    }
}
