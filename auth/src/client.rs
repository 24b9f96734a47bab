//! TLS for whoever calls a server that has to know them.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::{Error, Floor};

/// TLS 1.2 or later and HTTP/1.1, to a server that one of `authorities` (PEM) vouches for; `identity` is shown to it.
///
/// # Errors
/// When there is no authority among them.
pub fn calling(
    identity: Arc<dyn ResolvesClientCert>,
    authorities: &str,
) -> Result<ClientConfig, Error> {
    let what = "server authority";
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        let authority = authority.map_err(|source| Error::Pem { what, source })?;
        if let Err(error) = roots.add(authority) {
            tracing::warn!("a certificate of the {what} is left out: {error}");
        }
    }
    if roots.is_empty() {
        return Err(Error::None { what });
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(Floor::default().versions())
        .map_err(Error::Identity)?
        .with_root_certificates(roots)
        .with_client_cert_resolver(identity);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
