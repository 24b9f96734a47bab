//! TLS of a worker's metrics port: its key, and the minimum version and cipher suites of the cluster's TLS profile.

use std::collections::BTreeMap;
use std::error::Error;

use auth::TlsMinimum;
use contract::import::name;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::MetricsKey;

/// The only name of the certificate: the one that upstream CDI's workers have.
const CERTIFICATE_NAME: &str = "cloner_target";
/// The newest version, which the controller uses.
const STRICTEST: &str = "VersionTLS13";

type SelfSigned = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// The default is a generated key, and every version and cipher suite of the TLS library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsTls {
    /// `None`: the controller is older than these keys. A key is generated.
    key: Option<MetricsKey>,
    minimum: TlsMinimum,
}

impl MetricsTls {
    /// From the variables of a worker. A version that cannot be parsed counts as TLS 1.3: the controller can still request
    /// the progress, and the profile is not undercut.
    pub fn from_environment(variables: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let (version, ciphers) = (get(name::TLS_MIN_VERSION), get(name::TLS_CIPHERS));
        let minimum = TlsMinimum::parse(version, ciphers).unwrap_or_else(|_| {
            tracing::warn!("cannot use {}={version:?}, using {STRICTEST}", name::TLS_MIN_VERSION);
            TlsMinimum::parse(STRICTEST, "").unwrap_or_default()
        });
        Self { key: get(name::METRICS_KEY).parse().ok(), minimum }
    }

    /// With a self-signed certificate. Requests no client certificate.
    pub(crate) fn server_config(&self) -> Result<ServerConfig, Box<dyn Error + Send + Sync>> {
        let (certificate, key) = self.identity()?;
        let config = auth::server_config_builder(&self.minimum, None)?
            .with_single_cert(vec![certificate], key)?;
        Ok(auth::finish_server_config(config, &self.minimum, &["h2", "http/1.1"]))
    }

    fn identity(&self) -> Result<SelfSigned, Box<dyn Error + Send + Sync>> {
        let pair = self.key.as_ref().map_or_else(KeyPair::generate, MetricsKey::pair)?;
        let parameters = CertificateParams::new(vec![CERTIFICATE_NAME.to_owned()])?;
        let certificate = parameters.self_signed(&pair)?;
        let key = PrivateKeyDer::try_from(pair.serialize_der())?;
        Ok((certificate.der().clone(), key))
    }
}

/// With every version and cipher suite of the TLS library.
impl From<MetricsKey> for MetricsTls {
    fn from(key: MetricsKey) -> Self {
        Self { key: Some(key), minimum: TlsMinimum::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};

    use super::*;

    fn read(variables: &[(&str, &str)]) -> MetricsTls {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        MetricsTls::from_environment(&variables.iter().map(owned).collect())
    }

    /// The version and cipher suite of a handshake with a client that supports `versions`.
    async fn negotiated(
        server: &MetricsTls,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Option<(ProtocolVersion, String)> {
        // The key alone decides whether a self-signed certificate is trusted.
        let mut roots = RootCertStore::empty();
        roots.add(server.identity().unwrap().0).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = tokio::io::duplex(1 << 16);
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server.server_config().unwrap()));
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let name = ServerName::try_from(CERTIFICATE_NAME).unwrap();
        let (_, stream) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
        let stream = stream.ok()?;
        let (_, connection) = stream.get_ref();
        let suite = connection.negotiated_cipher_suite()?.suite();
        Some((connection.protocol_version()?, format!("{suite:?}")))
    }

    #[tokio::test]
    async fn metrics_tls_offers_what_the_profile_permits() {
        let old = [&rustls::version::TLS12];
        let key = MetricsKey::random().unwrap().to_text();
        let ecdsa = "ECDHE-ECDSA-AES128-GCM-SHA256";
        let served = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        for (version, ciphers, expected) in [
            ("VersionTLS12", ecdsa, Some(served)),
            ("VersionTLS10", ecdsa, Some(served)),
            ("", ecdsa, Some(served)),
            // The key is not an RSA key.
            ("VersionTLS12", "ECDHE-RSA-AES128-GCM-SHA256", None),
            ("VersionTLS13", "", None),
            ("SSL3", "", None),
        ] {
            let tls = read(&[
                (name::METRICS_KEY, &key),
                (name::TLS_MIN_VERSION, version),
                (name::TLS_CIPHERS, ciphers),
            ]);
            let found = negotiated(&tls, &old).await;
            let expected = expected.map(|suite| (ProtocolVersion::TLSv1_2, suite.to_owned()));
            assert_eq!(found, expected, "{version} {ciphers}");
            // The controller's version always works.
            let (newest, _) = negotiated(&tls, rustls::ALL_VERSIONS).await.unwrap();
            assert_eq!(newest, ProtocolVersion::TLSv1_3, "{version} {ciphers}");
        }
    }

    #[test]
    fn metrics_tls_has_a_generated_key_without_a_usable_one() {
        for variables in [&[][..], &[(name::METRICS_KEY, "short")]] {
            let tls = read(variables);
            assert_eq!(tls, MetricsTls::default());
            assert!(tls.server_config().is_ok());
        }
    }
}
