//! TLS settings of clients.

use std::sync::Arc;

use rustls::client::{ResolvesClientCert, WantsClientCert};
use rustls::{ClientConfig, ConfigBuilder};

use crate::server_config::{parse_certificates, root_store};
use crate::{Error, TlsMinimum, requires_extended_master_secret};

/// TLS 1.2 or later and HTTP/1.1, to a server whose certificate one of `cas` (PEM) has signed, with the client certificate
/// `identity`.
///
/// # Errors
/// When `cas` holds no usable certificate.
pub fn client_config(
    identity: Arc<dyn ResolvesClientCert>,
    cas: &str,
) -> Result<ClientConfig, Error> {
    Ok(http1(verifying_builder(cas)?.with_client_cert_resolver(identity)))
}

/// [`client_config`] without a client certificate.
///
/// # Errors
/// When `cas` holds no usable certificate.
pub fn anonymous_client_config(cas: &str) -> Result<ClientConfig, Error> {
    Ok(http1(verifying_builder(cas)?.with_no_client_auth()))
}

fn verifying_builder(cas: &str) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let what = "server CA";
    let roots = root_store(parse_certificates(cas.as_bytes(), what)?, what);
    if roots.is_empty() {
        return Err(Error::None { what });
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(TlsMinimum::default().versions());
    Ok(versions.map_err(Error::Identity)?.with_root_certificates(roots))
}

fn http1(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.require_ems = requires_extended_master_secret();
    config
}
