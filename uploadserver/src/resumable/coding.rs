//! What the body of a part may be wrapped up in: nothing, or zstd. Offsets count what is inside, so that whatever came of a
//! body that broke off is of use.

use std::io;

use bytes::{Buf, Bytes};
use http::{HeaderMap, header};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::Refusal;

/// As much is unpacked at a time.
const PIECE: usize = 256 << 10;
/// A client may refer back as far, by RFC 9659. It bounds the memory of an unpacker.
const WINDOW_LOG_MAX: u32 = 23;

/// How a body is wrapped up.
pub enum Coding {
    /// Not at all.
    Identity,
    /// In frames of zstd.
    Zstd(Unpacker),
}

/// Unpacks frames, one behind the other.
pub struct Unpacker {
    zstd: Decoder<'static>,
    /// The last byte was that of a frame.
    is_whole: bool,
    /// What was unpacked last filled all the room there was: there may be more.
    is_full: bool,
}

impl Coding {
    /// # Errors
    /// When it is none of the two.
    pub fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"" | b"identity") => Ok(Self::Identity),
            Some(b"zstd") => Unpacker::new().map(Self::Zstd).map_err(Refusal::Unpack),
            Some(_) => Err(Refusal::Coding),
        }
    }

    /// Some of what is in `input`, which is taken from it; `None` when all of it was taken.
    ///
    /// # Errors
    /// When it is not what it was said to be.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Refusal> {
        match self {
            Self::Identity => Ok(Some(std::mem::take(input)).filter(|bytes| !bytes.is_empty())),
            Self::Zstd(unpacker) => unpacker.next(input).map_err(Refusal::Unpack),
        }
    }

    /// # Errors
    /// When the body has ended in the middle of a frame.
    pub fn check_end(&self) -> Result<(), Refusal> {
        match self {
            Self::Zstd(Unpacker { is_whole: false, .. }) => {
                Err(Refusal::Broken("its last frame is not complete".into()))
            }
            Self::Identity | Self::Zstd(_) => Ok(()),
        }
    }
}

impl Unpacker {
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
            let mut piece = vec![0; PIECE];
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

    fn zstd_coding() -> Coding {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, "zstd".parse().unwrap());
        Coding::of(&headers).unwrap()
    }

    /// All that comes out, of a body that comes in pieces of that length, and whether that was its end.
    fn unpack(body: &[u8], length: usize) -> (Vec<u8>, Result<(), Refusal>) {
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
    fn frames_of_any_size_are_unpacked_whatever_pieces_they_come_in() {
        let noise = testkit::pattern(700_000);
        for parts in [
            vec![],
            vec![vec![]],
            vec![vec![0; 3 << 20]],
            vec![noise.clone(), vec![], vec![0; 5], noise[..PIECE].to_vec()],
            vec![vec![7; PIECE], vec![8; PIECE + 1], vec![9; PIECE - 1]],
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
    fn what_came_before_a_cut_is_of_use_and_the_cut_is_seen() {
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
        fn any_bytes_are_unpacked_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = unpack(&bytes, 100);
        }
    }

    #[test]
    fn no_other_coding_is_known_and_none_is_fine() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, value.parse().unwrap());
            Coding::of(&headers)
        };
        assert!(matches!(of("identity"), Ok(Coding::Identity)));
        assert!(matches!(Coding::of(&HeaderMap::new()), Ok(Coding::Identity)));
        for other in ["gzip", "zstd, gzip", "br"] {
            assert!(matches!(of(other), Err(Refusal::Coding)), "{other}");
        }
        let mut bytes = Bytes::from_static(b"abc");
        let mut coding = Coding::Identity;
        assert_eq!(coding.next(&mut bytes).unwrap().unwrap(), "abc");
        assert!(coding.next(&mut bytes).unwrap().is_none());
    }
}
