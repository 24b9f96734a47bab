//! One request to the upload proxy: a connection of its own, a body that is made as it goes, an answer.

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
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use url::Url;

/// How long a server may take to be there and to shake hands.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to answer: a sync of all that was sent is in that time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3600);
/// Of what a server says, as much is worth hearing.
const WORDS_MAX: usize = 64 << 10;

/// What is sent with a request.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The upload proxy.
#[derive(Clone)]
pub struct Server {
    url: Url,
    host: String,
    way: Arc<HttpConnector>,
}

/// What it said.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub words: String,
}

impl Answer {
    /// A header that is a number of bytes.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

impl Server {
    /// The one at `address`: `https://`, which may be left out, a host, and perhaps a port and a path before the paths of the
    /// proxy. With `forwarded`, connections go to that address; the server is still verified by the name in `address`.
    ///
    /// # Errors
    /// When it is no such address, or the certificates or the proxy of `options` cannot be used.
    pub fn new(
        address: &str,
        forwarded: Option<SocketAddr>,
        options: &HttpOptions,
    ) -> Result<Self> {
        let whole = match address.contains("://") {
            true => address.to_owned(),
            false => format!("https://{address}"),
        };
        let wrong = || format!("{address} is no address of an upload proxy");
        let mut url = Url::parse(&whole).with_context(wrong)?;
        if url.scheme() != "https" {
            bail!("{address} is not served by https, and a token is sent nowhere else");
        }
        let host = url.host_str().with_context(wrong)?.to_owned();
        // The last part of a path is replaced by what is joined to it, unless it ends in a slash.
        let path = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        let mut way = HttpConnector::to(&url, options)?;
        if let Some(forwarded) = forwarded {
            way = way.connecting_to(forwarded);
        }
        let way = Arc::new(way);
        Ok(Self { url, host, way })
    }

    /// Where something is that has this path below the proxy.
    ///
    /// # Errors
    /// When it is no path.
    pub fn at(&self, path: &str) -> Result<Url> {
        Ok(self.url.join(path)?)
    }

    /// Where `found` leads to, which a request for `from` was answered with. It has to be on the same server: a token goes
    /// nowhere else.
    ///
    /// # Errors
    /// When it leads elsewhere.
    pub fn follow(&self, from: &Url, found: &str) -> Result<Url> {
        let url = from.join(found).context("the proxy names a place that is none")?;
        if url.origin() != self.url.origin() {
            bail!("the proxy leads to another server, where nothing is sent");
        }
        Ok(url)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn ask(
        &self,
        method: Method,
        url: &Url,
        token: &HeaderValue,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Body,
    ) -> Result<Answer> {
        let late = |_| format!("{} does not answer", self.host);
        let stream = self.way.dial(PATIENCE).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
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
        let answered = async {
            let (parts, body) = sender.send_request(request).await?.into_parts();
            let words = Limited::new(body, WORDS_MAX).collect().await;
            let words = words.map(|words| words.to_bytes()).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            Ok::<_, hyper::Error>(Answer { status: parts.status, headers: parts.headers, words })
        };
        let answer = timeout(ANSWER_PATIENCE, answered).await;
        connection.abort(); // whatever of the body was not wanted stays here
        let answer = answer.map_err(late).map_err(io::Error::other)?;
        answer.context("the connection broke")
    }
}

/// Nothing.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// What comes out of a channel; an error breaks the request off.
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
    fn addresses_are_completed_and_paths_are_put_behind() {
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
    fn a_token_goes_to_no_other_server() {
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
