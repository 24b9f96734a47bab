//! Connections by TLS: who may come in and how many, how long they may take, and an orderly end.

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
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::tls::{Wire, wire};

/// What a server allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many may be connected; others wait their turn.
    pub connections: usize,
    /// How long somebody may take to shake hands, and then to say what they want.
    pub patience: Duration,
    /// Bytes of what they say they want: heads of requests, not bodies.
    pub head_bytes: u32,
    /// How long one connection is kept, if that is bounded. A transfer may take hours.
    pub lifetime: Option<Duration>,
    /// How long answers may take to get through at the end.
    pub farewell: Duration,
    /// HTTP/2 is not spoken, whoever asks for it.
    pub only_http1: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            patience: Duration::from_secs(10),
            head_bytes: 64 << 10, // tokens and the headers of proxies included
            lifetime: None,
            farewell: Duration::from_secs(25), // less than pods are given to stop
            only_http1: false,
        }
    }
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where they come from.
    pub address: SocketAddr,
    /// What they have proved themselves with: empty, or their own certificate first.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

/// Serves until `stop` says true; then lets answers that were begun get through, and cuts off whoever takes longer. `tls` is
/// asked anew for each connection, and `service` makes what answers one.
pub async fn serve<S, B>(
    listener: TcpListener,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    tls: impl Fn() -> Arc<ServerConfig>,
    service: impl Fn(Peer) -> S + Send + Sync + 'static,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = Arc::new(service);
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut conversations = JoinSet::new(); // they end with this function at the latest
    loop {
        let accepted = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = conversations.join_next() => continue,
            accepted = accepted => accepted,
        };
        let (connection, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await; // descriptors may be short
                continue;
            }
        };
        let (acceptor, watcher) = (TlsAcceptor::from(tls()), graceful.watcher());
        let service = Arc::clone(&service);
        conversations.spawn(async move {
            if let Some(stream) = shake_hands(acceptor, connection, limits.patience).await {
                let peer = Peer { address, certificates: certificates(&stream) };
                let conversation = converse(stream, limits, watcher, service(peer));
                match limits.lifetime {
                    None => conversation.await,
                    // Whoever stays longer comes back.
                    Some(most) => drop(tokio::time::timeout(most, conversation).await),
                }
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(limits.farewell, graceful.shutdown()).await;
}

async fn shake_hands(
    acceptor: TlsAcceptor,
    connection: TcpStream,
    patience: Duration,
) -> Option<TlsStream<Wire>> {
    let _ = connection.set_nodelay(true); // answers are short
    match tokio::time::timeout(patience, acceptor.accept(wire(connection))).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!("a client cannot shake hands: {error}");
            None
        }
        Err(_) => {
            tracing::debug!("a client was too slow to shake hands");
            None
        }
    }
}

/// What the handshake has verified.
fn certificates(stream: &TlsStream<Wire>) -> Arc<[CertificateDer<'static>]> {
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().unwrap_or_default();
    shown.iter().map(|certificate| certificate.clone().into_owned()).collect()
}

async fn converse<S, B>(stream: TlsStream<Wire>, limits: Limits, watcher: Watcher, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut server = Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .max_buf_size(limits.head_bytes as usize);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.patience)
        // As much on its way as the network holds, and little of it where nobody reads: a megabyte, which is usual, would
        // be 10 MB/s from a client 100 ms away.
        .adaptive_window(true)
        .max_header_list_size(limits.head_bytes);
    if limits.only_http1 {
        server = server.http1_only();
    }
    let conversation = watcher.watch(server.serve_connection(TokioIo::new(stream), service));
    if let Err(error) = conversation.await {
        tracing::debug!("a client left early: {error}");
    }
}

/// Reads what is left of a body and throws it away: as many bytes, or for as long. A client that is still sending would
/// see a broken connection and not its answer.
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
    let _ = tokio::time::timeout(time_max, read).await; // the answer is on its way all the same
}
