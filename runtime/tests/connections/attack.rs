//! Connections that occupy slots without a complete request.

use http::Request;
use http_body_util::Full;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::server::{Server, http2};

#[derive(Clone, Copy, Debug)]
pub enum Attack {
    Silent,
    HalfHandshake,
    /// No byte after the handshake, and no protocol named in it.
    SilentAfterHandshake,
    SlowHeader,
    /// A request that no handler accepts, and whose body never ends.
    SlowBody,
    /// It has made a request, and responds to pings.
    IdleHttp2,
}

impl Attack {
    pub const ALL: [Self; 6] = [
        Self::Silent,
        Self::HalfHandshake,
        Self::SilentAfterHandshake,
        Self::SlowHeader,
        Self::SlowBody,
        Self::IdleHttp2,
    ];
}

/// Keeps an attacker's connection open.
pub enum Held {
    Tcp(#[expect(dead_code, reason = "it is held")] TcpStream),
    Tls(#[expect(dead_code, reason = "it is held")] Box<TlsStream<TcpStream>>),
    Http2(#[expect(dead_code, reason = "it is held")] Box<dyn Send>),
}

/// One connection; `None` if the server closed it before.
pub async fn attack(server: &Server, source: &str, attack: Attack) -> Option<Held> {
    match attack {
        Attack::Silent => server.connect_tcp(source).await.ok().map(Held::Tcp),
        Attack::HalfHandshake => {
            let mut stream = server.connect_tcp(source).await.ok()?;
            // The head of a record of 512 bytes, the head of a ClientHello, and no more.
            stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.ok()?;
            Some(Held::Tcp(stream))
        }
        Attack::SilentAfterHandshake => {
            Some(Held::Tls(Box::new(server.connect(source, &[]).await.ok()?)))
        }
        Attack::SlowHeader => {
            send(server, source, "POST /slow HTTP/1.1\r\nHost: localhost\r\nX-A: ").await
        }
        Attack::SlowBody => {
            send(
                server,
                source,
                "POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
            )
            .await
        }
        Attack::IdleHttp2 => {
            let stream = server.connect(source, &["h2"]).await.ok()?;
            let (mut sender, connection) = http2(stream).await.ok()?;
            let request = Request::get("https://localhost/healthz").body(Full::default()).unwrap();
            sender.send_request(request).await.ok()?;
            Some(Held::Http2(Box::new((sender, connection))))
        }
    }
}

async fn send(server: &Server, source: &str, text: &str) -> Option<Held> {
    let mut stream = server.connect(source, &["http/1.1"]).await.ok()?;
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    Some(Held::Tls(Box::new(stream)))
}
