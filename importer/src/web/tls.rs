//! Trust in servers: the system's CAs and those given, and no others.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use contract::Checksum;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, PeerIncompatible, RootCertStore, SignatureScheme,
};
use url::Url;

use super::options::{HttpOptions, Warned};
use crate::error::{Error, TransportError};

pub(crate) struct Trust {
    /// The CAs that were given.
    given: RootCertStore,
    insecure: bool,
    /// `host` or `host:port` of servers that need not prove who they are.
    insecure_hosts: Vec<String>,
    warned: Warned,
    /// The one certificate to be trusted.
    pinned: Option<Checksum>,
    /// Made when first needed: reading the system's CAs takes a while.
    config: OnceLock<Arc<ClientConfig>>,
    unverified: OnceLock<Arc<ClientConfig>>,
}

impl Trust {
    pub(crate) fn new(options: &HttpOptions) -> Result<Self, Error> {
        let mut given = RootCertStore::empty();
        for path in &options.ca_files {
            let failed = |source| Error::File { what: "read", path: PathBuf::clone(path), source };
            let pem = std::fs::read(path).map_err(failed)?;
            add(&mut given, &pem, &path.display().to_string())?;
        }
        for pem in &options.ca_pem {
            add(&mut given, pem.as_bytes(), "the given text")?;
        }
        Ok(Self {
            given,
            insecure: options.insecure_tls,
            insecure_hosts: options.insecure_hosts.clone(),
            warned: options.warned.clone(),
            pinned: None,
            config: OnceLock::new(),
            unverified: OnceLock::new(),
        })
    }

    /// Trusts exactly the certificate with this SHA-1, written `AA:BB:…`, whatever its issuer.
    pub(crate) fn only(thumbprint: &str) -> Result<Self, Error> {
        let digits: String = thumbprint.trim().split(':').collect();
        let pinned = format!("sha1:{}", digits.to_lowercase()).parse().map_err(|problem| {
            Error::Option { what: format!("the thumbprint cannot be used: {problem}") }
        })?;
        Ok(Self {
            given: RootCertStore::empty(),
            insecure: false,
            insecure_hosts: Vec::new(),
            warned: Warned::default(),
            pinned: Some(pinned),
            config: OnceLock::new(),
            unverified: OnceLock::new(),
        })
    }

    /// TLS 1.2 or 1.3, by aws-lc-rs, with HTTP/1.1 as the only protocol offered: ranges on one HTTP/2 connection would
    /// share its one TCP window.
    pub(crate) fn config(&self, server: &Url) -> Arc<ClientConfig> {
        let host = server.host_str().unwrap_or_default();
        let port = server.port_or_known_default().unwrap_or_default();
        let insecure = self.insecure || is_listed(server, &self.insecure_hosts);
        self.config_if(insecure, &format!("{host}:{port}"))
    }

    /// The same for a server of another protocol than HTTP, which no list names.
    pub(crate) fn config_of_any(&self) -> Arc<ClientConfig> {
        self.config_if(self.insecure, "the server")
    }

    fn config_if(&self, insecure: bool, server: &str) -> Arc<ClientConfig> {
        if insecure && self.warned.is_first_warning(server) {
            tracing::warn!(
                "certificates of {server} are not verified: an attacker on the network can replace the image"
            );
        }
        let config = if insecure { &self.unverified } else { &self.config };
        Arc::clone(config.get_or_init(|| Arc::new(self.make(insecure))))
    }

    fn make(&self, insecure: bool) -> ClientConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("aws-lc-rs has suites for TLS 1.2 and 1.3");
        let mut config = if insecure {
            let anyone = Arc::new(AnyCertificate { provider, pinned: None });
            builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
        } else if let Some(pinned) = &self.pinned {
            let one = Arc::new(AnyCertificate { provider, pinned: Some(*pinned) });
            builder.dangerous().with_custom_certificate_verifier(one).with_no_client_auth()
        } else {
            builder.with_root_certificates(self.roots()).with_no_client_auth()
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.require_ems = auth::requires_extended_master_secret();
        config
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = self.given.clone();
        let system = rustls_native_certs::load_native_certs();
        for error in system.errors {
            tracing::debug!("a certificate of the system's cannot be used: {error}");
        }
        roots.add_parsable_certificates(system.certs);
        roots
    }
}

/// Whether `server` is one of `hosts`, which are written `host` or `host:port`.
pub(crate) fn is_listed(server: &Url, hosts: &[String]) -> bool {
    let host = server.host_str().unwrap_or_default();
    let port = server.port_or_known_default();
    let with_port = port.map(|port| format!("{host}:{port}"));
    hosts.iter().any(|listed| {
        listed.eq_ignore_ascii_case(host)
            || with_port.as_ref().is_some_and(|known| listed.eq_ignore_ascii_case(known))
    })
}

/// Adds every certificate of a bundle that can be used, and logs which cannot. A bundle without one is an error: a user who
/// configures it expects it to be used.
fn add(roots: &mut RootCertStore, pem: &[u8], place: &str) -> Result<(), Error> {
    let (mut good, mut last_problem) = (0, None);
    for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        match added {
            Ok(()) => good += 1,
            Err(problem) => {
                tracing::warn!("certificate {} of {place} cannot be used: {problem}", index + 1);
                last_problem = Some(problem);
            }
        }
    }
    if good > 0 {
        return Ok(());
    }
    let because = last_problem.map(|problem| format!(": {problem}")).unwrap_or_default();
    Err(Error::Option { what: format!("no certificate in {place} can be used{because}") })
}

/// Takes any certificate, or the pinned one; yet still checks that the server holds its key.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    pinned: Option<Checksum>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(pinned) = &self.pinned {
            let mut hasher = pinned.hasher();
            hasher.update(end_entity);
            if hasher.finish() != *pinned {
                return Err(rustls::CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Why there is no TLS connection with `host`.
pub(crate) fn handshake_error(host: String, error: std::io::Error) -> TransportError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(problem)) => {
            TransportError::Certificate { host, because: explain(problem), source: error.into() }
        }
        Some(rustls::Error::PeerIncompatible(problem)) => {
            let because = explain_incompatible(problem);
            TransportError::Incompatible { host, because, source: error.into() }
        }
        _ => TransportError::Tls { host, source: error.into() },
    }
}

/// What the server lacks, and what to do.
fn explain_incompatible(problem: &PeerIncompatible) -> &'static str {
    match problem {
        PeerIncompatible::ExtendedMasterSecretExtensionRequired => {
            "it uses TLS 1.2 without the Extended Master Secret extension, which is not allowed in FIPS mode; enable \
             the extension or TLS 1.3 on the server"
        }
        _ => {
            "it and this program have no TLS version or cipher suite in common; enable TLS 1.2 or 1.3 on the server"
        }
    }
}

/// What is wrong with a certificate, and what to do.
fn explain(problem: &rustls::CertificateError) -> &'static str {
    use rustls::CertificateError as Problem;
    match problem {
        Problem::UnknownIssuer => "no trusted authority signed it; add its CA with --ca",
        Problem::Expired | Problem::ExpiredContext { .. } => "it has expired",
        Problem::NotValidYet | Problem::NotValidYetContext { .. } => "it is not valid yet",
        Problem::NotValidForName | Problem::NotValidForNameContext { .. } => {
            "it was issued for another name"
        }
        Problem::Revoked => "it was revoked",
        Problem::ApplicationVerificationFailure => "it has another thumbprint",
        _ => "it cannot be accepted",
    }
}
