//! An HTTPS server with limits on connections and time, eviction of idle connections, and graceful shutdown.

mod activity;
mod connection;
mod registry;
mod slots;
mod tracked;

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::detect_dead_peer;

use connection::{ConnectionTask, Handshake, Plain};
use registry::Registry;
use slots::Capacity;
#[cfg(feature = "cluster")]
pub(crate) use slots::Source;

pub use activity::InFlight;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. When all slots are taken, the connection that has waited longest without an accepted
    /// request is evicted for a new one; see [`InFlight::accept`].
    pub connections: usize,
    /// How many of them may come from one IPv4 address or IPv6 /64, those with an accepted request or a verified client
    /// certificate not counted. Default: a quarter.
    pub waiting_per_source: Option<usize>,
    /// How long a client may take for its handshake, and then for the head of its first request.
    pub patience: Duration,
    /// How long a connection is kept without a request in flight, even if the client responds to pings or sends the head of its next
    /// request slowly.
    pub idle: Duration,
    /// How long a client may take to read a response.
    pub sending: Duration,
    /// Size limit of a request head, in bytes.
    pub head_bytes: u32,
    /// Concurrent HTTP/2 streams per connection.
    pub streams: u32,
    /// Maximum age of a connection. An HTTP/1 connection ends with the first response after it. `None`: unlimited, as a transfer may
    /// take hours.
    pub lifetime: Option<Duration>,
    /// How long responses may take to be sent when the server stops.
    pub farewell: Duration,
    /// HTTP/2 is refused.
    pub only_http1: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            waiting_per_source: None,
            patience: Duration::from_secs(10),
            idle: Duration::from_secs(120), // longer than clients wait between two requests, 90 s by default in Go
            sending: Duration::from_secs(60),
            head_bytes: 64 << 10, // tokens and the headers of proxies included
            streams: 100,
            lifetime: None,
            farewell: Duration::from_secs(25), // less than pods are given to stop
            only_http1: false,
        }
    }
}

impl Limits {
    fn capacity(&self) -> Capacity {
        let quarter = (self.connections / 4).max(1);
        Capacity {
            connections: self.connections,
            waiting_per_source: self.waiting_per_source.unwrap_or(quarter),
            ending: quarter,
        }
    }
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The verified certificate chain, the client's own first. Empty: the client has none.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

/// Serves until `stop` is true; then sends pending responses for at most [`Limits::farewell`]. `tls` is called for each
/// connection, and so is `service`, which creates the connection's service.
pub async fn serve<S, B>(
    listener: TcpListener,
    limits: Limits,
    stop: watch::Receiver<bool>,
    tls: impl Fn() -> Arc<ServerConfig>,
    service: impl Fn(Peer) -> S + Send + Sync + 'static,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    accept(listener, limits, stop, || TlsAcceptor::from(tls()), service).await;
}

/// [`serve`] without TLS, HTTP/1.1 only.
pub(crate) async fn serve_plain<S, B>(
    listener: TcpListener,
    limits: Limits,
    stop: watch::Receiver<bool>,
    service: impl Fn(Peer) -> S + Send + Sync + 'static,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    accept(listener, limits, stop, || Plain, service).await;
}

async fn accept<H, F, S, B>(
    listener: TcpListener,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    handshake: impl Fn() -> H,
    service: F,
) where
    H: Handshake,
    F: Fn(Peer) -> S + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = Arc::new(service);
    let registry = Registry::new(limits.capacity());
    let mut connections = JoinSet::new(); // aborted when this function returns
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (connection, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await; // file descriptors may be exhausted
                continue;
            }
        };
        // An upload of a client that is gone would otherwise keep all others from its volume.
        if let Err(error) = detect_dead_peer(&connection) {
            tracing::warn!("connections of clients that are gone are not noticed: {error}");
        }
        let lease = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            lease = registry.admit(address.ip().into()) => lease,
        };
        let task = ConnectionTask {
            limits,
            lease,
            stop: stop.clone(),
            handshake: handshake(),
            service: Arc::clone(&service),
        };
        connections.spawn(task.serve(connection, address));
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(limits.farewell, ended).await;
}

/// Reads and discards the rest of a body, up to `bytes_max` or `time_max`. A client that is still sending would otherwise
/// see a connection reset and not the response.
pub async fn drain<B>(body: B, bytes_max: u64, time_max: Duration)
where
    B: Body,
    B::Data: Buf,
{
    let mut body = pin!(body);
    let read = async {
        let mut left = bytes_max;
        while let Some(Ok(frame)) = body.frame().await {
            let count = frame.data_ref().map_or(0, Buf::remaining);
            left = left.saturating_sub(count as u64);
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(time_max, read).await; // the response is sent in any case
}
