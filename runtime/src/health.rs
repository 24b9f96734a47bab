//! `/healthz` on a port of its own, by plain HTTP, for the kubelet's probes.
//!
//! The port has connection slots of its own, so clients that fill those of the main port do not get the program killed by
//! its liveness probe. The program's own threads answer it, so a hang is still detected.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use tokio::sync::watch;

use crate::https::{self, Limits};

/// Named in the Deployments, too.
pub const PORT: u16 = 8444;

// A probe is one short request on a new connection.
const LIMITS: Limits = Limits {
    connections: 32,
    waiting_per_source: None,
    patience: Duration::from_secs(3),
    idle: Duration::from_secs(3),
    sending: Duration::from_secs(3),
    head_bytes: 8 << 10,
    streams: 1,
    lifetime: Some(Duration::from_secs(10)),
    farewell: Duration::ZERO,
    only_http1: true,
};

/// Binds the port. 0: serves nothing.
///
/// # Errors
/// When the port is in use.
pub fn listen(port: u16) -> io::Result<Option<TcpListener>> {
    match port {
        0 => Ok(None),
        port => crate::metrics::listen(port).map(Some),
    }
}

/// Answers `/healthz` and `/readyz` as long as it is polled. Without a listener it waits for ever.
///
/// # Errors
/// When `listener` fails.
pub async fn serve(listener: Option<TcpListener>) -> io::Result<Infallible> {
    let Some(listener) = listener else { return std::future::pending().await };
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (_never, stop) = watch::channel(false);
    let service =
        |_peer| service_fn(|request| std::future::ready(Ok::<_, Infallible>(respond(&request))));
    https::serve_plain(listener, LIMITS, stop, service).await;
    Err(io::Error::other("the health listener stopped"))
}

fn respond<B>(request: &Request<B>) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, text) = match request.uri().path() {
        _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, "method not allowed: use GET or HEAD\n"),
        "/healthz" | "/readyz" => (StatusCode::OK, "OK"),
        _ => (StatusCode::NOT_FOUND, "not found: this port serves /healthz and /readyz\n"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}
