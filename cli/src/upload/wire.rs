//! One request to the upload proxy on a new connection, with a streamed body, by hyper's client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::stream;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Limited, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use importer::{HttpConnector, HttpOptions};
use runtime::send_only_request;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use url::Url;

/// Time limit of connection and TLS handshake.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit of a response, which may include an fsync of the whole disk.
const RESPONSE_MAX: Duration = Duration::from_secs(3600);
/// Size limit of a response body.
const BODY_MAX: usize = 64 << 10;

pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The upload proxy.
#[derive(Clone)]
pub struct Server {
    url: Url,
    host: String,
    connector: Arc<HttpConnector>,
}

#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl HttpResponse {
    /// A header that holds a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

impl Server {
    /// `address`: optional `https://`, host, optional port, and optional path prefix of the
    /// proxy. With `forwarded`, connections go to that address; the server is still verified by the name in `address`.
    ///
    /// # Errors
    /// When the address is invalid, or the certificates or the proxy of `options` cannot be used.
    pub fn new(
        address: &str,
        forwarded: Option<SocketAddr>,
        options: &HttpOptions,
    ) -> Result<Self> {
        let whole =
            if address.contains("://") { address.to_owned() } else { format!("https://{address}") };
        let invalid = || format!("cannot parse {address} as the address of an upload proxy");
        let mut url = Url::parse(&whole).with_context(invalid)?;
        if url.scheme() != "https" {
            bail!("cannot send a token to {address}: the address has to be https");
        }
        let host = url.host_str().with_context(invalid)?.to_owned();
        // Url::join replaces the last path segment unless the path ends in a slash.
        let path = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        let mut connector = HttpConnector::to(&url, options)?;
        if let Some(forwarded) = forwarded {
            connector = connector.connecting_to(forwarded);
        }
        let connector = Arc::new(connector);
        Ok(Self { url, host, connector })
    }

    /// The URL of a path below the proxy's.
    ///
    /// # Errors
    /// When the path is invalid.
    pub fn at(&self, path: &str) -> Result<Url> {
        Ok(self.url.join(path)?)
    }

    /// Resolves the Location `found` in a response to `from`. It has to be on the same server, as the token is sent
    /// nowhere else.
    ///
    /// # Errors
    /// When it names another server.
    pub fn follow(&self, from: &Url, found: &str) -> Result<Url> {
        let url = from.join(found).context("the proxy's Location is not a URL")?;
        if url.origin() != self.url.origin() {
            bail!("the proxy's Location names another server, to which no token is sent");
        }
        Ok(url)
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn request(
        &self,
        method: Method,
        url: &Url,
        token: &HeaderValue,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Body,
    ) -> Result<HttpResponse> {
        let late = |_| format!("{} did not respond in time", self.host);
        let stream = self.connector.dial(PATIENCE).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut target = url.path().to_owned();
        if let Some(query) = url.query() {
            target = format!("{target}?{query}");
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = target.parse()?;
        let host = match url.port() {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        };
        request.headers_mut().insert(HOST, host.parse()?);
        request.headers_mut().insert(AUTHORIZATION, token.clone());
        request.headers_mut().extend(headers);
        let exchange = async {
            let (parts, body) = send_only_request(sender, request).await?.into_parts();
            let text = Limited::new(body, BODY_MAX).collect().await;
            let text = text.map(|text| text.to_bytes()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok::<_, hyper::Error>(HttpResponse {
                status: parts.status,
                headers: parts.headers,
                text,
            })
        };
        let response = timeout(RESPONSE_MAX, exchange).await;
        connection.abort(); // the rest of the body is not sent
        let response = response.map_err(late).map_err(io::Error::other)?;
        response.context("the connection failed")
    }
}

pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body from a channel; an error aborts the request.
pub fn streamed(pieces: Receiver<io::Result<Bytes>>) -> Body {
    let frames = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece.map(Frame::data), pieces))
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str) -> Result<Server> {
        Server::new(address, None, &HttpOptions::default())
    }

    #[test]
    fn addresses_are_completed_and_paths_appended() {
        for (address, expected) in [
            ("proxy", "https://proxy/v1/a"),
            ("https://proxy/", "https://proxy/v1/a"),
            ("proxy:8443/cdi", "https://proxy:8443/cdi/v1/a"),
            ("https://proxy/a/b/?x#y", "https://proxy/a/b/v1/a"),
            ("https://[::1]:8443", "https://[::1]:8443/v1/a"),
        ] {
            assert_eq!(server(address).unwrap().at("v1/a").unwrap().as_str(), expected);
        }
        for address in ["", "http://proxy", "ftp://proxy", "https://", "a b"] {
            assert!(server(address).is_err(), "{address}");
        }
    }

    #[test]
    fn token_is_not_sent_to_another_server() {
        let server = server("proxy/cdi").unwrap();
        let from = server.at("v1/uploads").unwrap();
        let follow = |found| server.follow(&from, found).ok().map(String::from);
        assert_eq!(follow("uploads/1"), Some("https://proxy/cdi/v1/uploads/1".into()));
        assert_eq!(follow("/x"), Some("https://proxy/x".into()));
        for other in ["//evil/x", "https://evil/x", "http://proxy/x", "https://proxy:1/x"] {
            assert_eq!(follow(other), None, "{other}");
        }
    }
}
