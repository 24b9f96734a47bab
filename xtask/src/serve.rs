//! A small web server on loopback that serves one file, for the demo: ranges, a strong validator, a chosen speed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;

const HEADER_BYTES_MAX: u64 = 16 * 1024;
const CHUNK: usize = 256 * 1024;

struct ServedFile {
    file: PathBuf,
    length: u64,
    etag: String,
    bytes_per_second: u64,
    /// When the line is free for the next chunk, of whichever connection.
    line_free_at: Mutex<Instant>,
}

/// Serves `file` at every path until the process ends, over a line of so many bytes per second: a person wants to see
/// the progress bar move. Returns the address.
///
/// # Errors
/// When the file cannot be read or no port is free.
pub fn start(file: &Path, bytes_per_second: u64) -> Result<SocketAddr> {
    let length = file.metadata().with_context(|| format!("cannot read {}", file.display()))?.len();
    let etag = format!("\"demo-{length:x}\"");
    let line_free_at = Mutex::new(Instant::now());
    let file = file.to_owned();
    let served = Arc::new(ServedFile { file, length, etag, bytes_per_second, line_free_at });
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    let address = listener.local_addr().context("the server has no address")?;
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let served = Arc::clone(&served);
            // A client may close its connection at any time.
            thread::spawn(move || drop(served.serve_requests(connection)));
        }
    });
    Ok(address)
}

impl ServedFile {
    /// Requests of one connection, one after the other.
    fn serve_requests(&self, connection: TcpStream) -> io::Result<()> {
        let mut out = connection.try_clone()?;
        let mut input = BufReader::new(connection);
        while let Some(request) = Request::read(&mut input)? {
            self.respond(&request, &mut out)?;
        }
        Ok(())
    }

    fn respond(&self, request: &Request, out: &mut TcpStream) -> io::Result<()> {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return out.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
        }
        let range = request
            .range
            .as_deref()
            .filter(|_| request.if_range.as_ref().is_none_or(|validator| *validator == self.etag));
        let (status, from, to) = match range.map(|range| parse_range(range, self.length)) {
            None => ("200 OK", 0, self.length),
            Some(Some((from, to))) => ("206 Partial Content", from, to),
            Some(None) => {
                let length = self.length;
                return write!(
                    out,
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{length}\r\n\
                     Content-Length: 0\r\n\r\n"
                );
            }
        };
        write!(
            out,
            "HTTP/1.1 {status}\r\nAccept-Ranges: bytes\r\nETag: {}\r\nContent-Length: {}\r\n\
             Content-Type: application/octet-stream\r\n",
            self.etag,
            to - from
        )?;
        if range.is_some() {
            write!(out, "Content-Range: bytes {from}-{}/{}\r\n", to - 1, self.length)?;
        }
        out.write_all(b"\r\n")?;
        if request.method == "GET" { self.send(from, to, out) } else { Ok(()) }
    }

    fn send(&self, from: u64, to: u64, out: &mut TcpStream) -> io::Result<()> {
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(from))?;
        let mut body = file.take(to - from);
        let mut chunk = vec![0; CHUNK];
        loop {
            let got = body.read(&mut chunk)?;
            if got == 0 {
                return Ok(());
            }
            self.wait_for_the_line(got);
            out.write_all(&chunk[..got])?;
        }
    }

    fn wait_for_the_line(&self, bytes: usize) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let ours = {
            let mut free_at = self.line_free_at.lock();
            let ours = (*free_at).max(Instant::now());
            *free_at = ours + takes;
            ours
        };
        thread::sleep(ours.saturating_duration_since(Instant::now()));
    }
}

/// The little of a request that matters here.
#[derive(Default)]
struct Request {
    method: String,
    range: Option<String>,
    if_range: Option<String>,
}

impl Request {
    /// `None`: the client has no more.
    fn read(input: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = input.take(HEADER_BYTES_MAX);
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let method = line.split(' ').next().unwrap_or_default().to_owned();
        let mut request = Self { method, ..Self::default() };
        loop {
            line.clear();
            if head.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some((name, value)) = line.trim_end().split_once(':') else {
                return Ok(Some(request)); // the empty line
            };
            match name.to_ascii_lowercase().as_str() {
                "range" => request.range = Some(value.trim().to_owned()),
                "if-range" => request.if_range = Some(value.trim().to_owned()),
                _ => (),
            }
        }
    }
}

/// `bytes=a-b`, `bytes=a-` or `bytes=-n` as a half-open range; `None` when it cannot be satisfied.
fn parse_range(text: &str, length: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = if first.is_empty() {
        (length.saturating_sub(last.parse().ok()?), length)
    } else if last.is_empty() {
        (first.parse().ok()?, length)
    } else {
        (first.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?.min(length))
    };
    (from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_range_syntax_is_parsed() {
        let check = |text, expected| assert_eq!(parse_range(text, 10), expected, "{text}");
        check("bytes=0-0", Some((0, 1)));
        check("bytes=2-", Some((2, 10)));
        check("bytes=2-99", Some((2, 10)));
        check("bytes=-3", Some((7, 10)));
        check("bytes=-99", Some((0, 10)));
        check("bytes=10-", None);
        check("bytes=5-4", None);
        check("bytes=x-", None);
        check("lines=1-2", None);
    }

    #[test]
    fn response_holds_the_requested_range() {
        let file = std::env::temp_dir().join(format!("xtask-serve-{}", std::process::id()));
        std::fs::write(&file, b"0123456789").unwrap();
        let address = start(&file, u64::MAX).unwrap();
        let mut connection = TcpStream::connect(address).unwrap();
        let request = "GET /x HTTP/1.1\r\nHost: h\r\nRange: bytes=3-5\r\n\r\n";
        connection.write_all(request.as_bytes()).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(response.starts_with("HTTP/1.1 206 "), "{response}");
        assert!(response.contains("Content-Range: bytes 3-5/10\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n345"), "{response}");
    }
}
