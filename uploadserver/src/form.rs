//! A body of `multipart/form-data`: the content of its first part called `file`, as it comes.
//!
//! Sources: RFC 7578 and RFC 2046, section 5.1. Parts before the file are skipped; what follows it is read and thrown away.
//! What is held in memory is a piece of the body, and the headers of one part, which may not be long.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;
use pipeline::{ByteStream, SourceError};

/// Of a boundary: RFC 2046 allows 70.
const BOUNDARY_LEN_MAX: usize = 256;
/// Of the headers of one part.
const HEADERS_LEN_MAX: usize = 16 << 10;
/// The part that holds the image.
const NAME: &str = "file";

/// Why there is no file in a body.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// The client has to send something else.
    #[error("{0}")]
    Malformed(&'static str),
    /// It did not all come.
    #[error("the body broke off")]
    Broken(#[source] SourceError),
}

/// The boundary that a `Content-Type` names.
///
/// # Errors
/// When it is of no form, or names none that can be used.
pub fn boundary(content_type: &str) -> Result<Vec<u8>, FormError> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(FormError::Malformed("the body is no multipart/form-data"));
    }
    let found = parameter(parameters, "boundary");
    let found = found.filter(|text| !text.is_empty() && text.len() <= BOUNDARY_LEN_MAX);
    found.map(String::into_bytes).ok_or(FormError::Malformed("the form has no boundary"))
}

/// The value of a parameter in `name=value; name="value"`.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (name, behind) = rest.split_once('=')?;
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, behind) = behind.split_once(';').unwrap_or((behind, ""));
                (value.trim().to_owned(), behind)
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
}

/// Up to the quotation mark that ends it, and what is behind that.
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

/// The content of the part.
pub struct FilePart {
    body: Box<dyn ByteStream>,
    /// `\r\n--boundary`: what ends a part.
    delimiter: memmem::Finder<'static>,
    /// Read, and not looked at. Begins with what may be the beginning of a delimiter.
    held: BytesMut,
    ended: bool,
}

impl FilePart {
    /// Reads up to the content of the first part called `file`.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(body: impl ByteStream + 'static, boundary: &[u8]) -> Result<Self, FormError> {
        let delimiter = [b"\r\n--", boundary].concat();
        let delimiter = memmem::Finder::new(&delimiter).into_owned();
        // The first delimiter may stand at the very beginning, without an end of line before it.
        let held = BytesMut::from(&b"\r\n"[..]);
        let mut part = Self { body: Box::new(body), delimiter, held, ended: false };
        loop {
            while part.content()?.is_some() {}
            if part.skip_line()? {
                return Err(FormError::Malformed("the form has no part called file"));
            }
            if is_wanted(&part.headers()?) {
                return Ok(part);
            }
        }
    }

    /// More of the present part; `None` at its delimiter, which is taken away.
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

    /// How many bytes at the end may be the beginning of a delimiter.
    fn possible_beginning(&self) -> usize {
        let needle = self.delimiter.needle();
        let most = self.held.len().min(needle.len() - 1);
        let tail = &self.held[self.held.len() - most..];
        // It begins with the only end of line in it.
        memchr::memrchr(b'\r', tail)
            .filter(|at| needle.starts_with(&tail[*at..]))
            .map_or(0, |at| tail.len() - at)
    }

    /// The rest of the line behind a delimiter: true if it was the last delimiter of all.
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
                    return Err(FormError::Malformed("a boundary of the form is followed by text"));
                }
                // The end of the line stays: a part without headers begins with it.
                self.held.advance(at);
                return Ok(false);
            }
            self.read_within(HEADERS_LEN_MAX)?;
        }
    }

    /// The headers of a part, behind the end of the line before them.
    fn headers(&mut self) -> Result<Bytes, FormError> {
        loop {
            if let Some(at) = memmem::find(&self.held, b"\r\n\r\n") {
                let headers = self.held.split_to(at).freeze();
                self.held.advance(2);
                // The empty line may belong to the delimiter: of a part that has no content.
                while self.held.len() < self.delimiter.needle().len() {
                    self.read()?;
                }
                if !self.held.starts_with(self.delimiter.needle()) {
                    self.held.advance(2);
                }
                return Ok(headers);
            }
            self.read_within(HEADERS_LEN_MAX)?;
        }
    }

    fn read_within(&mut self, most: usize) -> Result<(), FormError> {
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

/// Whether these are the headers of the part that holds the image.
fn is_wanted(headers: &[u8]) -> bool {
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
        // A body that breaks off behind the file has broken off all the same.
        while self.body.next()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::body::testing::{Pieces, collect};

    fn read(body: &[u8], piece: usize) -> Result<Vec<u8>, String> {
        let found = FilePart::find(Pieces::of(body, piece), b"b-1").map_err(|e| e.to_string());
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
    fn the_first_part_called_file_is_found_wherever_pieces_end() {
        let content = b"a disk\r\n--b-2\r\n--b-\r\r\n";
        let whole = [&file(content), END].concat();
        let bare = &whole[2..]; // browsers begin without an empty line
        let after = [&part(NOTE, b"file"), &*whole].concat();
        let preamble = [b"say \r\n--b", &*whole].concat();
        let two = [file(content), file(b"another"), END.to_vec()].concat();
        let nameless = [&part("", b""), &*whole].concat();
        let padded = String::from_utf8(whole.clone()).unwrap().replace("--b-1\r", "--b-1 \t\r");
        for (case, body) in [
            ("whole", &*whole),
            ("bare", bare),
            ("after another part", &after),
            ("behind a preamble", &preamble),
            ("two of them", &two),
            ("behind a part without headers and content", &nameless),
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
    fn a_form_without_a_whole_file_is_refused() {
        let long = format!("X: {}\r\n", "y".repeat(100_000));
        for (case, body, words) in [
            ("empty", vec![], "before its last boundary"),
            ("no form", b"disk".repeat(1000), "before its last boundary"),
            ("no parts", END.to_vec(), "no part called file"),
            ("another part", [&part(NOTE, b"x"), END].concat(), "no part called file"),
            ("no end", file(b"disk"), "before its last boundary"),
            ("long headers", [&part(&long, b"x"), END].concat(), "too long"),
            ("text behind a boundary", b"--b-1 file\r\n".to_vec(), "followed by text"),
        ] {
            for piece in [1, 1000] {
                let error = read(&body, piece).unwrap_err();
                assert!(error.contains(words), "{case}: {error}");
            }
        }
    }

    #[test]
    fn a_body_that_breaks_off_is_no_file() {
        let body = [&file(b"disk"), END].concat();
        for cut in 0..=body.len() {
            let pieces = Pieces::of(&body[..cut], 10).cut();
            match FilePart::find(pieces, b"b-1") {
                Ok(mut part) => drop(collect(&mut part).unwrap_err()),
                Err(FormError::Broken(_)) => {}
                Err(other) => panic!("{cut}: {other}"),
            }
        }
    }

    #[test]
    fn the_boundary_is_read_in_every_spelling() {
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
        fn whatever_the_content_it_arrives_as_it_was(
            content in prop::collection::vec(prop::sample::select(b"\r\n-b1x".to_vec()), 0..200),
            piece in 1_usize..20,
        ) {
            let body = [&file(&content), END].concat();
            let ends = [b"\r\n".as_slice(), &content].concat();
            prop_assume!(memmem::find(&ends, b"\r\n--b-1").is_none());
            prop_assert_eq!(read(&body, piece).unwrap(), content);
        }

        #[test]
        fn any_bytes_are_a_form_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&[b"--b-1\r\n".as_slice(), &bytes].concat(), 9);
        }
    }
}
