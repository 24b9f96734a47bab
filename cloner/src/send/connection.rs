//! One request over one connection, in HTTP/1.1 as old upload servers have always seen it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use rustls::{ClientConnection, StreamOwned};

use crate::error::Error;

/// An answer's head is no longer than that.
const HEAD_LEN_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// So much is encrypted before it is handed to the system: what comes in larger pieces wakes its receiver less often.
const GATHER: usize = 256 << 10;
/// As much of a server's words as is worth telling.
const WORDS_MAX: usize = 512;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A connection on which nothing was said yet.
pub(super) struct Connection {
    stream: Stream,
    host: String,
}

/// A server's answer, as much of it as anybody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    /// Of the one header that was asked for.
    pub header: Option<String>,
    words: String,
}

impl Answer {
    pub fn into_refusal(self) -> Error {
        let words = self.words.trim();
        let said = if words.is_empty() { String::new() } else { format!(": {words}") };
        Error::Status { status: self.status, said }
    }
}

fn transport(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Transport { what, source }
}

impl Connection {
    pub fn new(stream: Stream, host: String) -> Self {
        Self { stream, host }
    }

    /// Asks for something, of whose answer only this header matters.
    pub fn get(mut self, path: &str, header: &str) -> Result<Answer, Error> {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.host);
        self.stream.write_all(head.as_bytes()).map_err(transport("ask"))?;
        self.stream.flush().map_err(transport("ask"))?;
        let answer = answer(&mut self.stream, header).map_err(transport("hear from"))?;
        close(&mut self.stream);
        Ok(answer)
    }

    /// Begins a request with a body of which nobody knows the length.
    pub fn post(mut self, path: &str, header: (&str, &str)) -> Result<Request, Error> {
        let (name, value) = header;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n{name}: {value}\r\n\r\n",
            self.host
        );
        self.stream.write_all(head.as_bytes()).map_err(transport("send to"))?;
        self.stream.conn.set_buffer_limit(Some(GATHER));
        Ok(Request { stream: self.stream, has_begun: false })
    }
}

/// A request whose body is being written. Dropped, it breaks off, which no server takes for an end.
pub(super) struct Request {
    stream: Stream,
    /// There was a chunk, whose end is still to be written.
    has_begun: bool,
}

/// Each call is a chunk of its own, whose end goes with what follows it.
impl Write for Request {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let end = if std::mem::replace(&mut self.has_begun, true) { "\r\n" } else { "" };
        let head = format!("{end}{:x}\r\n", bytes.len());
        match self.stream.conn.wants_write() {
            // It goes with the bytes that follow.
            false => self.stream.conn.writer().write_all(head.as_bytes())?,
            // The connection is in trouble, of which this hears.
            true => self.stream.write_all(head.as_bytes())?,
        }
        self.stream.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Request {
    /// Ends the body and waits for the answer.
    pub fn finish(mut self) -> Result<(), Error> {
        let end = if self.has_begun { "\r\n0\r\n\r\n" } else { "0\r\n\r\n" };
        let ended = self.stream.write_all(end.as_bytes()).and_then(|()| self.stream.flush());
        if let Err(source) = ended {
            return Err(self.refusal().unwrap_or(Error::Transport { what: "send to", source }));
        }
        let answer = answer(&mut self.stream, "").map_err(transport("hear from"))?;
        close(&mut self.stream);
        if is_success(answer.status) { Ok(()) } else { Err(answer.into_refusal()) }
    }

    /// What a server that takes no more has said before it closed, if anything.
    pub fn refusal(&mut self) -> Option<Error> {
        let patience = std::time::Duration::from_secs(5);
        self.stream.sock.set_read_timeout(Some(patience)).ok()?;
        let answer = answer(&mut Heard(&mut self.stream), "").ok()?;
        (!is_success(answer.status)).then(|| answer.into_refusal())
    }
}

/// What was said to us, where nothing can be said any more: an ordinary read would first try to send what is left to send.
struct Heard<'a>(&'a mut Stream);

impl Read for Heard<'_> {
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
    // Everything was said: nobody minds how it ends.
    let _ = stream.flush();
    let _ = stream.sock.shutdown(Shutdown::Both);
}

/// The next final answer.
fn answer(stream: &mut impl Read, header: &str) -> io::Result<Answer> {
    let malformed = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&bytes).map_err(|_| malformed("the answer is not HTTP"))?;
        if let httparse::Status::Complete(head_len) = parsed {
            let status = response.code.unwrap_or_default();
            if (100..200).contains(&status) {
                bytes.drain(..head_len);
                continue;
            }
            let of = |name: &str| {
                let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
                found.and_then(|header| std::str::from_utf8(header.value).ok())
            };
            let found = of(header).map(str::to_owned);
            let len = of("content-length").and_then(|text| text.parse::<usize>().ok());
            let mut words = bytes.split_off(head_len);
            let most = len.unwrap_or(0).min(WORDS_MAX);
            while words.len() < most && !is_success(status) {
                if more(stream, &mut words).unwrap_or(0) == 0 {
                    break;
                }
            }
            words.truncate(most);
            let words = String::from_utf8_lossy(&words).escape_debug().to_string();
            return Ok(Answer { status, header: found, words });
        }
        if bytes.len() > HEAD_LEN_MAX {
            return Err(malformed("the answer does not end"));
        }
        if more(stream, &mut bytes)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn more(stream: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(count) => {
                bytes.extend_from_slice(&piece[..count]);
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

    /// Hands out one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let most = out.len().min(1);
            self.0.read(&mut out[..most])
        }
    }

    fn read(text: &str) -> io::Result<Answer> {
        answer(&mut Slow(text.as_bytes()), "x-cdi-clone-stream")
    }

    #[test]
    fn an_answer_is_read_however_it_comes() {
        let answer = read(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-CDI-Clone-Stream: 1\r\n\r\nxyz",
        )
        .unwrap();
        assert_eq!((answer.status, answer.header.as_deref()), (200, Some("1")));
        let answer = read("HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\nno\n such").unwrap();
        assert_eq!(answer.header, None);
        assert_eq!(answer.into_refusal().to_string(), "Unexpected status code 404: no\\n such");
        let silent = read("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n").unwrap();
        assert_eq!(silent.into_refusal().to_string(), "Unexpected status code 500");
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(100_000));
        for text in ["", "HTTP/1.1 200", "SSH-2.0-x\r\n\r\n"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(answer(&mut endless.as_bytes(), "").is_err());
    }
}
