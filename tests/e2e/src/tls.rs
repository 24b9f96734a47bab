//! TLS for servers that tests run on this machine.

use std::sync::Arc;

use anyhow::Result;
use testkit::ServerCertificate;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Accepts connections of any client, with this certificate.
///
/// # Errors
/// When the certificate or its key cannot be used.
pub fn tls_acceptor(server: &ServerCertificate) -> Result<TlsAcceptor> {
    let certificate = CertificateDer::from_pem_slice(server.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes())?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
