//! A server with short limits, and a client of it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use runtime::https::{self, InFlight, Limits};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A hang is seen, and a busy machine is waited for.
pub const PATIENT: Duration = Duration::from_secs(60);

/// Nothing ends by itself while a test runs.
pub const NO_TIME_LIMIT: Limits = Limits {
    connections: 16,
    waiting_per_source: None,
    patience: Duration::from_secs(600),
    idle: Duration::from_secs(600),
    sending: Duration::from_secs(600),
    head_bytes: 64 << 10,
    streams: 16,
    lifetime: None,
    farewell: Duration::ZERO,
    only_http1: false,
};

pub struct Server {
    pub address: SocketAddr,
    certificate: CertificateDer<'static>,
    /// One for each upload that was accepted.
    pub accepted: mpsc::UnboundedReceiver<()>,
    _stop: watch::Sender<bool>,
}

impl Server {
    /// Answers `/healthz` at once, `/upload` with the length of the body (accepted before it is read), `/slow` with the
    /// same without accepting, and `/large` with more than a client takes at once.
    pub async fn start(limits: Limits) -> Self {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = certified.cert.der().clone();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop_sender, stop) = watch::channel(false);
        let (sender, accepted) = mpsc::unbounded_channel();
        let service = move |_peer| {
            let sender = sender.clone();
            service_fn(move |request| {
                let sender = sender.clone();
                async move { Ok::<_, Infallible>(answer(request, &sender).await) }
            })
        };
        tokio::spawn(async move {
            https::serve(listener, limits, stop, || Arc::clone(&config), service).await;
        });
        Self { address, certificate, accepted, _stop: stop_sender }
    }

    /// A connection from `source`, with these protocols offered. The handshake is made.
    pub async fn connect(
        &self,
        source: &str,
        protocols: &[&str],
    ) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.connect_tcp(source).await?;
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    pub async fn connect_tcp(&self, source: &str) -> io::Result<TcpStream> {
        connect_tcp(source, self.address).await
    }

    /// The answer to `GET path` by a new connection.
    pub async fn get(&self, source: &str, path: &str) -> String {
        let mut stream = self.connect(source, &["http/1.1"]).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        read_to_end(stream).await
    }
}

/// A connection from one address of this machine.
pub async fn connect_tcp(source: &str, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0))?;
    socket.connect(to).await
}

/// Everything that the server sends until it closes the connection.
pub async fn read_to_end(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(PATIENT, stream.read_to_end(&mut text)).await;
    let _ = read.expect("the server did not hang up"); // perhaps without close_notify
    String::from_utf8_lossy(&text).into_owned()
}

/// HTTP/2 on a new connection. The task ends with the connection, and responds to pings until then.
pub async fn http2(
    stream: TlsStream<TcpStream>,
) -> hyper::Result<(
    hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    tokio::task::JoinHandle<hyper::Result<()>>,
)> {
    let (sender, connection) =
        hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
            .initial_stream_window_size(65_535)
            .initial_connection_window_size(65_535)
            .handshake(TokioIo::new(stream))
            .await?;
    Ok((sender, tokio::spawn(connection)))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

async fn answer(
    request: Request<Incoming>,
    accepted: &mpsc::UnboundedSender<()>,
) -> Response<Full<Bytes>> {
    let text = match request.uri().path() {
        "/healthz" => "OK".to_owned(),
        "/large" => "x".repeat(4 << 20),
        path => {
            if path == "/upload" {
                request.extensions().get::<InFlight>().unwrap().accept();
                let _ = accepted.send(());
            }
            match request.into_body().collect().await {
                Ok(body) => body.to_bytes().len().to_string(),
                Err(_) => String::new(),
            }
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::OK;
    response
}
