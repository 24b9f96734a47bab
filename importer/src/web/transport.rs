//! One request, one answer: the place where the HTTP library is used, and its errors are given names.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::timeout;
use url::Url;

use super::options::HttpOptions;
use super::tls;
use crate::error::{Cause, Error, Trouble};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends requests over kept connections.
pub(super) struct Transport {
    client: reqwest::Client,
}

/// An answer of any status, its body not yet read.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// What follows the headers.
pub(super) struct Body {
    response: reqwest::Response,
    host: String,
    patience: Duration,
}

impl Transport {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, Error> {
        let proxies = options.proxy.clone();
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config(options)?)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(options.streams_max)
            .proxy(reqwest::Proxy::custom(move |url| proxies.proxy_for(url).ok().flatten()))
            .build()
            .map_err(|error| Error::Option { what: format!("cannot set up HTTP: {error}") })?;
        Ok(Self { client })
    }

    /// Asks for `url`. Without a byte of an answer for as long as `patience` it gives up.
    pub(super) async fn get(
        &self,
        url: &Url,
        headers: HeaderMap,
        patience: Duration,
    ) -> Result<Response, Trouble> {
        let host = host_of(url);
        let sent = self.client.get(url.clone()).headers(headers).send();
        let answer = timeout(patience, sent)
            .await
            .map_err(|_| Trouble::Stalled { host: host.clone(), waited: patience })?
            .map_err(|error| name_it(host.clone(), error))?;
        Ok(Response {
            status: answer.status(),
            headers: answer.headers().clone(),
            body: Body { response: answer, host, patience },
        })
    }
}

impl Body {
    /// The next bytes; `None` once all that was announced has come.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        match timeout(self.patience, self.response.chunk()).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(name_it(self.host.clone(), error)),
            Err(_) => Err(Trouble::Stalled { host: self.host.clone(), waited: self.patience }),
        }
    }

    /// Host and port at the other end.
    pub(super) fn host(&self) -> &str {
        &self.host
    }
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn name_it(host: String, error: reqwest::Error) -> Trouble {
    let error = error.without_url();
    let (connecting, tls) = (error.is_connect(), tls_error(&error).cloned());
    let source: Cause = Box::new(error);
    match tls {
        Some(rustls::Error::InvalidCertificate(problem)) => Trouble::Certificate {
            host,
            because: tls::explain(&problem).into(),
            source: Box::new(rustls::Error::InvalidCertificate(problem)),
        },
        Some(tls) if connecting => Trouble::Tls { host, source: Box::new(tls) },
        _ if connecting => Trouble::Connect { host, source },
        _ => Trouble::Broken { host, source },
    }
}

fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(tls);
    }
    // An `io::Error` shows what it wraps by `get_ref` only.
    if let Some(inner) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        return tls_error(inner);
    }
    tls_error(error.source()?)
}
