//! TLS for whoever calls a server that has to know them.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;

use crate::certificates::{certificates, trusting};
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
    let roots = trusting(certificates(authorities.as_bytes(), what)?, what);
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
