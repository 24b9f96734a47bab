//! TLS to a server with any certificate: an attacker does not verify it.

use std::sync::Arc;

use anyhow::Result;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme,
};

/// Clients that speak HTTP/1.1, and HTTP/2.
#[derive(Clone)]
pub struct Clients {
    http1: TlsConnector,
    http2: TlsConnector,
}

/// The protocol to negotiate.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Clients {
    pub fn new() -> Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let of = |protocol: &str| -> Result<TlsConnector> {
            let mut config = ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Any(provider.clone())))
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.into()];
            // Each connection costs the server a whole handshake.
            config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
            Ok(TlsConnector::from(Arc::new(config)))
        };
        Ok(Self { http1: of("http/1.1")?, http2: of("h2")? })
    }

    pub async fn connect(
        &self,
        protocol: Protocol,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>> {
        let connector = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        let name = ServerName::try_from("localhost")?;
        Ok(connector.connect(name, socket).await?)
    }
}

#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _authorities: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
