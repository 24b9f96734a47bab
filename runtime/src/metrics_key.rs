//! By what a controller knows a worker again: a key that it made up for that worker alone.
//!
//! A worker's certificate is made when it starts, so nobody could vouch for it. Instead the controller hands the worker
//! a key by its environment, and takes answers from nobody who cannot sign with it. Whoever may read the pod could
//! answer in its stead; they may as well change the pod.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

const SEED_LEN: usize = 32;
/// What stands before the seed of an Ed25519 key in PKCS #8 (RFC 8410).
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A worker's key, written as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct MetricsKey([u8; SEED_LEN]);

impl fmt::Debug for MetricsKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// The text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key of metrics has 64 hexadecimal digits")]
pub struct BadMetricsKey;

impl FromStr for MetricsKey {
    type Err = BadMetricsKey;

    fn from_str(text: &str) -> Result<Self, BadMetricsKey> {
        let digits = text.as_bytes();
        if digits.len() != 2 * SEED_LEN || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(BadMetricsKey);
        }
        let mut seed = [0; SEED_LEN];
        for (byte, at) in seed.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| BadMetricsKey)?;
        }
        Ok(Self(seed))
    }
}

impl MetricsKey {
    /// A new one, from the kernel's random numbers.
    ///
    /// # Errors
    /// When the kernel has none.
    pub fn random() -> std::io::Result<Self> {
        crate::random_bytes().map(Self)
    }

    /// As it is written in a worker's environment.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// To sign with.
    pub(crate) fn pair(&self) -> Result<KeyPair, rcgen::Error> {
        let der: Vec<u8> = PKCS8_HEAD.iter().chain(&self.0).copied().collect();
        KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
    }

    /// How a client talks to the worker with this key, and to nobody else.
    ///
    /// # Errors
    /// When the library takes no such key.
    pub fn client(&self) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let spki = self.pair()?.subject_public_key_info();
        let verifier = KnownKey { spki: spki.into(), provider: Arc::clone(&provider) };
        Ok(ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous() // the certificate says nothing; the key does
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}

/// Takes any certificate, and no signature but that of one key.
#[derive(Debug)]
struct KnownKey {
    spki: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for KnownKey {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("workers speak TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &self.spki, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_never_shown() {
        let key = MetricsKey::random().unwrap();
        assert_eq!(key.to_text().parse(), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "(secret)");
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"ä".repeat(32)] {
            assert_eq!(bad.parse::<MetricsKey>(), Err(BadMetricsKey), "{bad}");
        }
    }

    async fn shake_hands(server: Option<&MetricsKey>, client: &MetricsKey) -> bool {
        let config = crate::metrics::tls(server).unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client.client().unwrap()));
        let name = ServerName::try_from("worker").unwrap();
        let (_, shaken) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
        shaken.is_ok()
    }

    #[tokio::test]
    async fn only_the_worker_with_the_key_is_believed() {
        let (ours, other) = (MetricsKey::random().unwrap(), MetricsKey::random().unwrap());
        assert!(shake_hands(Some(&ours), &ours).await);
        assert!(!shake_hands(Some(&other), &ours).await);
        assert!(!shake_hands(None, &ours).await);
    }
}
