//! Reaching a server: names, addresses, proxies, TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use runtime::tls::{Wire, wire};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::{Host, Url};

use super::head;
use crate::error::{TransportError, Unresolved};
use crate::web::dial_policy::DialPolicy;
use crate::web::tls::{self, Trust};

/// The longest for each step: a name to look up, a connection to make, a proxy or TLS to agree.
const STEP_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Time before the next address is tried in parallel (RFC 8305).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// TLS over a connection that is read in large pieces.
type Secure<S> = TlsStream<Wire<S>>;

/// A connection, whatever is between us and the server.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<Secure<TcpStream>>),
    /// Through a proxy that is itself connected to by TLS.
    Nested(Box<Secure<Box<Secure<TcpStream>>>>),
}

/// How to reach a server.
pub(super) struct Route {
    /// `host:port` of the server: how errors name it.
    pub(super) host: String,
    /// The same for everything that one connection can be used for.
    pub(super) key: String,
    /// The proxy, if one is used.
    pub(super) proxy: Option<Url>,
    /// The server has to be connected to by TLS.
    pub(super) tls: bool,
}

/// The limits and settings of a new connection.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) trust: &'a Trust,
    /// Of the server's addresses. The proxy is the administrator's choice.
    pub(super) policy: &'a DialPolicy,
    pub(super) user_agent: Option<&'a HeaderValue>,
    pub(super) limit: Limit,
}

impl Route {
    /// The way to `url`, through `proxy` where there is one.
    pub(super) fn to(url: &Url, proxy: Option<Url>) -> Self {
        let tls = url.scheme() == "https";
        let host = host_of(url);
        let key = match (&proxy, tls) {
            // One connection to a proxy serves all plain requests, a tunnel only one server.
            (Some(proxy), false) => format!("{}://{}", proxy.scheme(), host_of(proxy)),
            _ => format!("{}://{host}", url.scheme()),
        };
        Self { host, key, proxy, tls }
    }

    /// A plain request is passed to the proxy whole, with the full address.
    pub(super) fn by_full_address(&self) -> bool {
        self.proxy.is_some() && !self.tls
    }

    /// The credentials for the proxy in each plain request.
    pub(super) fn proxy_authorization(&self) -> Option<HeaderValue> {
        authorization(self.proxy.as_ref()?)
    }

    pub(super) async fn dial(&self, url: &Url, terms: Terms<'_>) -> Result<Stream, TransportError> {
        let Terms { trust, policy, user_agent, limit } = terms;
        let Some(proxy) = &self.proxy else {
            return self.secure(url, connect(url, policy, limit).await?, terms).await;
        };
        let tcp = connect(proxy, &DialPolicy::Any, limit).await?;
        match (proxy.scheme() == "https", self.tls) {
            (false, false) => Ok(Stream::Plain(tcp)),
            (false, true) => {
                let tunnel = self.tunnel(proxy, tcp, user_agent, limit).await?;
                Ok(Stream::Tls(Box::new(shake_hands(url, tunnel, trust, limit).await?)))
            }
            (true, false) => {
                Ok(Stream::Tls(Box::new(shake_hands(proxy, tcp, trust, limit).await?)))
            }
            (true, true) => {
                let outer = Box::new(shake_hands(proxy, tcp, trust, limit).await?);
                let tunnel = self.tunnel(proxy, outer, user_agent, limit).await?;
                Ok(Stream::Nested(Box::new(shake_hands(url, tunnel, trust, limit).await?)))
            }
        }
    }

    /// A new connection to the server at `address`, which TLS verifies by the name in `url`.
    pub(super) async fn dial_at(
        &self,
        url: &Url,
        address: SocketAddr,
        terms: Terms<'_>,
    ) -> Result<Stream, TransportError> {
        let failed = |source: io::Error| TransportError::Connect {
            host: format!("{} at {address}", host_of(url)),
            source: source.into(),
        };
        let tcp = terms.limit.on(TcpStream::connect(address)).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        self.secure(url, tcp, terms).await
    }

    /// TLS over a connection, where the server needs it.
    async fn secure(
        &self,
        url: &Url,
        tcp: TcpStream,
        terms: Terms<'_>,
    ) -> Result<Stream, TransportError> {
        let Terms { trust, limit, .. } = terms;
        if self.tls {
            Ok(Stream::Tls(Box::new(shake_hands(url, tcp, trust, limit).await?)))
        } else {
            Ok(Stream::Plain(tcp))
        }
    }

    /// Requests a tunnel to the server from the proxy.
    async fn tunnel<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        proxy: &Url,
        mut stream: S,
        user_agent: Option<&HeaderValue>,
        limit: Limit,
    ) -> Result<S, TransportError> {
        let mut headers = HeaderMap::new();
        headers.extend(user_agent.map(|value| (USER_AGENT, value.clone())));
        headers.extend(authorization(proxy).map(|value| (PROXY_AUTHORIZATION, value)));
        let request = head::request("CONNECT", &self.host, &self.host, &headers);
        let exchange = async {
            stream.write_all(&request).await?;
            stream.flush().await?;
            let mut answer = Vec::new();
            // Byte by byte: what follows the response belongs to the tunnel.
            loop {
                answer.push(stream.read_u8().await?);
                if answer.ends_with(b"\r\n\r\n")
                    && let Some((head, _)) = head::parse(&answer).map_err(io::Error::other)?
                {
                    return Ok(head.status);
                }
                if answer.len() > head::HEAD_LEN_MAX {
                    return Err(io::Error::other("its answer has no end"));
                }
            }
        };
        let host = host_of(proxy);
        match limit.on(exchange).await {
            Ok(status) if status.is_success() => Ok(stream),
            Ok(status) => {
                let to = self.host.clone();
                Err(TransportError::Proxy { host, to, status: status.as_u16() })
            }
            Err(source) => Err(TransportError::Connect { host, source: source.into() }),
        }
    }
}

/// Host and port of an address, as `CONNECT` and messages have them.
pub(super) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn authorization(proxy: &Url) -> Option<HeaderValue> {
    if proxy.username().is_empty() && proxy.password().is_none() {
        return None;
    }
    let decode = |text| percent_decode_str(text).decode_utf8_lossy();
    let pair =
        format!("{}:{}", decode(proxy.username()), decode(proxy.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// How long the peer may be silent while a connection is established.
#[derive(Clone, Copy)]
pub(super) struct Limit(Duration);

impl Limit {
    pub(super) fn within(patience: Duration) -> Self {
        Self(patience.min(STEP_TIMEOUT_MAX))
    }

    async fn on<T>(self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let late =
            || io::Error::new(io::ErrorKind::TimedOut, format!("no answer for {:?}", self.0));
        timeout(self.0, step).await.unwrap_or_else(|_| Err(late()))
    }
}

/// A connection to the machine that `url` names, at an address that `policy` has seen: a name is resolved once.
async fn connect(
    url: &Url,
    policy: &DialPolicy,
    limit: Limit,
) -> Result<TcpStream, TransportError> {
    let failed =
        |source: io::Error| TransportError::Connect { host: host_of(url), source: source.into() };
    let unresolved = |source: io::Error| TransportError::Connect {
        host: host_of(url),
        source: Unresolved(source).into(),
    };
    let port = url.port_or_known_default().unwrap_or(80);
    let mut addresses: Vec<SocketAddr> = match url.host() {
        Some(Host::Ipv4(address)) => vec![(address, port).into()],
        Some(Host::Ipv6(address)) => vec![(address, port).into()],
        Some(Host::Domain(name)) => {
            limit.on(tokio::net::lookup_host((name, port))).await.map_err(unresolved)?.collect()
        }
        None => Vec::new(),
    };
    let mut denied = None;
    addresses.retain(|address| match policy.check(address.ip()) {
        Ok(()) => true,
        Err(kind) => {
            denied = Some(kind);
            false
        }
    });
    if let Some(kind) = denied.filter(|_| addresses.is_empty()) {
        return Err(TransportError::Denied { host: host_of(url), kind });
    }
    let stream = limit.on(race(addresses)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Connects to the first of `addresses` that accepts. The next one is tried in parallel after a delay.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut running = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    loop {
        match waiting.next() {
            Some(address) => {
                running.spawn(TcpStream::connect(address));
            }
            None if running.is_empty() => return Err(last),
            None => {}
        }
        let more = !waiting.as_slice().is_empty();
        tokio::select! {
            Some(done) = running.join_next() => match done.map_err(io::Error::other).flatten() {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            },
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if more => {}
        }
    }
}

async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    url: &Url,
    stream: S,
    trust: &Trust,
    limit: Limit,
) -> Result<Secure<S>, TransportError> {
    let host = || host_of(url);
    let name = match url.host() {
        Some(Host::Ipv4(address)) => Ok(ServerName::from(std::net::IpAddr::V4(address))),
        Some(Host::Ipv6(address)) => Ok(ServerName::from(std::net::IpAddr::V6(address))),
        _ => ServerName::try_from(url.host_str().unwrap_or_default().to_owned()),
    };
    let name = name.map_err(|error| TransportError::Tls { host: host(), source: error.into() })?;
    let shaken = limit.on(TlsConnector::from(trust.config(url)).connect(name, wire(stream))).await;
    shaken.map_err(|error| tls::handshake_error(host(), error))
}

/// What TLS is spoken over.
fn below<S: AsyncRead>(tls: &Secure<S>) -> &S {
    tls.get_ref().0.get_ref()
}

impl Stream {
    /// The socket at the bottom.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => below(tls),
            Self::Nested(tls) => below(below(tls).as_ref()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(context, buffer),
            Self::Nested(tls) => Pin::new(tls).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
            Self::Nested(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(tls) => Pin::new(tls).poll_flush(context),
            Self::Nested(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(context),
            Self::Nested(tls) => Pin::new(tls).poll_shutdown(context),
        }
    }
}
