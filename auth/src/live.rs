//! TLS of a server whose settings change while it runs.

use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;

use crate::reload::serving;
use crate::unverified::self_signed;
use crate::{Error, Floor, ReloadingIdentity};

/// What a server that proves itself speaks over TLS, best first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// TLS as it is wanted at the moment, asked for before each connection. What it proves itself with is renewed by itself; the
/// rest is made anew when something else is wanted, and stays as it was where that cannot be, which is told once.
#[derive(Debug)]
pub struct LiveTls {
    proof: Proof,
    made: Mutex<Made>,
}

/// What a server proves itself with.
#[derive(Debug)]
enum Proof {
    Files(Arc<ReloadingIdentity>),
    /// A certificate that vouches for nothing.
    None,
}

/// What was wanted last, and what is in use.
#[derive(Debug)]
struct Made {
    floor: Floor,
    clients: String,
    config: Arc<ServerConfig>,
}

impl LiveTls {
    /// Of a server that proves itself with `identity`. Clients are asked for a certificate of `clients` (PEM; several are
    /// fine, and none means that nobody is asked); one that is shown has to be good, but none has to be shown.
    ///
    /// # Errors
    /// When what is wanted at first cannot be.
    pub fn new(
        identity: Arc<ReloadingIdentity>,
        floor: &Floor,
        clients: &str,
    ) -> Result<Self, Error> {
        Self::with(Proof::Files(identity), floor, clients)
    }

    /// Of one that nobody has to believe.
    pub(crate) fn unverified(floor: &Floor) -> Result<Self, Error> {
        Self::with(Proof::None, floor, "")
    }

    fn with(proof: Proof, floor: &Floor, clients: &str) -> Result<Self, Error> {
        let config = Arc::new(proof.serving(floor, clients)?);
        let made = Made { floor: floor.clone(), clients: clients.to_owned(), config };
        Ok(Self { proof, made: Mutex::new(made) })
    }

    /// For the next connection, which is to have at least `floor`, and to be asked for a certificate of `clients`.
    pub fn config(&self, floor: &Floor, clients: &str) -> Arc<ServerConfig> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.floor != *floor || made.clients != clients {
            match self.proof.serving(floor, clients) {
                Ok(config) => {
                    tracing::info!("from now on TLS is: {floor:?}");
                    made.config = Arc::new(config);
                }
                Err(error) => {
                    let because = error.source().map(|cause| format!(": {cause}"));
                    tracing::error!("TLS stays as it was: {error}{}", because.unwrap_or_default());
                }
            }
            (made.floor, made.clients) = (floor.clone(), clients.to_owned());
        }
        Arc::clone(&made.config)
    }
}

impl Proof {
    fn serving(&self, floor: &Floor, clients: &str) -> Result<ServerConfig, Error> {
        match self {
            Self::Files(identity) => serving(Arc::clone(identity), clients, floor, &PROTOCOLS),
            Self::None => self_signed(floor),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion,
    };

    use super::*;
    use crate::{Authority, common_name};

    const HOUR: Duration = Duration::from_secs(3600);
    const BROKEN: &str = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";

    struct Servers {
        folder: tempfile::TempDir,
        authority: Authority,
        certificate: String,
    }

    impl Servers {
        fn new() -> Self {
            let made = Authority::make("authority", HOUR, SystemTime::now()).unwrap();
            let authority = Authority::read(&made).unwrap();
            let folder = tempfile::tempdir().unwrap();
            Self { folder, authority, certificate: made.certificate }
        }

        fn renew(&self, name: &str) {
            let names = [name.to_owned(), "localhost".to_owned()];
            let identity = self.authority.server(&names, HOUR, SystemTime::now()).unwrap();
            std::fs::write(self.at("tls.crt"), identity.certificate).unwrap();
            std::fs::write(self.at("tls.key"), identity.key).unwrap();
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            Path::new(self.folder.path()).join(name)
        }

        fn live(&self) -> LiveTls {
            let identity =
                ReloadingIdentity::open(&self.at("tls.crt"), &self.at("tls.key"), Duration::ZERO);
            LiveTls::new(Arc::new(identity.unwrap()), &Floor::default(), "").unwrap()
        }

        /// The name that a client of the newest of these versions is shown.
        fn shown(
            &self,
            config: Arc<ServerConfig>,
            versions: &[&'static SupportedProtocolVersion],
        ) -> Result<String, rustls::Error> {
            let mut roots = RootCertStore::empty();
            let authority = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
            roots.add(authority).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let client = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(versions)?
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = "localhost".try_into().unwrap();
            let mut client = ClientConnection::new(Arc::new(client), name)?;
            let mut server = ServerConnection::new(config)?;
            while client.is_handshaking() || server.is_handshaking() {
                let mut wire = Vec::new();
                client.write_tls(&mut wire).unwrap();
                server.read_tls(&mut wire.as_slice()).unwrap();
                server.process_new_packets()?;
                wire.clear();
                server.write_tls(&mut wire).unwrap();
                client.read_tls(&mut wire.as_slice()).unwrap();
                client.process_new_packets()?;
            }
            let shown = client.peer_certificates().unwrap_or_default();
            Ok(common_name(&shown[0]).unwrap())
        }
    }

    #[test]
    fn the_next_connection_is_shown_a_renewed_certificate_and_no_broken_one() {
        let servers = Servers::new();
        servers.renew("one");
        let live = servers.live();
        let shown = || servers.shown(live.config(&Floor::default(), ""), rustls::ALL_VERSIONS);
        assert_eq!(shown().unwrap(), "one");
        let config = live.config(&Floor::default(), "");
        servers.renew("two");
        assert_eq!(shown().unwrap(), "two");
        assert!(Arc::ptr_eq(&config, &live.config(&Floor::default(), "")), "made anew for nothing");
        std::fs::write(servers.at("tls.crt"), BROKEN).unwrap();
        assert_eq!(shown().unwrap(), "two");
        servers.renew("three");
        assert_eq!(shown().unwrap(), "three");
    }

    #[test]
    fn the_next_connection_has_what_is_wanted_then() {
        let servers = Servers::new();
        servers.renew("one");
        let live = servers.live();
        let modern = Floor::parse("VersionTLS13", "").unwrap();
        let old = [&rustls::version::TLS12];
        for (floor, is_served) in [(&Floor::default(), true), (&modern, false)] {
            let config = live.config(floor, "");
            assert!(Arc::ptr_eq(&config, &live.config(floor, "")));
            assert_eq!(config.alpn_protocols, [b"h2".as_slice(), b"http/1.1"]);
            assert_eq!(servers.shown(Arc::clone(&config), &old).is_ok(), is_served, "{floor:?}");
            assert!(servers.shown(config, rustls::ALL_VERSIONS).is_ok());
        }
    }

    #[test]
    fn what_cannot_be_leaves_what_was_until_something_else_is_wanted() {
        let servers = Servers::new();
        servers.renew("one");
        let live = servers.live();
        let floor = Floor::default();
        let asks_nobody = live.config(&floor, "");
        let asks = live.config(&floor, &servers.certificate);
        assert!(!Arc::ptr_eq(&asks_nobody, &asks));
        assert!(Arc::ptr_eq(&asks, &live.config(&floor, BROKEN)));
        assert_eq!(live.made.lock().unwrap().clients, BROKEN, "and is tried once");
        assert!(!Arc::ptr_eq(&asks, &live.config(&floor, "")));
    }
}
