//! TLS settings of servers: their certificate, and the CAs of clients.

use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};

use crate::TlsMinimum;

/// Why TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot parse the {what} as PEM")]
    Pem {
        /// `server certificate`, `server key`, `client CA`, `server CA`.
        what: &'static str,
        source: pem::Error,
    },
    #[error("the {what} holds no certificate")]
    None { what: &'static str },
    /// Key and certificate do not match, or the provider does not support them.
    #[error("cannot use the server certificate and its key")]
    Identity(#[source] rustls::Error),
    #[error("cannot create a self-signed certificate")]
    SelfSigned(#[source] rcgen::Error),
    #[error("cannot use the client CA")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// HTTP/1.1 over TLS with `certificate` and `key`. Requests a client certificate signed by `client_ca`; a certificate that is
/// presented has to be valid, but none is required, as the kubelet's probes have none. All three are PEM.
///
/// # Errors
/// See [`Error`].
pub fn server_config(
    certificate: &[u8],
    key: &[u8],
    client_ca: &[u8],
    minimum: &TlsMinimum,
) -> Result<ServerConfig, Error> {
    let chain =
        non_empty(parse_certificates(certificate, "server certificate")?, "server certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|source| Error::Pem { what: "server key", source })?;
    let cas = non_empty(parse_certificates(client_ca, CLIENT_CA)?, CLIENT_CA)?;
    let config = server_config_builder(minimum, Some(root_store(cas, CLIENT_CA)))?
        .with_single_cert(chain, key)
        .map_err(Error::Identity)?;
    Ok(finish_server_config(config, minimum, &["http/1.1"]))
}

pub(crate) const CLIENT_CA: &str = "client CA";

/// Common to all servers, with [`finish_server_config`]. Requests a client certificate signed by one of `clients`, if given; a
/// certificate that is presented has to be valid, but none is required.
///
/// # Errors
/// See [`Error`].
pub fn server_config_builder(
    minimum: &TlsMinimum,
    clients: Option<RootCertStore>,
) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, Error> {
    let provider = Arc::new(minimum.restrict(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(minimum.versions())
        .map_err(Error::Identity)?;
    let Some(clients) = clients else { return Ok(builder.with_no_client_auth()) };
    let verifier = WebPkiClientVerifier::builder_with_provider(clients.into(), provider)
        .allow_unauthenticated()
        .build()
        .map_err(Error::Verifier)?;
    Ok(builder.with_client_cert_verifier(verifier))
}

/// Sets what [`server_config_builder`] cannot: the ALPN protocols, preferred first, and the extension that TLS 1.2 requires on
/// systems in FIPS mode.
pub fn finish_server_config(
    mut config: ServerConfig,
    minimum: &TlsMinimum,
    protocols: &[&str],
) -> ServerConfig {
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.require_ems = minimum.requires_extended_master_secret();
    config
}

/// The trusted CAs. A certificate that cannot be used is skipped and logged.
pub(crate) fn root_store(cas: Vec<CertificateDer<'static>>, what: &'static str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        if let Err(error) = roots.add(ca) {
            tracing::warn!("skipping a certificate of the {what}: {error}");
        }
    }
    roots
}

/// All certificates of a PEM text.
pub(crate) fn parse_certificates(
    text: &[u8],
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Pem { what, source })
}

fn non_empty(
    found: Vec<CertificateDer<'static>>,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    if found.is_empty() { Err(Error::None { what }) } else { Ok(found) }
}
