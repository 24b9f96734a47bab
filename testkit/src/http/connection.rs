//! One connection: reads requests, and sends the scripted responses.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::fault::Fault;
use super::reply::{Body, Break, Reply, reply};
use super::request::Request;
use super::{Content, Shared};

/// Nothing here takes longer: a forgotten client ends by itself.
const PATIENCE: Duration = Duration::from_secs(120);
const PIECE: u64 = 64 << 10;

/// Serves until either side closes. A client that disconnects early is no error.
pub(super) fn serve(stream: TcpStream, number: u64, shared: &Shared) {
    let Ok(twin) = stream.try_clone() else { return };
    let mut state = shared.lock();
    state.connections.retain(|open| open.peer_addr().is_ok());
    state.connections.push(twin);
    drop(state);
    if shared.stopping.load(Ordering::SeqCst) {
        return;
    }
    let patient = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    if patient.is_err() || stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(socket) = stream.try_clone() else { return };
    // A client that disconnects early is no error.
    let _ = match shared.tls.get() {
        None => converse(&mut &stream, number, shared).map(drop),
        Some(authority) => rustls::ServerConnection::new(authority.config.clone())
            .map_err(io::Error::other)
            .and_then(|tls| {
                converse_in_tls(&mut rustls::StreamOwned::new(tls, stream), number, shared)
            }),
    };
    let _ = socket.shutdown(Shutdown::Both);
}

/// Sends close_notify only if the last body was complete: a body that breaks off is cut without it, as an attacker would.
fn converse_in_tls(
    stream: &mut rustls::StreamOwned<rustls::ServerConnection, TcpStream>,
    number: u64,
    shared: &Shared,
) -> io::Result<()> {
    if converse(stream, number, shared)? {
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    Ok(())
}

/// Responds until either side closes. Returns whether the last response was sent whole.
fn converse(stream: &mut (impl Read + Write), number: u64, shared: &Shared) -> io::Result<bool> {
    while let Some(request) = Request::read(stream, number)? {
        let (reply, content) = decide(request, shared);
        let whole = send(stream, &reply, &content, shared)?;
        if !whole || reply.close {
            stream.flush()?;
            return Ok(whole);
        }
    }
    Ok(true)
}

/// Logs the request, and determines its response.
fn decide(mut request: Request, shared: &Shared) -> (Reply, Content) {
    let mut state = shared.lock();
    if request.is_get() {
        state.gets += 1;
        request.number = state.gets;
    }
    let len = state.content.len();
    let rules = state.rules.iter().filter(|rule| rule.falls_on(&request, len));
    let faults: Vec<Fault> = rules.map(|rule| rule.fault.clone()).collect();
    if faults.contains(&Fault::ChangeEtag) {
        state.generation += 1;
    }
    let reply = reply(&request, len, &format!("generation-{}", state.generation), &faults);
    request.status = if reply.silent.is_some() { 0 } else { reply.status };
    state.requests.push(request);
    (reply, state.content.clone())
}

/// Returns whether the response was sent whole.
fn send(
    stream: &mut impl Write,
    reply: &Reply,
    content: &Content,
    shared: &Shared,
) -> io::Result<bool> {
    pause(shared, reply.delay);
    if let Some(bytes) = reply.silent {
        stream.write_all(bytes)?;
        return Ok(false);
    }
    let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all((head + "\r\n").as_bytes())?;
    stream.flush()?;
    match &reply.body {
        Body::None => {}
        Body::Text(text) => stream.write_all(text.as_bytes())?,
        Body::Image(range) => {
            let started = Instant::now();
            let mut at = range.start;
            while at < range.end || reply.breaks.is_some() {
                let sent = at - range.start;
                let until_break =
                    reply.breaks.map_or(u64::MAX, |(place, _)| place.saturating_sub(sent));
                if until_break == 0 || at == range.end {
                    stream.flush()?;
                    if reply.breaks.is_some_and(|(_, how)| how == Break::Stall) {
                        stall(shared);
                    }
                    return Ok(false);
                }
                // Slow bodies come in small pieces, ten a second or more.
                let piece = reply.rate.map_or(PIECE, |rate| (rate / 10).clamp(1, PIECE));
                let bytes = content.read(at, piece.min(range.end - at).min(until_break))?;
                if reply.chunked {
                    stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes())?;
                }
                stream.write_all(&bytes)?;
                if reply.chunked {
                    stream.write_all(b"\r\n")?;
                }
                at += bytes.len() as u64;
                shared.body_sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
                if let Some(rate) = reply.rate {
                    stream.flush()?;
                    let due = Duration::from_secs_f64((at - range.start) as f64 / rate as f64);
                    pause(shared, due.saturating_sub(started.elapsed()));
                }
            }
            if reply.chunked {
                stream.write_all(b"0\r\n\r\n")?;
            }
        }
    }
    stream.flush()?;
    Ok(true)
}

/// Stands still until the server is healed or dropped.
fn stall(shared: &Shared) {
    let mut state = shared.lock();
    state.stalled += 1;
    shared.changed.notify_all();
    let deadline = Instant::now() + PATIENCE;
    while !state.rules.is_empty()
        && !shared.stopping.load(Ordering::SeqCst)
        && Instant::now() < deadline
    {
        let step = Duration::from_millis(200);
        shared.changed.wait_for(&mut state, step);
    }
    state.stalled -= 1;
}

/// Waits, unless the server is dropped.
fn pause(shared: &Shared, time: Duration) {
    let deadline = Instant::now() + time.min(PATIENCE);
    while !shared.stopping.load(Ordering::SeqCst) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

impl Content {
    fn read(&self, at: u64, len: u64) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => Ok(bytes[at as usize..(at + len) as usize].to_vec()),
            Self::File(file, _) => {
                let mut bytes = vec![0; len as usize];
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes)
            }
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        410 => "Gone",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unnamed",
    }
}
