//! TLS 1.2 uses the Extended Master Secret extension (RFC 7627), without which systems in FIPS mode refuse TLS 1.2.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use auth::{CertificateAuthority, Identity, TlsMinimum, anonymous_client_config, server_config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{
    ClientConfig, ClientConnection, PeerIncompatible, ProtocolVersion, RootCertStore,
    ServerConnection,
};

const HOST: &str = "server.cdi.svc";
const HOUR: Duration = Duration::from_secs(3600);
const EXTENDED_MASTER_SECRET: u16 = 0x17;
/// Reserved by RFC 8701, so that no server knows it.
const UNKNOWN_EXTENSION: u16 = 0x1a1a;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// Our server, and the CA that clients trust.
fn server(minimum: &TlsMinimum) -> (ServerConnection, Identity) {
    let ca = CertificateAuthority::create("signer", HOUR, SystemTime::now()).unwrap();
    let signer = CertificateAuthority::from_identity(&ca).unwrap();
    let identity = signer.server(&[HOST.to_owned()], HOUR, SystemTime::now()).unwrap();
    let (certificate, key) = (identity.certificate.as_bytes(), identity.key.as_bytes());
    let config = server_config(certificate, key, ca.certificate.as_bytes(), minimum).unwrap();
    (ServerConnection::new(Arc::new(config)).unwrap(), ca)
}

/// A client as on a system in FIPS mode: it refuses TLS 1.2 without the extension.
fn strict_client(ca: &Identity) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.require_ems = true;
    ClientConnection::new(Arc::new(config), HOST.try_into().unwrap()).unwrap()
}

/// What a side has to send now.
macro_rules! sent {
    ($side:expr) => {{
        let mut bytes = Vec::new();
        while $side.wants_write() {
            $side.write_tls(&mut bytes).unwrap();
        }
        bytes
    }};
}

/// Delivers bytes to a side.
macro_rules! receive {
    ($side:expr, $bytes:expr) => {{
        let mut bytes: &[u8] = $bytes;
        while !bytes.is_empty() {
            $side.read_tls(&mut bytes).unwrap();
            $side.process_new_packets().unwrap();
        }
    }};
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |all, byte| all << 8 | usize::from(*byte))
}

/// The extensions of the hello message at the beginning of a TLS record: each number, and where it is.
fn extensions(record: &[u8]) -> Vec<(u16, usize)> {
    const RECORD_HEADER: usize = 5;
    const MESSAGE_HEADER: usize = 4;
    const VERSION_AND_RANDOM: usize = 2 + 32;
    let kind = record[RECORD_HEADER];
    assert!([CLIENT_HELLO, SERVER_HELLO].contains(&kind), "{kind}");
    let mut at = RECORD_HEADER + MESSAGE_HEADER + VERSION_AND_RANDOM;
    at += 1 + number(&record[at..=at]); // session
    at += match kind {
        CLIENT_HELLO => {
            let suites = 2 + number(&record[at..at + 2]);
            suites + 1 + number(&record[at + suites..=at + suites]) // compression methods
        }
        _ => 2 + 1, // one suite, one compression method
    };
    let end = at + 2 + number(&record[at..at + 2]);
    at += 2;
    let mut found = Vec::new();
    while at < end {
        found.push((u16::from_be_bytes([record[at], record[at + 1]]), at));
        at += 4 + number(&record[at + 2..at + 4]);
    }
    found
}

fn position(record: &[u8], extension: u16) -> Option<usize> {
    extensions(record).into_iter().find(|(one, _)| *one == extension).map(|(_, at)| at)
}

#[test]
fn tls12_handshake_uses_the_extended_master_secret() {
    let (mut server, ca) = server(&TlsMinimum::default());
    let mut client = strict_client(&ca);
    let mut hello = None;
    while client.is_handshaking() || server.is_handshaking() {
        receive!(server, &sent!(client));
        let response = sent!(server);
        hello.get_or_insert_with(|| response.clone());
        receive!(client, &response);
    }
    for version in [client.protocol_version(), server.protocol_version()] {
        assert_eq!(version, Some(ProtocolVersion::TLSv1_2));
    }
    assert!(position(&hello.unwrap(), EXTENDED_MASTER_SECRET).is_some());
}

/// The first message of a client that does not offer the extension.
fn offer_without_the_extension(ca: &Identity) -> Vec<u8> {
    let mut client = strict_client(ca);
    let mut offer = sent!(client);
    let at = position(&offer, EXTENDED_MASTER_SECRET).unwrap();
    offer[at..at + 2].copy_from_slice(&UNKNOWN_EXTENSION.to_be_bytes());
    offer
}

/// The counterpart of the above: the test would notice a server without the extension.
#[test]
fn server_hello_lacks_the_extension_only_if_the_client_does_not_offer_it() {
    let (mut server, ca) = server(&TlsMinimum::default());
    receive!(server, &offer_without_the_extension(&ca));
    assert_eq!(position(&sent!(server), EXTENDED_MASTER_SECRET), None);
}

#[test]
fn server_in_fips_mode_refuses_clients_that_do_not_offer_the_extension() {
    let strict = TlsMinimum::default().with_extended_master_secret();
    let (mut server, ca) = server(&strict);
    let offer = offer_without_the_extension(&ca);
    server.read_tls(&mut offer.as_slice()).unwrap();
    let error = server.process_new_packets().unwrap_err();
    let expected = PeerIncompatible::ExtendedMasterSecretExtensionRequired;
    assert_eq!(error, rustls::Error::PeerIncompatible(expected));
}

#[test]
fn clients_offer_the_extended_master_secret() {
    let (_, ca) = server(&TlsMinimum::default());
    let config = anonymous_client_config(&ca.certificate).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), HOST.try_into().unwrap()).unwrap();
    assert!(position(&sent!(client), EXTENDED_MASTER_SECRET).is_some());
}
