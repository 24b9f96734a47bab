//! `/healthz` on a port of its own, by plain HTTP, for the kubelet's probes.
//!
//! The port shares no connection slots with what a program serves: clients that take all of those do not get the program
//! killed. It answers from the program's own threads, so a program that hangs is still found out.

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

/// Where it is served, as the Deployments say too.
pub const PORT: u16 = 8444;

/// A probe is one short request by a connection of its own.
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

/// Takes the port; 0 is none.
///
/// # Errors
/// When it is taken.
pub fn listen(port: u16) -> io::Result<Option<TcpListener>> {
    match port {
        0 => Ok(None),
        port => crate::metrics::listen(port).map(Some),
    }
}

/// Answers `/healthz` and `/readyz`, for as long as it is polled; without a listener it does nothing.
///
/// # Errors
/// When `listener` cannot be used.
pub async fn serve(listener: Option<TcpListener>) -> io::Result<Infallible> {
    let Some(listener) = listener else { return std::future::pending().await };
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (_never, stop) = watch::channel(false);
    let service =
        |_peer| service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&request))));
    https::serve_plain(listener, LIMITS, stop, service).await;
    Err(io::Error::other("the health port is not served any more"))
}

fn answer<B>(request: &Request<B>) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, text) = match request.uri().path() {
        _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
        "/healthz" | "/readyz" => (StatusCode::OK, "OK"),
        _ => (StatusCode::NOT_FOUND, "there are /healthz and /readyz\n"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}
