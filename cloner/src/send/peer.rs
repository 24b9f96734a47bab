//! Who the other side is, and how it is asked.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use clonestream::offer::{self, Offer};
use contract::clone::ClientIdentity;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use url::{Host, Url};

use super::connection::{Connection, Request};
use crate::error::Error;

/// For one address of a server to answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
/// For a server that takes nothing more, because its storage does not.
const WRITE_PATIENCE: Duration = Duration::from_secs(600);
/// For an answer: a server makes all that it was sent durable before it gives one.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3600);

/// The upload server beside the target.
#[derive(Debug)]
pub struct Peer {
    host: String,
    port: u16,
    path: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

impl Peer {
    /// The server at `url`, which has a certificate of `authority` and knows us by ours. All PEM.
    ///
    /// # Errors
    /// When one of the texts is no PEM of its kind. No error tells of the key.
    pub fn new(url: &Url, identity: &ClientIdentity, ca: &str) -> Result<Self, Error> {
        fn failed<E>(what: &'static str) -> impl Fn(E) -> Error
        where
            E: Into<Box<dyn std::error::Error + Send + Sync>>,
        {
            move |error| Error::Tls { what, source: error.into() }
        }
        const AUTHORITY: &str = "server's authority";
        const CERTIFICATE: &str = "client certificate";
        let mut roots = RootCertStore::empty();
        for found in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(found.map_err(failed(AUTHORITY))?).map_err(failed(AUTHORITY))?;
        }
        if roots.is_empty() {
            return Err(failed(AUTHORITY)("there is no certificate in it"));
        }
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect();
        let chain = chain.map_err(failed(CERTIFICATE))?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
            .map_err(|_| failed("client key")("it is no key in PEM"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed("TLS"))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(failed(CERTIFICATE))?;

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

    /// Where the old streams go.
    pub(super) fn upload_path(&self) -> &str {
        &self.path
    }

    /// Asks whether the server takes the new stream, and what it has already.
    pub(super) fn offer(&self) -> Result<Option<Offer>, Error> {
        let answer = self.connect()?.get(offer::PATH, offer::HEADER)?;
        let offered = answer.header.as_deref().filter(|_| answer.status == 200);
        let offered = offered.and_then(|text| text.parse::<Offer>().ok());
        // A server that is busy, as opposed to one that does not know what it is asked.
        if offered.is_none() && matches!(answer.status, 502..=504) {
            return Err(answer.into_refusal());
        }
        Ok(offered.filter(|offer| offer.version >= offer::VERSION))
    }

    /// Begins to send.
    pub(super) fn post(&self, path: &str, content: &str) -> Result<Request, Error> {
        self.connect()?.post(path, (offer::CONTENT_HEADER, content))
    }

    fn connect(&self) -> Result<Connection, Error> {
        let address = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        let failed = |source| Error::Connect { address: address.clone(), source };
        let mut refused = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for candidate in (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&candidate, CONNECT_PATIENCE) {
                Ok(socket) => {
                    socket.set_nodelay(true).map_err(failed)?;
                    socket.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(failed)?;
                    socket.set_write_timeout(Some(WRITE_PATIENCE)).map_err(failed)?;
                    let tls =
                        ClientConnection::new(Arc::clone(&self.tls), self.name.clone()).map_err(
                            |error| Error::Tls { what: "TLS settings", source: error.into() },
                        )?;
                    return Ok(Connection::new(StreamOwned::new(tls, socket), address));
                }
                Err(error) => refused = error,
            }
        }
        Err(failed(refused))
    }
}
