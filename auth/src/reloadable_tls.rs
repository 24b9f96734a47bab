//! TLS settings of a server that change while it runs.

use std::error::Error as _;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;

use crate::reload::resolving_server_config;
use crate::unverified::self_signed;
use crate::{Error, ReloadingIdentity, TlsMinimum};

/// ALPN protocols, preferred first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// The TLS settings for the next connection. The certificate is reloaded from its files. When the minimum version or the
/// client CAs change, the settings are rebuilt; if that fails, the previous ones stay in use and the failure is logged once.
#[derive(Debug)]
pub struct ReloadableTls {
    identity: ServerIdentity,
    current: Mutex<CurrentConfig>,
}

#[derive(Debug)]
enum ServerIdentity {
    Files(Arc<ReloadingIdentity>),
    SelfSigned,
}

/// The inputs last tried, and the settings in use: those of an earlier input if that failed.
#[derive(Debug)]
struct CurrentConfig {
    minimum: TlsMinimum,
    clients: String,
    config: Arc<ServerConfig>,
}

impl ReloadableTls {
    /// With the certificate `identity`. Requests a client certificate signed by one of `clients` (PEM; empty: requests
    /// none); a certificate that is presented has to be valid, but none is required.
    ///
    /// # Errors
    /// When the initial settings cannot be used.
    pub fn new(
        identity: Arc<ReloadingIdentity>,
        minimum: &TlsMinimum,
        clients: &str,
    ) -> Result<Self, Error> {
        Self::build(ServerIdentity::Files(identity), minimum, clients)
    }

    /// With a self-signed certificate.
    pub(crate) fn unverified(minimum: &TlsMinimum) -> Result<Self, Error> {
        Self::build(ServerIdentity::SelfSigned, minimum, "")
    }

    fn build(identity: ServerIdentity, minimum: &TlsMinimum, clients: &str) -> Result<Self, Error> {
        let config = Arc::new(identity.server_config(minimum, clients)?);
        let current =
            CurrentConfig { minimum: minimum.clone(), clients: clients.to_owned(), config };
        Ok(Self { identity, current: Mutex::new(current) })
    }

    pub fn config(&self, minimum: &TlsMinimum, clients: &str) -> Arc<ServerConfig> {
        let mut current = self.current.lock();
        if current.minimum != *minimum || current.clients != clients {
            match self.identity.server_config(minimum, clients) {
                Ok(config) => {
                    tracing::info!("changed the TLS settings to {minimum:?}");
                    current.config = Arc::new(config);
                }
                Err(error) => {
                    let because = error.source().map(|cause| format!(": {cause}"));
                    tracing::error!("TLS stays as it was: {error}{}", because.unwrap_or_default());
                }
            }
            (current.minimum, current.clients) = (minimum.clone(), clients.to_owned());
        }
        Arc::clone(&current.config)
    }
}

impl ServerIdentity {
    fn server_config(&self, minimum: &TlsMinimum, clients: &str) -> Result<ServerConfig, Error> {
        match self {
            Self::Files(identity) => {
                resolving_server_config(Arc::clone(identity), clients, minimum, &PROTOCOLS)
            }
            Self::SelfSigned => self_signed(minimum),
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
    use crate::{CertificateAuthority, common_name};

    const HOUR: Duration = Duration::from_secs(3600);
    const BROKEN: &str = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";

    struct Servers {
        folder: tempfile::TempDir,
        ca: CertificateAuthority,
        certificate: String,
    }

    impl Servers {
        fn new() -> Self {
            let made = CertificateAuthority::create("authority", HOUR, SystemTime::now()).unwrap();
            let ca = CertificateAuthority::from_identity(&made).unwrap();
            let folder = tempfile::tempdir().unwrap();
            Self { folder, ca, certificate: made.certificate }
        }

        fn renew(&self, name: &str) {
            let names = [name.to_owned(), "localhost".to_owned()];
            let identity = self.ca.server(&names, HOUR, SystemTime::now()).unwrap();
            std::fs::write(self.at("tls.crt"), identity.certificate).unwrap();
            std::fs::write(self.at("tls.key"), identity.key).unwrap();
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            Path::new(self.folder.path()).join(name)
        }

        fn live(&self) -> ReloadableTls {
            let identity =
                ReloadingIdentity::open(&self.at("tls.crt"), &self.at("tls.key"), Duration::ZERO);
            ReloadableTls::new(Arc::new(identity.unwrap()), &TlsMinimum::default(), "").unwrap()
        }

        /// The server's common name as a client of these versions sees it.
        fn shown(
            &self,
            config: Arc<ServerConfig>,
            versions: &[&'static SupportedProtocolVersion],
        ) -> Result<String, rustls::Error> {
            let mut roots = RootCertStore::empty();
            let ca = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
            roots.add(ca).unwrap();
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
    fn next_connection_gets_a_renewed_certificate_but_not_a_broken_one() {
        let servers = Servers::new();
        servers.renew("one");
        let live = servers.live();
        let shown = || servers.shown(live.config(&TlsMinimum::default(), ""), rustls::ALL_VERSIONS);
        assert_eq!(shown().unwrap(), "one");
        let config = live.config(&TlsMinimum::default(), "");
        servers.renew("two");
        assert_eq!(shown().unwrap(), "two");
        assert!(
            Arc::ptr_eq(&config, &live.config(&TlsMinimum::default(), "")),
            "rebuilt without a change"
        );
        std::fs::write(servers.at("tls.crt"), BROKEN).unwrap();
        assert_eq!(shown().unwrap(), "two");
        servers.renew("three");
        assert_eq!(shown().unwrap(), "three");
    }

    #[test]
    fn next_connection_gets_changed_settings() {
        let servers = Servers::new();
        servers.renew("one");
        let live = servers.live();
        let modern = TlsMinimum::parse("VersionTLS13", "").unwrap();
        let old = [&rustls::version::TLS12];
        for (minimum, is_served) in [(&TlsMinimum::default(), true), (&modern, false)] {
            let config = live.config(minimum, "");
            assert!(Arc::ptr_eq(&config, &live.config(minimum, "")));
            assert_eq!(config.alpn_protocols, [b"h2".as_slice(), b"http/1.1"]);
            assert_eq!(servers.shown(Arc::clone(&config), &old).is_ok(), is_served, "{minimum:?}");
            assert!(servers.shown(config, rustls::ALL_VERSIONS).is_ok());
        }
    }

    #[test]
    fn unusable_settings_leave_the_previous_ones_in_use() {
        let servers = Servers::new();
        servers.renew("one");
        let live = servers.live();
        let minimum = TlsMinimum::default();
        let without_clients = live.config(&minimum, "");
        let with_clients = live.config(&minimum, &servers.certificate);
        assert!(!Arc::ptr_eq(&without_clients, &with_clients));
        assert!(Arc::ptr_eq(&with_clients, &live.config(&minimum, BROKEN)));
        assert_eq!(live.current.lock().clients, BROKEN, "a failure is tried once");
        assert!(!Arc::ptr_eq(&with_clients, &live.config(&minimum, "")));
    }
}
