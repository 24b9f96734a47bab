//! TLS for clients that do not verify the certificate, as monitoring does not.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::server_config::{finish_server_config, server_config_builder};
use crate::{Error, ReloadableTls, TlsMinimum};

/// HTTP/1.1 over TLS with a self-signed certificate, which is created at the start and again when the TLS settings
/// change.
#[derive(Debug)]
pub struct UnverifiedServer(ReloadableTls);

impl UnverifiedServer {
    ///
    /// # Errors
    /// When no certificate can be created.
    pub fn new(minimum: TlsMinimum) -> Result<Self, Error> {
        ReloadableTls::unverified(&minimum).map(Self)
    }

    /// For the next connection. If `minimum` cannot be used, the previous settings stay.
    pub fn config(&self, minimum: &TlsMinimum) -> Arc<ServerConfig> {
        self.0.config(minimum, "")
    }
}

pub(crate) fn self_signed(minimum: &TlsMinimum) -> Result<ServerConfig, Error> {
    let pair = KeyPair::generate().map_err(Error::SelfSigned)?;
    let parameters = CertificateParams::new(Vec::new()).map_err(Error::SelfSigned)?;
    let certificate = parameters.self_signed(&pair).map_err(Error::SelfSigned)?;
    let key = PrivatePkcs8KeyDer::from(pair.serialize_der());
    let config = server_config_builder(minimum, None)?
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .map_err(Error::Identity)?;
    Ok(finish_server_config(config, minimum, &["http/1.1"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_recreated_only_for_changed_settings() {
        let server = UnverifiedServer::new(TlsMinimum::default()).unwrap();
        let first = server.config(&TlsMinimum::default());
        assert!(Arc::ptr_eq(&first, &server.config(&TlsMinimum::default())));
        let other = TlsMinimum::parse("VersionTLS13", "").unwrap();
        let second = server.config(&other);
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &server.config(&other)));
        assert_eq!(second.alpn_protocols, [b"http/1.1"]);
    }
}
