//! Makes a connection: socket, TLS where it is wanted, handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use runtime::tls::wire;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::{Address, NbdTransport};
use super::connection::Connection;
use super::handshake::{self, Export, Failure};
use crate::error::{Error, TransportError};
use crate::web::Network;
use crate::web::tls::{self, Trust};

/// The longest that all of it together may take.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// A stream of bytes both ways.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A new connection, and the server's description of the export. Blocks; tries once.
pub(super) fn connect(
    network: &Network,
    address: &Address,
    trust: &Trust,
    patience: Duration,
) -> Result<(Connection, Export), Error> {
    let tls = if address.tls {
        Some((without_protocols(&trust.config_of_any()), address.server_name()?))
    } else {
        None
    };
    let host = address.host();
    let (place, export_name) = (address.place.clone(), address.export.clone());
    let limit = patience.min(CONNECT_MAX);
    let made = network.wait_for(address.name.to_string(), {
        let host = host.clone();
        async move {
            let making = async {
                let mut stream = reach(&place, &host).await?;
                handshake::greet(&mut stream).await?;
                let mut stream = match tls {
                    Some((config, name)) => secure(stream, config, name, &host).await?,
                    None => stream,
                };
                let export = handshake::open(&mut stream, &export_name).await?;
                Ok((Connection::start(stream, &export, host.clone(), patience), export))
            };
            let late = || {
                let source = io::Error::from(io::ErrorKind::TimedOut).into();
                Problem::TransportError(TransportError::Connect { host: host.clone(), source })
            };
            timeout(limit, making).await.unwrap_or_else(|_| Err(late()))
        }
    })?;
    made.map_err(|problem: Problem| {
        let url = address.name.clone();
        match problem {
            Problem::TransportError(source) => Error::Nbd { url, source },
            Problem::Handshake(Failure::Io(error)) => {
                Error::Nbd { url, source: TransportError::Broken { host, source: error.into() } }
            }
            Problem::Handshake(Failure::Refused(because)) => Error::Refused { url, because },
            Problem::Handshake(Failure::Nonsense(because)) => Error::Answer { url, because },
        }
    })
}

enum Problem {
    TransportError(TransportError),
    Handshake(Failure),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Handshake(failure)
    }
}

async fn reach(place: &NbdTransport, host: &str) -> Result<Box<dyn Duplex>, Problem> {
    let failed = |error: io::Error| {
        Problem::TransportError(TransportError::Connect {
            host: host.to_owned(),
            source: error.into(),
        })
    };
    match place {
        NbdTransport::Tcp { host: name, port } => {
            let stream = TcpStream::connect((name.as_str(), *port)).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            Ok(Box::new(stream))
        }
        NbdTransport::Unix(path) => Ok(Box::new(UnixStream::connect(path).await.map_err(failed)?)),
    }
}

async fn secure(
    mut stream: Box<dyn Duplex>,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    host: &str,
) -> Result<Box<dyn Duplex>, Problem> {
    handshake::start_tls(&mut stream).await?;
    let shaken = TlsConnector::from(config).connect(name, wire(stream)).await;
    let stream = shaken
        .map_err(|error| Problem::TransportError(tls::handshake_error(host.to_owned(), error)))?;
    Ok(Box::new(stream))
}

/// HTTP is what the other users of the settings speak.
fn without_protocols(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![];
    Arc::new(config)
}
