//! TLS for clients that do not verify, as monitoring does not.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::certificates::asking;
use crate::{Error, Floor, LiveTls};

/// What a server shows that nobody has to believe: a certificate that vouches for nothing, made when it starts, and made
/// again when other settings of TLS count. It speaks HTTP/1.1 alone.
#[derive(Debug)]
pub struct UnverifiedServer(LiveTls);

impl UnverifiedServer {
    /// With these settings at first.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn new(floor: Floor) -> Result<Self, Error> {
        LiveTls::unverified(&floor).map(Self)
    }

    /// For the next connection, with these settings. Where they cannot be, those from before stay.
    pub fn config(&self, floor: &Floor) -> Arc<ServerConfig> {
        self.0.config(floor, "")
    }
}

pub(crate) fn self_signed(floor: &Floor) -> Result<ServerConfig, Error> {
    let pair = KeyPair::generate().map_err(Error::Make)?;
    let parameters = CertificateParams::new(Vec::new()).map_err(Error::Make)?;
    let certificate = parameters.self_signed(&pair).map_err(Error::Make)?;
    let key = PrivatePkcs8KeyDer::from(pair.serialize_der());
    let mut config = asking(floor, None)?
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .map_err(Error::Identity)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_again_for_other_settings_alone() {
        let server = UnverifiedServer::new(Floor::default()).unwrap();
        let first = server.config(&Floor::default());
        assert!(Arc::ptr_eq(&first, &server.config(&Floor::default())));
        let other = Floor::parse("VersionTLS13", "").unwrap();
        let second = server.config(&other);
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &server.config(&other)));
        assert_eq!(second.alpn_protocols, [b"http/1.1"]);
    }
}
