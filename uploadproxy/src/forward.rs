//! One request handed on to an upload server, as it comes, and the answer handed back.

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
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::body::Drained;

/// How long a server may take to answer a connection, and then to shake hands.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(200);
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What an upload server reads of a request, and what the connection to it needs. All other headers stay here: the pod of
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
/// Headers of the tus protocol begin so.
const FORWARDED_PREFIX: &str = "upload-";

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Place {
    /// The name in the server's certificate.
    pub host: String,
    /// Where to connect to.
    pub address: String,
    /// What to ask for.
    pub path: Uri,
    /// How long the server may be away: one that has died is back soon, and nothing of the body was asked for yet.
    pub patience: Duration,
}

/// Why a request did not get through.
type Cause = Box<dyn StdError + Send + Sync>;

/// Sends a request that came from `client`, and returns the beginning of the answer, which may come before the end of the
/// request. Each has a connection of its own: it ends with the request, however that ends.
pub async fn forward(
    parts: Parts,
    body: Drained,
    place: &Place,
    tls: Arc<ClientConfig>,
    client: IpAddr,
) -> Result<Response<Incoming>, Cause> {
    let mut sender = connect(place, tls).await?;
    let request = Request::from_parts(rewrite(parts, place, client), body);
    let mut answer = sender.send_request(request).await?;
    remove_hops(answer.headers_mut());
    // The answer comes from a pod in the namespace of a tenant, and pages of others may have this origin.
    answer.headers_mut().remove(header::SET_COOKIE);
    Ok(answer)
}

async fn connect(
    place: &Place,
    tls: Arc<ClientConfig>,
) -> Result<http1::SendRequest<Drained>, Cause> {
    let late = |_| format!("{} does not answer", place.host);
    let stream = reach(place).await?;
    let _ = stream.set_nodelay(true); // what is sent is large or urgent
    let name = ServerName::try_from(place.host.clone())?;
    let shaking = TlsConnector::from(tls).connect(name, wire(stream));
    let stream = timeout(PATIENCE, shaking).await.map_err(late)??;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the request: when the answer is through, or when either side has gone.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("the connection to an upload server broke: {error}");
        }
    });
    Ok(sender)
}

/// A connection to a server that may just be starting again.
async fn reach(place: &Place) -> Result<TcpStream, Cause> {
    let begin = Instant::now();
    loop {
        let late = |_| Cause::from(format!("{} does not answer", place.host));
        let connected = timeout(PATIENCE, TcpStream::connect(&place.address)).await.map_err(late);
        let error = match connected.and_then(|connected| Ok(connected?)) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if begin.elapsed() + PAUSE > place.patience {
            return Err(error);
        }
        tracing::debug!("{} is not there yet: {error}", place.host);
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same request, as the server is asked.
fn rewrite(mut parts: Parts, place: &Place, client: IpAddr) -> Parts {
    parts.uri = place.path.clone();
    parts.version = Version::HTTP_11;
    remove_hops(&mut parts.headers);
    keep_forwarded(&mut parts.headers);
    // Characters of names and numbers only.
    if let Ok(host) = HeaderValue::from_str(&place.address) {
        parts.headers.insert(header::HOST, host);
    }
    let before = parts.headers.get(&FORWARDED_FOR).and_then(|value| value.to_str().ok());
    let chain = before.map_or(client.to_string(), |before| format!("{before}, {client}"));
    if let Ok(chain) = HeaderValue::from_str(&chain) {
        parts.headers.insert(FORWARDED_FOR, chain);
    }
    parts
}

/// Removes all headers that an upload server does not need. `Expect` was answered when the body was asked for.
fn keep_forwarded(headers: &mut HeaderMap) {
    let is_forwarded = |name: &HeaderName| {
        FORWARDED.contains(&name.as_str()) || name.as_str().starts_with(FORWARDED_PREFIX)
    };
    let others: Vec<_> = headers.keys().filter(|name| !is_forwarded(name)).cloned().collect();
    for name in others {
        headers.remove(name);
    }
}

/// Takes away what is meant for the next hop only.
fn remove_hops(headers: &mut HeaderMap) {
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
    fn a_request_keeps_what_the_upload_server_needs_and_nothing_else() {
        let place = Place {
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
        let parts = rewrite(parts, &place, "::1".parse().unwrap());
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
