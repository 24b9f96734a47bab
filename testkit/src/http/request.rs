//! A request as the server read it.

use std::io::{self, Read};
use std::ops::Range;

/// A request of a client. The server keeps it for the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which GET of the server's life this is, counted from 1. 0 for all else.
    pub number: u64,
    /// Which connection it came on, counted from 1.
    pub connection: u64,
    /// `GET`, `HEAD`, `CONNECT`.
    pub method: String,
    /// Path and query, or for a proxy the whole URL or authority.
    pub target: String,
    /// Names in lower case, values trimmed.
    pub headers: Vec<(String, String)>,
    /// The status code of the response; 0 without a response.
    pub status: u16,
}

impl Request {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| &**value)
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    /// Whether it is a GET.
    pub fn is_get(&self) -> bool {
        self.method == "GET"
    }

    /// The range as in the request, without its unit: `0-`, `512-1023`. `None`: the request has no range.
    pub fn range(&self) -> Option<&str> {
        self.header("range")?.strip_prefix("bytes=")
    }

    /// The bytes of an image of `len` bytes that the range names. `None`: no single, satisfiable range.
    pub(super) fn wanted(&self, len: u64) -> Option<Range<u64>> {
        let (first, last) = self.range()?.split_once('-')?;
        let range = match (first.trim(), last.trim()) {
            ("", count) => len.saturating_sub(count.parse().ok()?)..len,
            (first, "") => first.parse().ok()?..len,
            (first, last) => {
                first.parse().ok()?..last.parse::<u64>().ok()?.saturating_add(1).min(len)
            }
        };
        (!range.is_empty()).then_some(range)
    }

    /// Reads the next head from a connection. `None`: the client has gone, or speaks something else.
    pub(crate) fn read(stream: &mut impl Read, connection: u64) -> io::Result<Option<Self>> {
        let mut head = Vec::new();
        let mut byte = [0];
        // A byte at a time: nothing behind the head is swallowed. Heads are few and short here.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD_MAX || stream.read(&mut byte)? == 0 {
                return Ok(None);
            }
            head.push(byte[0]);
        }
        Ok(Self::parse(&String::from_utf8_lossy(&head), connection))
    }

    fn parse(head: &str, connection: u64) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        words.next()?.strip_prefix("HTTP/1.")?;
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Some(Self { number: 0, connection, method, target, headers, status: 0 })
    }
}

/// Bytes of a head: as generous as common servers.
const HEAD_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_image() {
        let wanted = |range: &str| {
            let head = format!("GET /image HTTP/1.1\r\nRange: bytes={range}\r\n\r\n");
            Request::read(&mut head.as_bytes(), 1).unwrap().unwrap().wanted(100)
        };
        assert_eq!(wanted("0-"), Some(0..100));
        assert_eq!(wanted("10-19"), Some(10..20));
        assert_eq!(wanted("90-200"), Some(90..100));
        assert_eq!(wanted("-5"), Some(95..100));
        assert_eq!(wanted("100-"), None);
        assert_eq!(wanted("x-"), None);
    }
}
