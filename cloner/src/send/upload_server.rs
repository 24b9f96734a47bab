//! The upload server in the target's pod: address, TLS, and the two requests that it gets.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use clonestream::offer::{self, StreamOffer};
use contract::clone::ClientIdentity;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use url::{Host, Url};

use super::connection::{Connection, Request};
use crate::error::Error;

/// Per address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// For a server that stops reading because its storage is slow.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);
/// A server syncs everything that it has received before it responds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct UploadServer {
    host: String,
    port: u16,
    path: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

impl UploadServer {
    /// `url`: where snappy streams go. `ca` has signed the server's certificate, PEM.
    ///
    /// # Errors
    /// [`Error::Tls`] for text that is not PEM of its kind. No error shows the key.
    pub fn new(url: &Url, identity: &ClientIdentity, ca: &str) -> Result<Self, Error> {
        fn failed<E>(what: &'static str) -> impl Fn(E) -> Error
        where
            E: Into<Box<dyn std::error::Error + Send + Sync>>,
        {
            move |error| Error::Tls { what, source: error.into() }
        }
        const SERVER_CA: &str = "CA of the upload server";
        const CERTIFICATE: &str = "client certificate";
        let mut roots = RootCertStore::empty();
        for found in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(found.map_err(failed(SERVER_CA))?).map_err(failed(SERVER_CA))?;
        }
        if roots.is_empty() {
            return Err(failed(SERVER_CA)("it contains no certificate"));
        }
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect();
        let chain = chain.map_err(failed(CERTIFICATE))?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
            .map_err(|_| failed("client key")("it is not a PEM private key"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed("TLS"))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(failed(CERTIFICATE))?;
        tls.require_ems = auth::requires_extended_master_secret();

        let host = url.host().ok_or_else(|| failed("address")("it has no host"))?;
        let (host, name) = match host {
            Host::Domain(name) => (name.to_owned(), ServerName::try_from(name.to_owned())),
            Host::Ipv4(address) => {
                (address.to_string(), Ok(ServerName::from(std::net::IpAddr::from(address))))
            }
            Host::Ipv6(address) => {
                (address.to_string(), Ok(ServerName::from(std::net::IpAddr::from(address))))
            }
        };
        Ok(Self {
            host,
            port: url.port_or_known_default().unwrap_or(443),
            path: url.path().to_owned(),
            name: name.map_err(failed("address"))?,
            tls: Arc::new(tls),
        })
    }

    /// Path of snappy streams.
    pub(super) fn upload_path(&self) -> &str {
        &self.path
    }

    /// `None`: the server supports only snappy streams.
    pub(super) fn fetch_offer(&self) -> Result<Option<StreamOffer>, Error> {
        let response = self.connect()?.get(offer::PATH, offer::HEADER)?;
        let offered = response.header.as_deref().filter(|_| response.status == 200);
        let offered = offered.and_then(|text| text.parse::<StreamOffer>().ok());
        // Busy, in contrast to 404.
        if offered.is_none() && matches!(response.status, 502..=504) {
            return Err(response.into_error());
        }
        Ok(offered.filter(|offer| offer.version >= offer::VERSION))
    }

    pub(super) fn start_post(&self, path: &str, content: &str) -> Result<Request, Error> {
        self.connect()?.start_post(path, (offer::CONTENT_HEADER, content))
    }

    fn connect(&self) -> Result<Connection, Error> {
        let address = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        let failed = |source| Error::Connect { address: address.clone(), source };
        let mut last_error = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for candidate in (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
                Ok(socket) => {
                    socket.set_nodelay(true).map_err(failed)?;
                    socket.set_read_timeout(Some(RESPONSE_TIMEOUT)).map_err(failed)?;
                    socket.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(failed)?;
                    let tls =
                        ClientConnection::new(Arc::clone(&self.tls), self.name.clone()).map_err(
                            |error| Error::Tls { what: "TLS settings", source: error.into() },
                        )?;
                    return Ok(Connection::new(StreamOwned::new(tls, socket), address));
                }
                Err(error) => last_error = error,
            }
        }
        Err(failed(last_error))
    }
}
