//! The key by which the controller recognizes a worker's metrics port, generated for that worker alone.
//!
//! A worker creates its certificate at start, so no CA has signed it. Instead the controller passes a key in the pod's
//! environment, and accepts only connections signed with it. A user who can read the pod could impersonate it; that user
//! can change the pod as well.

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
/// Precedes the seed of an Ed25519 key in PKCS #8 (RFC 8410).
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a metrics key needs 64 hexadecimal digits")]
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
    /// Generates a key.
    ///
    /// # Errors
    /// When the kernel returns no random bytes.
    pub fn random() -> std::io::Result<Self> {
        crate::random_bytes().map(Self)
    }

    /// 64 hexadecimal digits, for the worker's environment.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn pair(&self) -> Result<KeyPair, rcgen::Error> {
        let der: Vec<u8> = PKCS8_HEAD.iter().chain(&self.0).copied().collect();
        KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
    }

    /// The settings of a client that accepts only the server with this key.
    ///
    /// # Errors
    /// When the TLS library rejects the key.
    pub fn client(&self) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let spki = self.pair()?.subject_public_key_info();
        let verifier = KnownKey { spki: spki.into(), provider: Arc::clone(&provider) };
        Ok(ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous() // the certificate is not verified; the key is
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}

/// Accepts any certificate, and signatures of one key only.
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
        Err(rustls::Error::General("workers support TLS 1.3 only".into()))
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
    use crate::MetricsTls;

    #[test]
    fn key_text_round_trips_and_debug_hides_it() {
        let key = MetricsKey::random().unwrap();
        assert_eq!(key.to_text().parse(), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "(secret)");
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"ä".repeat(32)] {
            assert_eq!(bad.parse::<MetricsKey>(), Err(BadMetricsKey), "{bad}");
        }
    }

    async fn shake_hands(server: MetricsTls, client: &MetricsKey) -> bool {
        let config = server.server_config().unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client.client().unwrap()));
        let name = ServerName::try_from("worker").unwrap();
        let (_, shaken) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
        shaken.is_ok()
    }

    #[tokio::test]
    async fn client_rejects_a_server_with_another_key() {
        let (ours, other) = (MetricsKey::random().unwrap(), MetricsKey::random().unwrap());
        assert!(shake_hands(ours.clone().into(), &ours).await);
        assert!(!shake_hands(other.into(), &ours).await);
        assert!(!shake_hands(MetricsTls::default(), &ours).await);
    }
}
