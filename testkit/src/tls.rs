//! A CA that no client trusts by default, and a server certificate that it signs.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// What a server speaks TLS with, and the PEM text a client has to trust for it.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) ca_pem: String,
    /// The server's, as on the wire.
    pub(crate) certificate: Vec<u8>,
    /// The server's certificate and key, for programs that read them from files.
    pub(crate) server_pem: [String; 2],
}

/// A certificate for a server that is a program of its own, as PEM.
#[derive(Clone, Debug)]
pub struct ServerCertificate {
    /// The CA, for a client to trust.
    pub ca: String,
    /// For `localhost` and `127.0.0.1`, at least.
    pub certificate: String,
    pub key: String,
}

impl ServerCertificate {
    /// A new one, of a CA of its own.
    pub fn new() -> Self {
        Self::for_names(&[])
    }

    /// The same, for these names or addresses too.
    pub fn for_names(names: &[&str]) -> Self {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let authority = Authority::signing_for(&names);
        let Authority { ca_pem: ca, server_pem: [certificate, key], .. } = authority;
        Self { ca, certificate, key }
    }
}

impl Default for ServerCertificate {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new authority, with a certificate for `localhost` and `127.0.0.1`.
    pub(crate) fn new() -> Self {
        Self::signing_for(&[])
    }

    /// The same, with a certificate for these names or addresses too.
    pub(crate) fn signing_for(more: &[String]) -> Self {
        let ca_key = KeyPair::generate().expect("cannot make a key");
        let mut ca = CertificateParams::new(Vec::new()).expect("no names are valid names");
        ca.distinguished_name.push(DnType::CommonName, "testkit authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_certificate = ca.self_signed(&ca_key).expect("cannot sign a certificate");
        let issuer = Issuer::new(ca, ca_key);

        let key = KeyPair::generate().expect("cannot make a key");
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let names = names.into_iter().chain(more.iter().cloned()).collect::<Vec<_>>();
        let leaf = CertificateParams::new(names).expect("these names are valid");
        let certificate = leaf.signed_by(&key, &issuer).expect("cannot sign a certificate");

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("the key belongs to the certificate");
        let server_pem = [certificate.pem(), key.serialize_pem()];
        let certificate = certificate.der().to_vec();
        Self { config: Arc::new(config), ca_pem: ca_certificate.pem(), certificate, server_pem }
    }
}
