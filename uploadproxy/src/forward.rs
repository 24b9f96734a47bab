//! Streams one request to an upload server, and its response back, with hyper's client.

use std::error::Error as StdError;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use runtime::tls::wire;
use runtime::{detect_dead_peer, send_only_request};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::body::DrainedBody;

/// Time limits of the TCP connection and of the TLS handshake, each.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Request headers that an upload server or the connection to it needs. All others are removed: the pod of
/// an upload server is in the namespace of a tenant, and must not see tokens or cookies that are for this proxy or for one
/// before it.
const FORWARDED: [&str; 10] = [
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "repr-digest",
    "tus-resumable",
    "user-agent",
    "x-forwarded-for",
    "x-http-method-override",
];
/// Prefix of the tus protocol's headers.
const FORWARDED_PREFIX: &str = "upload-";

/// The upload server of a request.
#[derive(Clone, Debug)]
pub struct ProxyTarget {
    /// The name in the server's certificate.
    pub host: String,
    /// Host and port to connect to.
    pub address: String,
    /// Path of the request.
    pub path: Uri,
    /// How long to retry the connection: a server that has crashed restarts soon, and no byte of the body was read yet.
    pub patience: Duration,
}

type Cause = Box<dyn StdError + Send + Sync>;

/// Sends a request of `client`, and returns the head of the response, which may come before the end of the
/// request. Each request has a connection of its own.
pub async fn forward(
    parts: Parts,
    body: DrainedBody,
    target: &ProxyTarget,
    tls: Arc<ClientConfig>,
    client: IpAddr,
) -> Result<Response<Incoming>, Cause> {
    let sender = connect(target, tls).await?;
    let request = Request::from_parts(rewrite_head(parts, target, client), body);
    let mut response = send_only_request(sender, request).await?;
    remove_hop_headers(response.headers_mut());
    // The response comes from a pod in a tenant's namespace, and pages of other tenants share this origin.
    response.headers_mut().remove(header::SET_COOKIE);
    Ok(response)
}

async fn connect(
    target: &ProxyTarget,
    tls: Arc<ClientConfig>,
) -> Result<http1::SendRequest<DrainedBody>, Cause> {
    let late = |_| format!("{} did not respond in time", target.host);
    let stream = connect_with_retry(target).await?;
    let _ = stream.set_nodelay(true); // writes are large or urgent
    detect_dead_peer(&stream)?;
    let name = ServerName::try_from(target.host.clone())?;
    let shaking = TlsConnector::from(tls).connect(name, wire(stream));
    let stream = timeout(CONNECT_MAX, shaking).await.map_err(late)??;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the request: after the response, or when either side closes.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("the connection to an upload server failed: {error}");
        }
    });
    Ok(sender)
}

/// Retries, as the server may be restarting.
async fn connect_with_retry(target: &ProxyTarget) -> Result<TcpStream, Cause> {
    let begin = Instant::now();
    loop {
        let late = |_| Cause::from(format!("{} did not respond in time", target.host));
        let connected =
            timeout(CONNECT_MAX, TcpStream::connect(&target.address)).await.map_err(late);
        let error = match connected.and_then(|connected| Ok(connected?)) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if begin.elapsed() + RETRY_PAUSE > target.patience {
            return Err(error);
        }
        tracing::debug!("cannot connect to {} yet: {error}", target.host);
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// The head of the request to the upload server.
fn rewrite_head(mut parts: Parts, target: &ProxyTarget, client: IpAddr) -> Parts {
    parts.uri = target.path.clone();
    parts.version = Version::HTTP_11;
    remove_hop_headers(&mut parts.headers);
    retain_forwarded_headers(&mut parts.headers);
    // The address has only characters of names and numbers, so this cannot fail.
    if let Ok(host) = HeaderValue::from_str(&target.address) {
        parts.headers.insert(header::HOST, host);
    }
    let before = parts.headers.get(&FORWARDED_FOR).and_then(|value| value.to_str().ok());
    let chain = before.map_or(client.to_string(), |before| format!("{before}, {client}"));
    if let Ok(chain) = HeaderValue::from_str(&chain) {
        parts.headers.insert(FORWARDED_FOR, chain);
    }
    parts
}

/// Removes all headers that an upload server does not need. hyper has handled `Expect` already.
fn retain_forwarded_headers(headers: &mut HeaderMap) {
    let is_forwarded = |name: &HeaderName| {
        FORWARDED.contains(&name.as_str()) || name.as_str().starts_with(FORWARDED_PREFIX)
    };
    let others: Vec<_> = headers.keys().filter(|name| !is_forwarded(name)).cloned().collect();
    for name in others {
        headers.remove(name);
    }
}

fn remove_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let always = [
        header::CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    for name in named.into_iter().chain(always) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headers_that_the_upload_server_needs_are_forwarded() {
        let target = ProxyTarget {
            host: "s.ns.svc".into(),
            address: "s.ns.svc:8443".into(),
            path: Uri::from_static("/v1beta1/upload"),
            patience: Duration::ZERO,
        };
        let request = Request::post("https://proxy/v1beta1/upload?a=b")
            .header("host", "proxy")
            .header("authorization", "Bearer x")
            .header("cookie", "session=1")
            .header("x-forwarded-access-token", "t")
            .header("x-cdi-content-type", "filesystem-clone")
            .header("content-type", "application/offset+octet-stream")
            .header("tus-resumable", "1.0.0")
            .header("upload-offset", "7")
            .header("repr-digest", "sha-256=:AA==:")
            .header("content-length", "3")
            .header("connection", "close, X-Mine")
            .header("x-mine", "1")
            .header("x-yours", "2")
            .header("te", "trailers")
            .header("expect", "100-continue")
            .header("x-forwarded-for", "1.2.3.4")
            .version(Version::HTTP_2);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let parts = rewrite_head(parts, &target, "::1".parse().unwrap());
        assert_eq!(
            (parts.uri.to_string(), parts.version),
            ("/v1beta1/upload".into(), Version::HTTP_11)
        );
        let mut found: Vec<_> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        found.sort_unstable();
        let expected = [
            ("content-length", "3"),
            ("content-type", "application/offset+octet-stream"),
            ("host", "s.ns.svc:8443"),
            ("repr-digest", "sha-256=:AA==:"),
            ("tus-resumable", "1.0.0"),
            ("upload-offset", "7"),
            ("x-forwarded-for", "1.2.3.4, ::1"),
        ];
        assert_eq!(found, expected);
    }
}
