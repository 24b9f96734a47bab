//! TLS for whoever calls a server that has to know them.

use std::sync::Arc;

use rustls::client::{ResolvesClientCert, WantsClientCert};
use rustls::{ClientConfig, ConfigBuilder};

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
    Ok(http(verifying(authorities)?.with_client_cert_resolver(identity)))
}

/// The same for whoever asks for what everybody may know, and shows nothing.
///
/// # Errors
/// When there is no authority among them.
pub fn asking(authorities: &str) -> Result<ClientConfig, Error> {
    Ok(http(verifying(authorities)?.with_no_client_auth()))
}

fn verifying(authorities: &str) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let what = "server authority";
    let roots = trusting(certificates(authorities.as_bytes(), what)?, what);
    if roots.is_empty() {
        return Err(Error::None { what });
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(Floor::default().versions());
    Ok(versions.map_err(Error::Identity)?.with_root_certificates(roots))
}

fn http(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}
