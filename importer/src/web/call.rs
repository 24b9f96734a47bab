//! Small requests with small responses: the APIs of oVirt, vSphere, OpenStack and Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use super::Network;
use super::options::HttpOptions;
use super::tls::Trust;
use super::transport::Transport;
use crate::error::{Error, TransportError};
use crate::secret::RedactedUrl;

/// Sends one request after another, blocking. Follows no redirect and retries nothing.
pub(crate) struct Caller {
    transport: Arc<Transport>,
    patience: Duration,
    network: Network,
}

/// A response of any status.
pub(crate) struct Called {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Call<'a> {
    pub(crate) method: &'static str,
    pub(crate) url: &'a Url,
    /// Names in lower case. The values may be secret.
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) body: Vec<u8>,
    /// Longer responses are rejected.
    pub(crate) answer_max: usize,
}

impl Caller {
    /// With proxies, limits and trusted CAs of `options`.
    pub(crate) fn new(options: &HttpOptions) -> Result<Self, Error> {
        Self::trusting(Trust::new(options)?, options)
    }

    /// With `trust` in place of the CAs of `options`.
    pub(crate) fn trusting(trust: Trust, options: &HttpOptions) -> Result<Self, Error> {
        let transport = Arc::new(Transport::trusting(trust, options));
        Ok(Self {
            transport,
            patience: options.stall_timeout,
            network: Network::within(&options.limit)?,
        })
    }

    /// Sends a request, and reads the whole response.
    pub(crate) fn call(&self, call: Call<'_>) -> Result<Called, Error> {
        let Call { method, url, headers, body, answer_max } = call;
        let no_method = |_| Error::Option { what: format!("there is no method {method}") };
        let verb = Method::from_bytes(method.as_bytes()).map_err(no_method)?;
        let shown = RedactedUrl::from(url);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| Error::Option { what: format!("the header {name} cannot be sent") })?;
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        let (transport, url, patience) = (Arc::clone(&self.transport), url.clone(), self.patience);
        let failed = {
            let shown = shown.clone();
            move |source| Error::Transport { url: shown.clone(), source }
        };
        self.network.wait_for(shown.to_string(), async move {
            let response = transport.send(&verb, &url, map, &body, patience).await;
            let mut response = response.map_err(&failed)?;
            let (mut body, mut piece) = (Vec::new(), vec![0; 64 << 10]);
            loop {
                let read: Result<usize, TransportError> = response.body.read(&mut piece).await;
                match read.map_err(&failed)? {
                    0 => break,
                    count => body.extend_from_slice(&piece[..count]),
                }
                if body.len() > answer_max {
                    let because = format!("more than {answer_max} bytes");
                    return Err(Error::Answer { url: RedactedUrl::from(&url), because });
                }
            }
            let (status, headers) = (response.status.as_u16(), response.headers);
            Ok(Called { status, headers, body })
        })?
    }
}
