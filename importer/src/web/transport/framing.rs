//! Where a body ends: RFC 9112, section 6.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};

use super::head::lists;

/// How the end of a body is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// In chunks, of which the last is empty.
    Chunked(Chunks),
    /// Where the connection ends. A broken connection looks like a closed one.
    UntilClose,
}

/// The framing of the response to a request. Or what is wrong with it.
pub(super) fn framing(
    method: &Method,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Framing, String> {
    // The headers of a response to `HEAD` are those of a body that does not come.
    if *method == Method::HEAD
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    {
        return Ok(Framing::Length(0));
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        let codings = headers.get_all(TRANSFER_ENCODING).iter().count();
        let only_chunked = codings == 1
            && headers[TRANSFER_ENCODING].as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        return if only_chunked {
            Ok(Framing::Chunked(Chunks::default()))
        } else if lists(headers, TRANSFER_ENCODING, "identity") && codings == 1 {
            Ok(Framing::UntilClose)
        } else {
            Err("its transfer encoding is unknown".into())
        };
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for item in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            let digits = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
            // A length that is no number is ignored: the body ends with the connection.
            let Some(found) = digits.then(|| item.parse().ok()).flatten() else {
                return Ok(Framing::UntilClose);
            };
            if length.replace(found).is_some_and(|before: u64| before != found) {
                return Err("it announces two lengths".into());
            }
        }
    }
    Ok(length.map_or(Framing::UntilClose, Framing::Length))
}

/// Takes the chunks of a body apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    state: State,
    /// Bytes of the line in work, or of all lines after the last chunk: bounded.
    line: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// In the digits of a size, so far this.
    #[default]
    Size,
    SizeDigits(u64),
    /// Behind the digits: blanks, or an extension that means nothing to us.
    Extension(u64),
    /// In the data, of which so much is left.
    Data(u64),
    /// At the line end after the data.
    DataEnd,
    /// At the start of a line after the last chunk.
    Trailer,
    TrailerLine,
    Done,
}

/// Longer lines between chunks are refused.
const LINE_LEN_MAX: usize = 16 << 10;

impl Chunks {
    /// Bytes of data that come next; 0 when a line comes next, or nothing more.
    pub(super) fn data(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// So many bytes of data were taken, at most [`Chunks::data`].
    pub(super) fn took(&mut self, count: u64) {
        if let State::Data(left) = self.state {
            self.state = match left.saturating_sub(count) {
                0 => State::DataEnd,
                left => State::Data(left),
            };
        }
    }

    /// The last chunk and all after it have been read.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads lines up to the next data or the end; returns how many of `bytes` that took.
    pub(super) fn read_lines(&mut self, bytes: &[u8]) -> Result<usize, String> {
        for (index, &byte) in bytes.iter().enumerate() {
            if self.data() > 0 || self.is_done() {
                return Ok(index);
            }
            self.line += 1;
            if self.line > LINE_LEN_MAX {
                return Err("a line between its chunks is too long".into());
            }
            self.state = self.after(byte).ok_or("its chunks are malformed")?;
        }
        Ok(bytes.len())
    }

    fn after(&mut self, byte: u8) -> Option<State> {
        let next = match (&self.state, byte) {
            (State::Size, _) => State::SizeDigits(u64::from(hex(byte)?)),
            (&State::SizeDigits(size), b'\n') | (&State::Extension(size), b'\n') => {
                self.line = 0;
                if size == 0 { State::Trailer } else { State::Data(size) }
            }
            (&State::SizeDigits(size), b'\r' | b' ' | b'\t' | b';') => State::Extension(size),
            (&State::SizeDigits(size), _) => {
                State::SizeDigits(size.checked_mul(16)?.checked_add(u64::from(hex(byte)?))?)
            }
            (&State::Extension(size), _) => State::Extension(size),
            (State::DataEnd, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => {
                self.line = 0;
                State::Size
            }
            (State::Trailer, b'\r') => State::Trailer,
            (State::Trailer, b'\n') => State::Done,
            (State::TrailerLine, b'\n') => State::Trailer,
            (State::Trailer | State::TrailerLine, _) => State::TrailerLine,
            (State::DataEnd | State::Data(_) | State::Done, _) => return None,
        };
        Some(next)
    }
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_headers_decide_where_a_body_ends() {
        let chunked = || Ok(Framing::Chunked(Chunks::default()));
        let (cl, te) = ("content-length", "transfer-encoding");
        type Lines<'a> = &'a [(&'static str, &'static str)];
        let table: [(u16, Lines, Result<Framing, &str>); 16] = [
            (200, &[(cl, "12")], Ok(Framing::Length(12))),
            (200, &[(cl, "12"), (cl, "12")], Ok(Framing::Length(12))),
            (200, &[(cl, "12, 12")], Ok(Framing::Length(12))),
            (200, &[(cl, "12"), (cl, "13")], Err("it announces two lengths")),
            (200, &[(cl, "twelve")], Ok(Framing::UntilClose)),
            (200, &[(cl, "+12")], Ok(Framing::UntilClose)),
            (200, &[(cl, "99999999999999999999")], Ok(Framing::UntilClose)),
            (200, &[(cl, "")], Ok(Framing::UntilClose)),
            (200, &[], Ok(Framing::UntilClose)),
            (200, &[(te, "chunked")], chunked()),
            (200, &[(te, "Chunked"), (cl, "12")], chunked()),
            (200, &[(te, "identity")], Ok(Framing::UntilClose)),
            (200, &[(te, "gzip, chunked")], Err("its transfer encoding is unknown")),
            (200, &[(te, "chunked"), (te, "chunked")], Err("its transfer encoding is unknown")),
            (204, &[(cl, "12")], Ok(Framing::Length(0))),
            (304, &[], Ok(Framing::Length(0))),
        ];
        for (status, headers, expected) in table {
            let status = StatusCode::from_u16(status).unwrap();
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let found = framing(&Method::GET, status, &map);
            assert_eq!(
                found.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e),
                "{headers:?}"
            );
        }
    }

    /// The data of a chunked body that comes `step` bytes at a time, and what follows it.
    fn decode(mut wire: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (mut chunks, mut data) = (Chunks::default(), Vec::new());
        let mut inbox = Vec::new();
        loop {
            let (now, later) = wire.split_at(step.min(wire.len()));
            inbox.extend_from_slice(now);
            wire = later;
            loop {
                let taken = chunks.read_lines(&inbox)?;
                inbox.drain(..taken);
                let count = inbox.len().min(usize::try_from(chunks.data()).unwrap_or(usize::MAX));
                data.extend(inbox.drain(..count));
                chunks.took(count as u64);
                if count == 0 {
                    break;
                }
            }
            if chunks.is_done() {
                inbox.extend_from_slice(wire);
                return Ok((data, inbox));
            }
            if now.is_empty() {
                return Err("ended early".into());
            }
        }
    }

    #[test]
    fn chunks_are_joined_however_they_arrive() {
        let wire =
            b"5\r\nhello\r\n00A;ext=\"x\"\r\n, chunked \r\n5 \r\nworld\r\n0\r\nA: b\r\n\r\nnext";
        for step in 1..wire.len() {
            let (data, rest) = decode(wire, step).unwrap();
            assert_eq!(
                (&data[..], &rest[..]),
                (&b"hello, chunked world"[..], &b"next"[..]),
                "{step}"
            );
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        let long_line = format!("5;{}\r\n", "x".repeat(LINE_LEN_MAX));
        let long_trailer = format!("0\r\n{}", "A: b\r\n".repeat(LINE_LEN_MAX));
        let table = [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "5x\r\nhello",
            "5\r\nhello5\r\n",
            "10000000000000000\r\n",
            "5\r\nhel",
            "0\r\n",
            "",
            &long_line,
            &long_trailer,
        ];
        for wire in table {
            assert!(decode(wire.as_bytes(), 3).is_err(), "{:?}", &wire[..wire.len().min(20)]);
        }
    }

    proptest! {
        #[test]
        fn data_in_any_chunks_is_decoded_unchanged(
            pieces in vec(vec(any::<u8>(), 1..300), 0..20), step in 1_usize..400,
        ) {
            let mut wire: Vec<u8> = Vec::new();
            for piece in &pieces {
                wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                wire.extend_from_slice(piece);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let (data, rest) = decode(&wire, step).unwrap();
            prop_assert_eq!(data, pieces.concat());
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(
            wire in vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'3'), any::<u8>()], 0..200),
            step in 1_usize..50,
        ) {
            if let Ok((data, rest)) = decode(&wire, step) {
                prop_assert!(data.len() + rest.len() < wire.len());
            }
        }
    }
}
