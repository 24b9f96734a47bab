//! A body of `multipart/form-data`: streams the content of its first part named `file`.
//!
//! Sources: RFC 7578, and RFC 2046 section 5.1. Parts before the file are skipped; what follows it is drained. Memory
//! holds one chunk of the body, and the headers of one part, which are limited.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;
use pipeline::{ByteStream, SourceError};

/// RFC 2046 allows 70 bytes.
const BOUNDARY_LEN_MAX: usize = 256;
const HEADERS_LEN_MAX: usize = 16 << 10;
/// Name of the part with the image.
const NAME: &str = "file";

#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// The body is not such a form.
    #[error("{0}")]
    Malformed(&'static str),
    /// The connection ended.
    #[error("the connection ended in the middle of the body")]
    Broken(#[source] SourceError),
}

/// The boundary in a `Content-Type`.
///
/// # Errors
/// [`FormError::Malformed`]
pub fn boundary(content_type: &str) -> Result<Vec<u8>, FormError> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(FormError::Malformed("the Content-Type is not multipart/form-data"));
    }
    let found = parameter(parameters, "boundary");
    let found = found.filter(|text| !text.is_empty() && text.len() <= BOUNDARY_LEN_MAX);
    found.map(String::into_bytes).ok_or(FormError::Malformed("the Content-Type has no boundary"))
}

/// Parses `name=value; name="value"`.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (name, tail) = rest.split_once('=')?;
        let (value, tail) = match tail.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, tail) = tail.split_once(';').unwrap_or((tail, ""));
                (value.trim().to_owned(), tail)
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = tail;
    }
}

/// The text up to the closing quotation mark, and the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

pub struct FilePart {
    body: Box<dyn ByteStream>,
    /// `\r\n--boundary`
    delimiter: memmem::Finder<'static>,
    /// Read, but not parsed. Starts with a possible beginning of a delimiter.
    held: BytesMut,
    ended: bool,
}

impl FilePart {
    /// Reads up to the content of the first part named `file`.
    ///
    /// # Errors
    /// [`FormError::Malformed`] if there is none.
    pub fn find(body: impl ByteStream + 'static, boundary: &[u8]) -> Result<Self, FormError> {
        let delimiter = [b"\r\n--", boundary].concat();
        let delimiter = memmem::Finder::new(&delimiter).into_owned();
        // The first delimiter may be at the very beginning, without CRLF before it.
        let held = BytesMut::from(&b"\r\n"[..]);
        let mut part = Self { body: Box::new(body), delimiter, held, ended: false };
        loop {
            while part.content()?.is_some() {}
            if part.skip_line()? {
                return Err(FormError::Malformed("the form has no part named file"));
            }
            if is_file_part(&part.headers()?) {
                return Ok(part);
            }
        }
    }

    /// More content of the current part; `None` at its delimiter, which is consumed.
    fn content(&mut self) -> Result<Option<Bytes>, FormError> {
        loop {
            if let Some(at) = self.delimiter.find(&self.held) {
                let content = self.held.split_to(at).freeze();
                if content.is_empty() {
                    self.held.advance(self.delimiter.needle().len());
                    return Ok(None);
                }
                return Ok(Some(content));
            }
            let safe = self.held.len() - self.possible_beginning();
            if safe > 0 {
                return Ok(Some(self.held.split_to(safe).freeze()));
            }
            self.read()?;
        }
    }

    /// Length of the longest suffix that may be the beginning of a delimiter.
    fn possible_beginning(&self) -> usize {
        let needle = self.delimiter.needle();
        let most = self.held.len().min(needle.len() - 1);
        let tail = &self.held[self.held.len() - most..];
        // A delimiter contains CR only at its beginning.
        memchr::memrchr(b'\r', tail)
            .filter(|at| needle.starts_with(&tail[*at..]))
            .map_or(0, |at| tail.len() - at)
    }

    /// The rest of the line after a delimiter. True after the closing delimiter.
    fn skip_line(&mut self) -> Result<bool, FormError> {
        while self.held.len() < 2 {
            self.read()?;
        }
        if self.held.starts_with(b"--") {
            return Ok(true);
        }
        loop {
            if let Some(at) = memmem::find(&self.held, b"\r\n") {
                if !self.held[..at].iter().all(|byte| b" \t".contains(byte)) {
                    return Err(FormError::Malformed(
                        "a boundary of the form is followed by other text",
                    ));
                }
                // CRLF stays: a part without headers begins with it.
                self.held.advance(at);
                return Ok(false);
            }
            self.read_limited(HEADERS_LEN_MAX)?;
        }
    }

    /// `held` starts with the CRLF before them.
    fn headers(&mut self) -> Result<Bytes, FormError> {
        loop {
            if let Some(at) = memmem::find(&self.held, b"\r\n\r\n") {
                let headers = self.held.split_to(at).freeze();
                self.held.advance(2);
                // The empty line may be part of the delimiter of an empty part.
                while self.held.len() < self.delimiter.needle().len() {
                    self.read()?;
                }
                if !self.held.starts_with(self.delimiter.needle()) {
                    self.held.advance(2);
                }
                return Ok(headers);
            }
            self.read_limited(HEADERS_LEN_MAX)?;
        }
    }

    fn read_limited(&mut self, most: usize) -> Result<(), FormError> {
        if self.held.len() > most {
            return Err(FormError::Malformed("the headers of a part of the form are too long"));
        }
        self.read()
    }

    fn read(&mut self) -> Result<(), FormError> {
        match self.body.next().map_err(FormError::Broken)? {
            Some(bytes) if self.held.is_empty() => self.held = BytesMut::from(bytes),
            Some(bytes) => self.held.extend_from_slice(&bytes),
            None => return Err(FormError::Malformed("the form ends before its last boundary")),
        }
        Ok(())
    }
}

fn is_file_part(headers: &[u8]) -> bool {
    let headers = String::from_utf8_lossy(headers);
    headers.split("\r\n").any(|line| {
        let Some((name, value)) = line.split_once(':') else { return false };
        let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
        name.trim().eq_ignore_ascii_case("content-disposition")
            && kind.trim().eq_ignore_ascii_case("form-data")
            && parameter(parameters, "name").as_deref() == Some(NAME)
    })
}

impl ByteStream for FilePart {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        if let Some(bytes) = self.content()? {
            return Ok(Some(bytes));
        }
        self.ended = true;
        // An interruption after the file is an error too.
        while self.body.next()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::body::testing::{FakeBody, collect};

    fn read(body: &[u8], piece: usize) -> Result<Vec<u8>, String> {
        let found = FilePart::find(FakeBody::new(body, piece), b"b-1").map_err(|e| e.to_string());
        found.and_then(|mut part| collect(&mut part))
    }

    fn file(content: &[u8]) -> Vec<u8> {
        part("Content-Disposition: form-data; name=\"file\"; filename=\"disk.img\"\r\n", content)
    }

    fn part(headers: &str, content: &[u8]) -> Vec<u8> {
        [b"\r\n--b-1\r\n", headers.as_bytes(), b"\r\n", content].concat()
    }

    const END: &[u8] = b"\r\n--b-1--\r\n";
    const NOTE: &str = "content-disposition: form-data; name=note\r\n";

    #[test]
    fn first_part_named_file_is_found_at_any_chunk_border() {
        let content = b"a disk\r\n--b-2\r\n--b-\r\r\n";
        let whole = [&file(content), END].concat();
        let bare = &whole[2..]; // browsers begin without an empty line
        let after = [&part(NOTE, b"file"), &*whole].concat();
        let preamble = [b"text\r\n--b", &*whole].concat();
        let two = [file(content), file(b"another"), END.to_vec()].concat();
        let nameless = [&part("", b""), &*whole].concat();
        let padded = String::from_utf8(whole.clone()).unwrap().replace("--b-1\r", "--b-1 \t\r");
        for (case, body) in [
            ("whole", &*whole),
            ("bare", bare),
            ("after another part", &after),
            ("after a preamble", &preamble),
            ("two of them", &two),
            ("after a part without headers and content", &nameless),
            ("padded", padded.as_bytes()),
        ] {
            for piece in [1, 2, 3, 7, 1000] {
                assert_eq!(read(body, piece).as_deref(), Ok(&content[..]), "{case} {piece}");
            }
        }
        assert_eq!(read(&[&file(b""), END].concat(), 5).as_deref(), Ok(&b""[..]));
        assert_eq!(
            read(&[file(b"").split_off(2), b"--b-1--".to_vec()].concat(), 5).as_deref(),
            Ok(&b""[..])
        );
    }

    #[test]
    fn form_without_a_complete_file_is_rejected() {
        let long = format!("X: {}\r\n", "y".repeat(100_000));
        for (case, body, words) in [
            ("empty", vec![], "before its last boundary"),
            ("no form", b"disk".repeat(1000), "before its last boundary"),
            ("no parts", END.to_vec(), "no part named file"),
            ("another part", [&part(NOTE, b"x"), END].concat(), "no part named file"),
            ("no end", file(b"disk"), "before its last boundary"),
            ("long headers", [&part(&long, b"x"), END].concat(), "too long"),
            ("text behind a boundary", b"--b-1 file\r\n".to_vec(), "followed by other text"),
        ] {
            for piece in [1, 1000] {
                let error = read(&body, piece).unwrap_err();
                assert!(error.contains(words), "{case}: {error}");
            }
        }
    }

    #[test]
    fn interrupted_body_is_an_error() {
        let body = [&file(b"disk"), END].concat();
        for cut in 0..=body.len() {
            let pieces = FakeBody::new(&body[..cut], 10).cut();
            match FilePart::find(pieces, b"b-1") {
                Ok(mut part) => drop(collect(&mut part).unwrap_err()),
                Err(FormError::Broken(_)) => {}
                Err(other) => panic!("{cut}: {other}"),
            }
        }
    }

    #[test]
    fn boundary_is_parsed_in_every_spelling() {
        for (text, expected) in [
            ("multipart/form-data; boundary=b", Some("b")),
            ("Multipart/Form-Data;charset=utf-8;Boundary=\"a b;\\\"c\"", Some("a b;\"c")),
            (
                "multipart/form-data; boundary=----WebKitFormBoundary7M",
                Some("----WebKitFormBoundary7M"),
            ),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"open", None),
            ("multipart/mixed; boundary=b", None),
            ("text/plain", None),
            ("", None),
        ] {
            let found = boundary(text).ok();
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{text}");
        }
        assert!(boundary(&format!("multipart/form-data; boundary={}", "b".repeat(257))).is_err());
    }

    proptest! {
        #[test]
        fn any_content_survives_the_form(
            content in prop::collection::vec(prop::sample::select(b"\r\n-b1x".to_vec()), 0..200),
            piece in 1_usize..20,
        ) {
            let body = [&file(&content), END].concat();
            let ends = [b"\r\n".as_slice(), &content].concat();
            prop_assume!(memmem::find(&ends, b"\r\n--b-1").is_none());
            prop_assert_eq!(read(&body, piece).unwrap(), content);
        }

        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&[b"--b-1\r\n".as_slice(), &bytes].concat(), 9);
        }
    }
}
