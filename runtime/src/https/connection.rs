//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::activity::Activity;
use super::registry::Lease;
use super::slots::Eviction;
use super::tracked::Tracked;
use super::{Limits, Peer};
use crate::tls::{Wire, wire};

/// How long a client may take to close after GOAWAY or `Connection: close`. A request accepted meanwhile is finished.
const GRACEFUL_CLOSE_MAX: Duration = Duration::from_secs(1);

/// HTTP/2 streams that a client may have reset before the server has begun with them. More are an attack ("rapid reset").
const RESETS_MAX: usize = 20;
/// Streams that the server itself has reset because of a client's errors.
const ERRORS_MAX: usize = 128;

pub(super) trait Handshake: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn shake_hands(
        self,
        connection: TcpStream,
    ) -> impl Future<Output = io::Result<Opened<Self::Stream>>> + Send;
}

/// A connection after its handshake.
pub(super) struct Opened<T> {
    stream: T,
    /// Verified by the handshake.
    certificates: Arc<[CertificateDer<'static>]>,
    protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    /// No ALPN: the first bytes decide.
    Either,
}

/// Plain HTTP/1.1.
pub(super) struct Plain;

impl Handshake for Plain {
    type Stream = TcpStream;

    async fn shake_hands(self, stream: TcpStream) -> io::Result<Opened<TcpStream>> {
        Ok(Opened { stream, certificates: Arc::default(), protocol: Protocol::Http1 })
    }
}

impl Handshake for TlsAcceptor {
    type Stream = TlsStream<Wire>;

    async fn shake_hands(self, connection: TcpStream) -> io::Result<Opened<TlsStream<Wire>>> {
        let stream = self.accept(wire(connection)).await?;
        let (_, session) = stream.get_ref();
        let presented = session.peer_certificates().unwrap_or_default();
        let certificates =
            presented.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let protocol = match session.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            Some(_) => Protocol::Http1,
            None => Protocol::Either,
        };
        Ok(Opened { stream, certificates, protocol })
    }
}

/// Everything that serving one connection needs.
pub(super) struct ConnectionTask<H, F> {
    pub limits: Limits,
    pub lease: Lease,
    pub stop: watch::Receiver<bool>,
    pub handshake: H,
    pub service: Arc<F>,
}

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The server stops; requests in flight are finished.
    Stop,
    /// Requests in flight are finished within [`GRACEFUL_CLOSE_MAX`].
    Orderly,
    Immediate,
}

impl<H: Handshake, F> ConnectionTask<H, F> {
    pub async fn serve<S, B>(mut self, connection: TcpStream, address: SocketAddr)
    where
        F: Fn(Peer) -> S,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let limits = self.limits;
        let _ = connection.set_nodelay(true); // responses are short
        let opening = timeout(limits.patience, self.handshake.shake_hands(connection));
        let opened = tokio::select! {
            opened = opening => opened,
            _ = self.stop.wait_for(|stop| *stop) => return,
            _ = &mut self.lease.evicted => {
                tracing::debug!("evicted the connection of {address} during its handshake");
                return;
            }
        };
        let Opened { stream, certificates, protocol } = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                tracing::debug!("TLS handshake with {address} failed: {error}");
                return;
            }
            Err(_) => {
                tracing::debug!("TLS handshake with {address} timed out");
                return;
            }
        };
        let is_certified = !certificates.is_empty();
        let activity = Activity::new(Arc::clone(&self.lease.registry), self.lease.id, is_certified);
        let service = (self.service)(Peer { address, certificates });
        let service = Tracked::new(service, Arc::clone(&activity));
        let server = server(&limits, protocol);
        let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
        let lifetime = async {
            match limits.lifetime {
                None => return std::future::pending().await,
                Some(most) => sleep(most).await,
            }
            // Between two requests HTTP/1 has no message for that: a client would lose the request that it sends meanwhile.
            if protocol == Protocol::Http1 {
                activity.retire();
                std::future::pending().await
            }
        };
        let ending = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!("connection of {address} failed: {error}");
                }
                return;
            }
            _ = self.stop.wait_for(|stop| *stop) => Ending::Stop,
            eviction = &mut self.lease.evicted => match eviction {
                Ok(Eviction::Immediate) => Ending::Immediate,
                Ok(Eviction::Orderly) | Err(_) => Ending::Orderly,
            },
            () = activity.overdue(&limits) => if activity.has_served() { Ending::Orderly } else { Ending::Immediate },
            () = lifetime => Ending::Orderly,
        };
        tracing::debug!("closing the connection of {address}: {ending:?}");
        // A request may have been accepted since the eviction was decided.
        if ending == Ending::Immediate && !activity.is_working() {
            return;
        }
        connection.as_mut().graceful_shutdown();
        loop {
            tokio::select! {
                _ = connection.as_mut() => return,
                () = sleep(GRACEFUL_CLOSE_MAX), if ending != Ending::Stop => {
                    if !activity.is_working() {
                        return;
                    }
                }
            }
        }
    }
}

fn server(limits: &Limits, protocol: Protocol) -> Builder<TokioExecutor> {
    let mut server = Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        // It would also end the time between two requests; `Activity::overdue` limits both.
        .header_read_timeout(None)
        .max_buf_size(limits.head_bytes as usize);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.patience)
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        // The window follows the bandwidth-delay product and stays small for a slow reader: hyper's default of a megabyte
        // would limit a client 100 ms away to 10 MB/s.
        .adaptive_window(true)
        .max_header_list_size(limits.head_bytes);
    match protocol {
        _ if limits.only_http1 => server.http1_only(),
        Protocol::Http1 => server.http1_only(),
        Protocol::Http2 => server.http2_only(),
        Protocol::Either => server,
    }
}
