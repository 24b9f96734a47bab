//! A metrics page in Prometheus' text format, served on every path.
//!
//! Served over TLS with a self-signed certificate, as nothing on the page is secret. The controller recognizes its worker
//! by the certificate's key ([`MetricsTls`]); monitoring does not verify.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::Full;
use hyper::service::service_fn;
use tokio::sync::watch;

use crate::MetricsTls;
use crate::https::{self, Limits};

// Monitoring and the controller need two connections, and send short requests.
pub(crate) const LIMITS: Limits = Limits {
    connections: 32,
    waiting_per_source: None,
    patience: Duration::from_secs(10),
    idle: Duration::from_secs(120),
    sending: Duration::from_secs(10),
    head_bytes: 16 << 10,
    streams: 8,
    lifetime: Some(Duration::from_secs(300)),
    farewell: Duration::ZERO,
    only_http1: false,
};

/// Prometheus' text format. Not OpenMetrics, which has other rules for names.
pub const TEXT_FORMAT: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Renders the page; called for each request.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// A counter with one label. No sample line without a value.
pub fn counter(name: &str, help: &str, label: (&str, &str), value: Option<f64>) -> String {
    let samples: Vec<_> = value.map(|value| ([label], value)).into_iter().collect();
    counters(name, help, &samples)
}

/// A counter with these samples, each with its labels.
pub fn counters<const N: usize>(
    name: &str,
    help: &str,
    samples: &[([(&str, &str); N], f64)],
) -> String {
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} counter\n");
    for (labels, value) in samples {
        let labels = labels.map(|(key, label)| {
            let label = label.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            format!("{key}=\"{label}\"")
        });
        // Writing to a String cannot fail. `{value}` never has an exponent, which the controller's parser does not read.
        let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
    }
    text
}

/// Binds the port on all addresses, of IPv6 and IPv4 if the node has both.
///
/// # Errors
/// When the port is in use.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// Serves as long as it is polled. Without authentication.
///
/// # Errors
/// When no certificate can be created, or `listener` fails.
pub async fn serve(listener: TcpListener, page: Page, tls: MetricsTls) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let tls = Arc::new(tls.server_config().map_err(io::Error::other)?);
    let (_never, stop) = watch::channel(false);
    let service = move |_peer| {
        let page = Arc::clone(&page);
        service_fn(move |_request| {
            let text = page() + &crate::sandbox::sandbox_metrics();
            let mut response = http::Response::new(Full::new(Bytes::from(text)));
            response.headers_mut().insert(CONTENT_TYPE, TEXT_FORMAT);
            async move { Ok::<_, Infallible>(response) }
        })
    };
    https::serve(listener, LIMITS, stop, move || Arc::clone(&tls), service).await;
    Err(io::Error::other("the metrics listener stopped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_matches_the_controllers_pattern() {
        let label = ("ownerUID", "1-2");
        let name = "kubevirt_cdi_import_progress_total";
        let help = "The import progress in percentage";
        let line =
            |value: f64| counter(name, help, label, Some(value)).lines().last().map(str::to_owned);
        for (value, expected) in
            [(0.0, "0"), (12.34, "12.34"), (100.0, "100"), (0.000_000_1, "0.0000001")]
        {
            let expected = format!("{name}{{ownerUID=\"1-2\"}} {expected}");
            assert_eq!(line(value), Some(expected));
        }
        assert!(!counter(name, help, label, None).contains("ownerUID"));
        let odd = counter("n", "h", ("l", "a\"b\\c\nd"), Some(1.0));
        assert!(odd.ends_with("n{l=\"a\\\"b\\\\c\\nd\"} 1\n"), "{odd}");
        let two =
            counters("n", "h", &[([("l", "a"), ("m", "b")], 1.5), ([("l", "a"), ("m", "c")], 2.0)]);
        assert!(two.ends_with("n{l=\"a\",m=\"b\"} 1.5\nn{l=\"a\",m=\"c\"} 2\n"), "{two}");
    }
}
