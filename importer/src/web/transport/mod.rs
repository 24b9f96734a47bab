//! One request, one response, over connections that are kept: HTTP/1.1 as images need it, and no more.
//!
//! A general client reads each response into fresh memory. At memory speed the page faults of that cost more than the copy
//! out of the kernel, so here bodies are read straight into buffers that are used again; and a server whose
//! `Content-Length` is no number is still understood.

mod batch;
mod body;
mod connector;
mod dial;
mod framing;
mod head;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(super) use body::Body;
use bytes::BytesMut;
pub use connector::HttpConnector;
use dial::{Limit, Route, Stream, Terms};
use framing::Framing;
use head::Head;
use http::header::{CONTENT_LENGTH, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use url::Url;

use super::dial_policy::DialPolicy;
use super::options::HttpOptions;
use super::proxy::ProxySettings;
use super::tls::Trust;
use crate::error::{Error, TransportError};

/// Answers that announce another response (`100 Continue`, `103 Early Hints`) before the response.
const ANNOUNCEMENTS_MAX: usize = 16;

/// Sends requests over kept connections.
pub(super) struct Transport {
    proxy: ProxySettings,
    dial_policy: DialPolicy,
    trust: Trust,
    idle: Arc<Idle>,
}

/// A response of any status, its body not yet read.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// A connection, between two requests or in the middle of a body.
struct Connection {
    stream: Stream,
    /// Received, and not yet parsed.
    inbox: BytesMut,
    /// Bytes of bodies so far.
    received: u64,
    /// As in [`Route`].
    key: String,
}

/// Connections for the next request.
struct Idle {
    connections: Mutex<Vec<Connection>>,
    keep_max: usize,
}

impl Transport {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, Error> {
        Ok(Self::trusting(Trust::new(options)?, options))
    }

    /// The same with whom to trust already decided.
    pub(super) fn trusting(trust: Trust, options: &HttpOptions) -> Self {
        Self {
            proxy: options.proxy.clone(),
            dial_policy: options.dial_policy.clone(),
            trust,
            idle: Arc::new(Idle {
                connections: Mutex::default(),
                keep_max: options.streams_max.max(1),
            }),
        }
    }

    /// Requests `url`, by `GET` or `HEAD`. Gives up when nothing comes for as long as `patience`.
    pub(super) async fn send_request(
        &self,
        method: &Method,
        url: &Url,
        headers: HeaderMap,
        patience: Duration,
    ) -> Result<Response, TransportError> {
        self.send(method, url, headers, &[], patience).await
    }

    /// Sends a request of any kind, with a body unless that is empty and the kind is one that has none.
    pub(super) async fn send(
        &self,
        method: &Method,
        url: &Url,
        mut headers: HeaderMap,
        body: &[u8],
        patience: Duration,
    ) -> Result<Response, TransportError> {
        let proxy = self
            .proxy
            .proxy_for(url)
            .map_err(|because| TransportError::ProxySettings { because })?;
        if proxy.is_some() {
            // A connection to the proxy may be open already, and the proxy resolves names: so this is all that can be checked.
            let checked = self.dial_policy.check_unresolved(url);
            checked.map_err(|kind| TransportError::Denied { host: dial::host_of(url), kind })?;
        }
        let route = Route::to(url, proxy);
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let user_agent = headers.get(USER_AGENT).cloned();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", url.host_str().unwrap_or_default());
        let target = if route.by_full_address() {
            headers.extend(route.proxy_authorization().map(|value| (PROXY_AUTHORIZATION, value)));
            format!("http://{host}{path}")
        } else {
            path
        };
        let changes_something = !method.is_safe();
        if changes_something {
            headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let mut request = head::request(method.as_str(), &target, &host, &headers);
        request.extend_from_slice(body);
        let limit = Limit::within(patience);
        loop {
            // What may have been done already is not sent again, so it does not go over a connection that may be closed.
            let kept = if changes_something { None } else { self.idle.take_connection(&route.key) };
            let used = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => {
                    let terms = Terms {
                        trust: &self.trust,
                        policy: &self.dial_policy,
                        user_agent: user_agent.as_ref(),
                        limit,
                    };
                    let stream = route.dial(url, terms).await?;
                    let (inbox, key) = (BytesMut::new(), route.key.clone());
                    Connection { stream, inbox, received: 0, key }
                }
            };
            match timeout(patience, connection.exchange(&request)).await {
                Ok(Ok(head)) => {
                    return self.response(method, head, connection, route, patience);
                }
                // The server had closed it while it was idle: that does not describe the request.
                Ok(Err(_)) if used && connection.inbox.is_empty() => {}
                Ok(Err(source)) => {
                    return Err(TransportError::Broken { host: route.host, source: source.into() });
                }
                Err(_) => {
                    return Err(TransportError::Stalled { host: route.host, waited: patience });
                }
            }
        }
    }

    fn response(
        &self,
        method: &Method,
        head: Head,
        connection: Connection,
        route: Route,
        patience: Duration,
    ) -> Result<Response, TransportError> {
        let Head { status, headers, keep } = head;
        let framing = match framing::framing(method, status, &headers) {
            Ok(framing) => framing,
            Err(because) => {
                let source = io::Error::other(because).into();
                return Err(TransportError::Broken { host: route.host, source });
            }
        };
        let keep = keep && framing != Framing::UntilClose;
        let home = keep.then(|| Arc::clone(&self.idle));
        let body = Body::new(connection, framing, route.host, patience, home);
        Ok(Response { status, headers, body })
    }
}

impl Connection {
    /// Sends `request` and reads the head of the response.
    async fn exchange(&mut self, request: &[u8]) -> io::Result<Head> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let mut announcements = 0;
        loop {
            if let Some((head, len)) = head::parse(&self.inbox).map_err(io::Error::other)? {
                let _ = self.inbox.split_to(len);
                if !head.status.is_informational() {
                    return Ok(head);
                }
                announcements += 1;
                if announcements > ANNOUNCEMENTS_MAX {
                    return Err(io::Error::other("it announces an answer again and again"));
                }
                continue;
            }
            self.inbox.reserve(4 << 10);
            if self.stream.read_buf(&mut self.inbox).await? == 0 {
                let text = "it was closed before an answer came";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
        }
    }
}

impl Idle {
    /// The connection used last, if it is still open.
    fn take_connection(&self, key: &str) -> Option<Connection> {
        let mut connections = self.connections.lock();
        while let Some(at) = connections.iter().rposition(|connection| connection.key == key) {
            let connection = connections.remove(at);
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    fn give_back(&self, connection: Connection) {
        let mut connections = self.connections.lock();
        if connections.len() >= self.keep_max {
            connections.remove(0);
        }
        connections.push(connection);
    }
}
