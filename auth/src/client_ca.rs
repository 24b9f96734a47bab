//! Which CA has signed a client's certificate, for servers that accept several client CAs.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::Error;
use crate::server_config::{CLIENT_CA, parse_certificates, root_store};

/// The CAs of one kind of client. A TLS handshake shows only that a certificate was signed by one of all CAs that the
/// server accepts; this type shows whether it was one of these.
#[derive(Clone)]
pub struct ClientCa(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for ClientCa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClientCa").finish_non_exhaustive()
    }
}

impl ClientCa {
    /// Reads the CA certificates in `pem`.
    ///
    /// # Errors
    /// When the text is not PEM, or holds no CA certificate that can be used.
    pub fn from_pem(pem: &str) -> Result<Self, Error> {
        let roots = root_store(parse_certificates(pem.as_bytes(), CLIENT_CA)?, CLIENT_CA);
        if roots.is_empty() {
            return Err(Error::None { what: CLIENT_CA });
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .map_err(Error::Verifier)?;
        Ok(Self(verifier))
    }

    /// Whether one of these CAs has signed the first certificate of `chain` as that of a client, and it is valid at `now`.
    /// The TLS handshake verifies that the client has the key.
    pub fn has_signed(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> bool {
        let Some((certificate, intermediates)) = chain.split_first() else { return false };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(now);
        self.0.verify_client_cert(certificate, intermediates, now).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::{CertificateAuthority, Identity};

    const HOUR: Duration = Duration::from_secs(3600);

    fn chain(identity: &Identity) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()]
    }

    #[test]
    fn client_certificate_is_accepted_by_signing_ca_and_key_usage() {
        let now = SystemTime::now();
        let make = || CertificateAuthority::create("same name", HOUR, now).unwrap();
        let (ours, theirs) = (make(), make());
        let known = ClientCa::from_pem(&ours.certificate).unwrap();
        let (ours, theirs) = (
            CertificateAuthority::from_identity(&ours).unwrap(),
            CertificateAuthority::from_identity(&theirs).unwrap(),
        );
        let server = ours.server(&["localhost".to_owned()], HOUR, now).unwrap();
        for (case, chain, at, expected) in [
            ("ours", chain(&ours.client("a", HOUR, now).unwrap()), now, true),
            ("too late", chain(&ours.client("a", HOUR, now).unwrap()), now + 2 * HOUR, false),
            ("of another one", chain(&theirs.client("a", HOUR, now).unwrap()), now, false),
            ("a server", chain(&server), now, false),
            ("none", vec![], now, false),
            ("no certificate", vec![CertificateDer::from(vec![0x30])], now, false),
        ] {
            assert_eq!(known.has_signed(&chain, at), expected, "{case}");
        }
        for pem in ["", "nothing"] {
            assert!(ClientCa::from_pem(pem).is_err(), "{pem}");
        }
    }
}
