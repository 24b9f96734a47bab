//! What a server proves itself with, and whom it asks to do the same.

use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};

use crate::Floor;

/// Why no TLS can be spoken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not what it should be.
    #[error("the {what} cannot be used")]
    Pem {
        /// `server certificate`, `server key`, `client authority`.
        what: &'static str,
        /// What is wrong with the text.
        source: pem::Error,
    },
    /// A text without certificates.
    #[error("the {what} holds no certificate")]
    None {
        /// As above.
        what: &'static str,
    },
    /// Key and certificate are none of one another, or the provider does not know them.
    #[error("the server certificate and its key cannot be used")]
    Identity(#[source] rustls::Error),
    /// No certificate can be made.
    #[error("no certificate can be made")]
    Make(#[source] rcgen::Error),
    /// No client could ever prove itself.
    #[error("the client authority cannot be used")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// HTTP/1.1 over TLS with `certificate` and `key`. Clients are asked for a certificate of `client_authority`; one that is
/// shown has to be good, but none has to be shown: probes of the kubelet have none. All three are PEM.
///
/// # Errors
/// See [`Error`].
pub fn server_config(
    certificate: &[u8],
    key: &[u8],
    client_authority: &[u8],
    floor: &Floor,
) -> Result<ServerConfig, Error> {
    let chain = some(certificates(certificate, "server certificate")?, "server certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|source| Error::Pem { what: "server key", source })?;
    let authorities = some(certificates(client_authority, CLIENTS)?, CLIENTS)?;
    let mut config = asking(floor, Some(trusting(authorities, CLIENTS)))?
        .with_single_cert(chain, key)
        .map_err(Error::Identity)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What messages call those who vouch for clients.
pub(crate) const CLIENTS: &str = "client authority";

/// The part that all servers have in common: clients are asked for a certificate of `clients`, if there is anybody; one
/// that is shown has to be good, but none has to be shown.
pub(crate) fn asking(
    floor: &Floor,
    clients: Option<RootCertStore>,
) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, Error> {
    let provider = Arc::new(floor.restrict(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(floor.versions())
        .map_err(Error::Identity)?;
    let Some(clients) = clients else { return Ok(builder.with_no_client_auth()) };
    let verifier = WebPkiClientVerifier::builder_with_provider(clients.into(), provider)
        .allow_unauthenticated()
        .build()
        .map_err(Error::Verifier)?;
    Ok(builder.with_client_cert_verifier(verifier))
}

/// Whom to believe. An authority that cannot be used is left out, and that is said.
pub(crate) fn trusting(
    authorities: Vec<CertificateDer<'static>>,
    what: &'static str,
) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        if let Err(error) = roots.add(authority) {
            tracing::warn!("a certificate of the {what} is left out: {error}");
        }
    }
    roots
}

/// All certificates of a PEM text.
pub(crate) fn certificates(
    text: &[u8],
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Pem { what, source })
}

fn some(
    found: Vec<CertificateDer<'static>>,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    if found.is_empty() { Err(Error::None { what }) } else { Ok(found) }
}
