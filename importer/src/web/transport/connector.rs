//! Connections to a server for other protocols than image downloads, with the same proxies, TLS and dial policy.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use url::Url;

use super::dial::{Limit, Route, Terms};
use crate::error::{Error, TransportError};
use crate::web::dial_policy::DialPolicy;
use crate::web::options::HttpOptions;
use crate::web::tls::Trust;

/// How to reach a server: the proxy in between, if there is one, and whom to trust. TLS is 1.2 or 1.3, for HTTP/1.1.
pub struct HttpConnector {
    server: Url,
    route: Route,
    trust: Trust,
    policy: DialPolicy,
    /// Connections go to this address, whatever the name of the server resolves to.
    address: Option<SocketAddr>,
}

impl HttpConnector {
    /// To `server`, of which only the scheme, the host and the port matter.
    ///
    /// # Errors
    /// When the proxy's address means nothing, or a certificate that is to be trusted cannot be read.
    pub fn to(server: &Url, options: &HttpOptions) -> Result<Self, Error> {
        let proxy = options.proxy.proxy_for(server).map_err(|what| Error::Option { what })?;
        let route = Route::to(server, proxy);
        let (trust, policy) = (Trust::new(options)?, options.dial_policy.clone());
        Ok(Self { server: server.clone(), route, trust, policy, address: None })
    }

    /// The same server, reached at `address` without a proxy. TLS still verifies the server's name.
    #[must_use]
    pub fn connecting_to(self, address: SocketAddr) -> Self {
        let route = Route::to(&self.server, None);
        Self { route, address: Some(address), ..self }
    }

    /// A new connection. Each step of making it may take as long as `patience`, and half a minute at most.
    ///
    /// # Errors
    /// When there is none to be had.
    pub async fn dial(
        &self,
        patience: Duration,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, TransportError> {
        let limit = Limit::within(patience);
        let terms = Terms { trust: &self.trust, policy: &self.policy, user_agent: None, limit };
        match self.address {
            Some(address) => self.route.dial_at(&self.server, address, terms).await,
            None => self.route.dial(&self.server, terms).await,
        }
    }
}
