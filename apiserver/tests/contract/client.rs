//! A client of the program.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use auth::Identity;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use runtime::send_only_request;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

pub struct Client {
    address: SocketAddr,
    /// Where it calls from, if that matters.
    source: Option<Ipv4Addr>,
    connector: TlsConnector,
    headers: Vec<(&'static str, &'static str)>,
}

#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Client {
    pub fn new(
        address: SocketAddr,
        ca: &str,
        identity: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some(identity) => {
                let chain =
                    CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![chain], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let connector = TlsConnector::from(Arc::new(config));
        Self { address, source: None, connector, headers: Vec::new() }
    }

    /// From this loopback address.
    pub fn from(mut self, source: Ipv4Addr) -> Self {
        self.source = Some(source);
        self
    }

    /// With this header in every request.
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Each call has a connection of its own.
    pub async fn try_call(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> io::Result<HttpResponse> {
        let socket = TcpSocket::new_v4()?;
        if let Some(source) = self.source {
            socket.bind((source, 0).into())?;
        }
        let stream = socket.connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = self.connector.connect(name, stream).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", kind);
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).unwrap();
        let response = send_only_request(sender, request).await;
        let (head, body) = response.map_err(io::Error::other)?.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Ok(HttpResponse { status: head.status, headers: head.headers, body })
    }

    pub async fn try_get(&self, path: &str) -> io::Result<HttpResponse> {
        self.try_call(Method::GET, path, "application/json", Bytes::new()).await
    }

    pub async fn get(&self, path: &str) -> HttpResponse {
        self.try_get(path).await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &str) -> HttpResponse {
        let body = Bytes::from(body.to_owned());
        self.try_call(Method::POST, path, "application/json", body).await.unwrap()
    }
}
