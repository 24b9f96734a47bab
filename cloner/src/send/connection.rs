//! One request over one connection, in HTTP/1.1.
//!
//! Not hyper: the cloner sends from an ordinary thread, hands its own buffers to TLS without copying them into frames, and
//! must read the response of a server that stopped reading in the middle of the body (see [`Request::read_early_error`]).
//! Details: docs/decisions/0027-cloner-writes-its-requests-by-hand.md.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use rustls::{ClientConnection, StreamOwned};

use crate::error::Error;

/// Of a response's head.
const HEAD_LEN_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Limit of encrypted bytes before a write to the socket: larger writes wake the receiver less often.
const TLS_BUFFER_LEN: usize = 256 << 10;
/// Of a response's body, which becomes part of an error.
const BODY_LEN_MAX: usize = 512;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A connection without a request yet.
pub(super) struct Connection {
    stream: Stream,
    host: String,
}

/// A response, as far as a caller needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub status: u16,
    /// Value of the requested header.
    pub header: Option<String>,
    body: String,
}

impl Response {
    pub fn into_error(self) -> Error {
        let text = self.body.trim();
        let body = if text.is_empty() { String::new() } else { format!(": {text}") };
        Error::Status { status: self.status, body }
    }
}

fn transport(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Transport { what, source }
}

impl Connection {
    pub fn new(stream: Stream, host: String) -> Self {
        Self { stream, host }
    }

    /// Returns only `header` of a successful response.
    pub fn get(mut self, path: &str, header: &str) -> Result<Response, Error> {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.host);
        self.stream.write_all(head.as_bytes()).map_err(transport("send a request to"))?;
        self.stream.flush().map_err(transport("send a request to"))?;
        let response = read_response(&mut self.stream, header)
            .map_err(transport("receive a response from"))?;
        close(&mut self.stream);
        Ok(response)
    }

    /// Starts a request with a chunked body.
    pub fn start_post(mut self, path: &str, header: (&str, &str)) -> Result<Request, Error> {
        let (name, value) = header;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n{name}: {value}\r\n\r\n",
            self.host
        );
        self.stream.write_all(head.as_bytes()).map_err(transport("send to"))?;
        self.stream.conn.set_buffer_limit(Some(TLS_BUFFER_LEN));
        Ok(Request { stream: self.stream, has_chunk: false })
    }
}

/// A request whose body is being written. Dropping it closes the connection without a last chunk, which no server takes for
/// the end of the body.
pub(super) struct Request {
    stream: Stream,
    /// A chunk was written without its final CRLF.
    has_chunk: bool,
}

/// Each call writes one chunk. Its final CRLF is written with the next one.
impl Write for Request {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = if std::mem::replace(&mut self.has_chunk, true) { "\r\n" } else { "" };
        let head = format!("{end}{:x}\r\n", bytes.len());
        if self.stream.conn.wants_write() {
            // The socket did not accept everything: this returns its error.
            self.stream.write_all(head.as_bytes())?
        } else {
            // Into the TLS buffer, to be sent with the bytes that follow.
            self.stream.conn.writer().write_all(head.as_bytes())?
        }
        self.stream.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Request {
    /// Ends the body and waits for the response.
    pub fn finish(mut self) -> Result<(), Error> {
        let end = if self.has_chunk { "\r\n0\r\n\r\n" } else { "0\r\n\r\n" };
        let ended = self.stream.write_all(end.as_bytes()).and_then(|()| self.stream.flush());
        if let Err(source) = ended {
            return Err(self
                .read_early_error()
                .unwrap_or(Error::Transport { what: "send to", source }));
        }
        let response =
            read_response(&mut self.stream, "").map_err(transport("receive a response from"))?;
        close(&mut self.stream);
        if is_success(response.status) { Ok(()) } else { Err(response.into_error()) }
    }

    /// The error response of a server that stopped reading the body, if it has sent one.
    pub fn read_early_error(&mut self) -> Option<Error> {
        let timeout = std::time::Duration::from_secs(5);
        self.stream.sock.set_read_timeout(Some(timeout)).ok()?;
        let response = read_response(&mut ReceiveOnly(&mut self.stream), "").ok()?;
        (!is_success(response.status)).then(|| response.into_error())
    }
}

/// Reads from a connection that cannot be written any more. `StreamOwned` would first try to send its buffered bytes.
struct ReceiveOnly<'a>(&'a mut Stream);

impl Read for ReceiveOnly<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.conn.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if self.0.conn.read_tls(&mut self.0.sock)? == 0 {
                return Ok(0);
            }
            self.0.conn.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

fn close(stream: &mut Stream) {
    stream.conn.send_close_notify();
    // Request and response are complete: an error here has no consequence.
    let _ = stream.flush();
    let _ = stream.sock.shutdown(Shutdown::Both);
}

/// Skips informational responses (1xx).
fn read_response(stream: &mut impl Read, header: &str) -> io::Result<Response> {
    let malformed = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&bytes).map_err(|_| malformed("the response is not HTTP"))?;
        if let httparse::Status::Complete(head_len) = parsed {
            let status = response.code.unwrap_or_default();
            if (100..200).contains(&status) {
                bytes.drain(..head_len);
                continue;
            }
            let header_value = |name: &str| {
                let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
                found.and_then(|header| std::str::from_utf8(header.value).ok())
            };
            let found = header_value(header).map(str::to_owned);
            let len = header_value("content-length").and_then(|text| text.parse::<usize>().ok());
            let mut body = bytes.split_off(head_len);
            let max = len.unwrap_or(0).min(BODY_LEN_MAX);
            while body.len() < max && !is_success(status) {
                if read_more(stream, &mut body).unwrap_or(0) == 0 {
                    break;
                }
            }
            body.truncate(max);
            let body = String::from_utf8_lossy(&body).escape_debug().to_string();
            return Ok(Response { status, header: found, body });
        }
        if bytes.len() > HEAD_LEN_MAX {
            return Err(malformed("the head of the response is too long"));
        }
        if read_more(stream, &mut bytes)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn read_more(stream: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let max = out.len().min(1);
            self.0.read(&mut out[..max])
        }
    }

    fn read(text: &str) -> io::Result<Response> {
        read_response(&mut Slow(text.as_bytes()), "x-cdi-clone-stream")
    }

    #[test]
    fn response_is_parsed_byte_by_byte() {
        let response = read(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-CDI-Clone-Stream: 1\r\n\r\nxyz",
        )
        .unwrap();
        assert_eq!((response.status, response.header.as_deref()), (200, Some("1")));
        let response =
            read("HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\nno\n such").unwrap();
        assert_eq!(response.header, None);
        assert_eq!(response.into_error().to_string(), "Unexpected status code 404: no\\n such");
        let silent = read("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n").unwrap();
        assert_eq!(silent.into_error().to_string(), "Unexpected status code 500");
    }

    #[test]
    fn malformed_or_endless_response_is_an_error() {
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(100_000));
        for text in ["", "HTTP/1.1 200", "SSH-2.0-x\r\n\r\n"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read_response(&mut endless.as_bytes(), "").is_err());
    }
}
