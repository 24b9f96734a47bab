//! A public registry that manifests name, in a cluster without Internet access: the proxy of all imports responds in
//! its place.

use std::io;

use anyhow::{Context, Result};
use e2e::{HOST, REGISTRY, tls_acceptor};
use testkit::ServerCertificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The registry.
const NAME: &str = "quay.io";
/// No client sends more before it gets a response.
const HEAD_MAX: usize = 8192;

/// The proxy, until it is dropped.
pub struct Quay {
    /// `http://10.98.0.1:12345`
    pub url: String,
    /// The CA of the fake `quay.io`, as PEM.
    pub authority: String,
    listening: JoinHandle<()>,
}

impl Quay {
    /// Starts it: a client that connects to `quay.io` through it gets TLS, and the content of the cluster's registry.
    pub async fn start() -> Result<Self> {
        let server = ServerCertificate::for_names(&[NAME]);
        let tls = tls_acceptor(&server)?;
        let listener = TcpListener::bind((HOST, 0)).await.context("cannot listen")?;
        let url = format!("http://{}", listener.local_addr()?);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A client that disconnects early is no error.
                tokio::spawn(lead(client, tls.clone()));
            }
        });
        Ok(Self { url, authority: server.ca, listening })
    }
}

impl Drop for Quay {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn lead(mut client: TcpStream, tls: TlsAcceptor) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
        head.push(client.read_u8().await?);
    }
    if !head.starts_with(format!("CONNECT {NAME}:443 ").as_bytes()) {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await;
    }
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    let mut client = tls.accept(client).await?;
    let mut registry = TcpStream::connect(REGISTRY).await?;
    copy_bidirectional(&mut client, &mut registry).await.map(|_| ())
}
