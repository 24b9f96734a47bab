//! The lines before a body, written and read.

use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Longer heads are refused: a cookie or two fit, an attack does not.
pub(super) const HEAD_LEN_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// The first lines of a response.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The connection can be used for another request, once the body has been read.
    pub(super) keep: bool,
}

/// A request in the bytes of the wire. `target` is a path with its query, a full address for a proxy, or `host:port`.
pub(super) fn request(method: &str, target: &str, host: &str, headers: &HeaderMap) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\n{HOST}: {host}\r\n").into_bytes();
    for (name, value) in headers.iter().filter(|(name, _)| *name != HOST) {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Reads a head and returns how many bytes it took; `None` while it is not complete. Or what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, String> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut found = httparse::Response::new(&mut lines);
    let len = match found.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_LEN_MAX => {
            return Err(format!("its head is longer than {HEAD_LEN_MAX} bytes"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("its answer is not HTTP ({error})")),
    };
    let code = found.code.unwrap_or_default();
    let status = StatusCode::from_u16(code).map_err(|_| format!("its status is {code}"))?;
    let mut headers = HeaderMap::with_capacity(found.headers.len());
    for line in found.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let value = HeaderValue::from_bytes(line.value);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let keep = found.version == Some(1) && !lists(&headers, CONNECTION, "close");
    Ok(Some((Head { status, headers, keep }, len)))
}

/// Whether a header, which may come several times, has `word` in its list.
pub(super) fn lists(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_written_as_servers_expect_it() {
        let mut headers = HeaderMap::new();
        headers.insert("range", HeaderValue::from_static("bytes=0-9"));
        headers.insert("host", HeaderValue::from_static("other"));
        let bytes = request("GET", "/a?b", "host:81", &headers);
        let expected = "GET /a?b HTTP/1.1\r\nhost: host:81\r\nrange: bytes=0-9\r\n\r\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn a_head_is_complete_refused_or_not_there_yet() {
        type HeadSummary = Option<(u16, bool, usize)>; // status, kept, length
        let table: [(&str, Result<HeadSummary, &str>); 9] = [
            ("HTTP/1.1 200 OK\r\n\r\nbody", Ok(Some((200, true, 19)))),
            ("HTTP/1.1 404 \r\n\r\n", Ok(Some((404, true, 17)))),
            ("HTTP/1.1 200\r\n\r\n", Ok(Some((200, true, 16)))),
            ("HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", Ok(Some((200, false, 38)))),
            ("HTTP/1.0 200 OK\r\n\r\n", Ok(Some((200, false, 19)))),
            ("HTTP/1.1 200 OK\r\nA: b\r\n", Ok(None)),
            ("", Ok(None)),
            ("SSH-2.0-x\r\n", Err("its answer is not HTTP (invalid HTTP version)")),
            ("HTTP/1.1 099 Odd\r\n\r\n", Err("its status is 99")),
        ];
        for (text, expected) in table {
            let found = parse(text.as_bytes());
            let found = found.as_ref().map_err(String::as_str).map(|found| {
                found.as_ref().map(|(head, len)| (head.status.as_u16(), head.keep, *len))
            });
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(HEAD_LEN_MAX));
        assert!(parse(long.as_bytes()).unwrap_err().contains("longer"));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert!(parse(many.as_bytes()).unwrap_err().contains("too many headers"));
    }

    proptest! {
        #[test]
        fn arbitrary_heads_are_read_or_refused(text in "(HTTP/1.[01] [0-9]{3})?[ -~\r\n\\x00-\\xff]{0,300}") {
            if let Ok(Some((_, len))) = parse(text.as_bytes()) {
                prop_assert!(len <= text.len());
            }
        }
    }
}
