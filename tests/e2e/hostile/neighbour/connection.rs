//! Connections that hold a server's resources without a complete request.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::tls::{Clients, Protocol};
use crate::{Kind, request};

/// A server that does not finish the handshake within it refuses.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);
/// The interval between two bytes of a slow request.
const DRIP: Duration = Duration::from_secs(2);
/// Between two pings, or two requests that keep a connection open.
const KEEP: Duration = Duration::from_secs(5);

/// A TLS record that announces a ClientHello of 512 bytes.
const RECORD: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;

/// Plays one connection until the server ends it.
///
/// # Errors
/// When the server does not let it begin.
pub async fn play(kind: Kind, mut socket: TcpStream, tls: &Clients) -> Result<()> {
    match kind {
        Kind::Silent => {
            wait_for_end(&mut socket).await;
            return Ok(());
        }
        Kind::Handshake => {
            drip(&mut socket, RECORD).await;
            return Ok(());
        }
        _ => {}
    }
    let protocol = if kind == Kind::Http2 { Protocol::Http2 } else { Protocol::Http1 };
    let connected = timeout(HANDSHAKE_PATIENCE, tls.connect(protocol, socket)).await;
    let mut stream = connected.context("no handshake")??;
    match kind {
        Kind::Silent | Kind::Handshake => {}
        Kind::Idle => wait_for_end(&mut stream).await,
        Kind::Headers => {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await?;
            drip(&mut stream, &[]).await;
        }
        Kind::Http2 => idle_http2(stream).await?,
        Kind::Health => loop {
            let head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(head).await?;
            let mut answer = [0; 1024];
            if stream.read(&mut answer).await? == 0 {
                return Ok(());
            }
            sleep(KEEP).await;
        },
        Kind::Webhook => request::webhook(stream, 0).await?,
        Kind::LargeWebhook => request::webhook(stream, 1 << 20).await?,
        Kind::Bearer => request::metrics(stream).await?,
        Kind::Upload => request::upload(stream).await?,
    }
    Ok(())
}

async fn wait_for_end(stream: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = [0; 256];
    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}

/// These bytes and then others, one at a time, until the other side has enough of it.
async fn drip(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), first: &[u8]) {
    let mut bytes = first.iter().copied().chain(std::iter::repeat(b'a'));
    let mut answer = [0; 256];
    loop {
        let byte = bytes.next().unwrap_or_default();
        if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        // A response ends it: a refusal, or the end of the connection.
        if timeout(DRIP, stream.read(&mut answer)).await.is_ok() {
            return;
        }
    }
}

/// An HTTP/2 connection with valid frames and no request.
async fn idle_http2(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
    stream.write_all(PREFACE).await?;
    stream.write_all(&frame(SETTINGS, 0, &[])).await?;
    stream.flush().await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (send, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let read = async {
        loop {
            let mut head = [0; 9];
            if reader.read_exact(&mut head).await.is_err() {
                return;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            if reader.read_exact(&mut payload).await.is_err() {
                return;
            }
            let is_answer = head[4] & ACK != 0;
            let answer = match head[3] {
                SETTINGS if !is_answer => frame(SETTINGS, ACK, &[]),
                PING if !is_answer => frame(PING, ACK, &payload),
                _ => continue,
            };
            if send.send(answer).is_err() {
                return;
            }
        }
    };
    let write = async {
        loop {
            let next = timeout(KEEP, answers.recv()).await;
            let bytes = next.ok().flatten().unwrap_or_else(|| frame(PING, 0, &[7; 8]));
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = read => {}, () = write => {} }
    Ok(())
}

/// A frame of the connection itself.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}
