//! Requests to several URLs over the same connections and threads: a registry's documents and blobs.

use std::sync::Arc;

use http::{HeaderMap, Method};
use url::Url;

use super::client::{Client, GetRequest, extra_headers};
use super::fetch::{Document, FetchOptions, fetch};
use super::options::{BasicAuth, HttpOptions};
use super::peek::{HttpValidators, peek};
use super::retry::RetryPolicy;
use super::tokens::Tokens;
use super::transport::Transport;
use super::{HttpSource, Network, PACE_INTERVAL, RangeTrust};
use crate::error::Error;
use crate::secret::Secret;

pub(crate) struct Agent {
    network: Arc<Network>,
    transport: Arc<Transport>,
    headers: HeaderMap,
    options: HttpOptions,
}

impl Agent {
    pub(crate) fn new(options: &HttpOptions) -> Result<Self, Error> {
        Ok(Self {
            network: Arc::new(Network::within(&options.limit)?),
            transport: Arc::new(Transport::new(options)?),
            headers: extra_headers(options)?,
            options: options.clone(),
        })
    }

    /// Access to one repository, proved by `auth` or a ready `token` once the registry requires it.
    pub(crate) fn tokens(
        &self,
        auth: Option<BasicAuth>,
        token: Option<&Secret>,
        repository: &str,
    ) -> Result<Arc<Tokens>, Error> {
        let (transport, policy) = (Arc::clone(&self.transport), self.options.retry.clone());
        Ok(Arc::new(Tokens::new(transport, policy, auth, token, repository)?))
    }

    fn client(&self, url: Url, tokens: Option<Arc<Tokens>>) -> Client {
        Client::over(Arc::clone(&self.transport), url, self.headers.clone(), tokens)
    }

    /// A document of at most `len_max` bytes. Blocks; retries.
    pub(crate) fn fetch(
        &self,
        url: Url,
        tokens: Option<Arc<Tokens>>,
        accept: Option<&'static str>,
        len_max: u64,
    ) -> Result<Document, Error> {
        self.fetch_with(url, tokens, FetchOptions { accept, len_max }, self.options.retry.clone())
    }

    /// The headers of an address, if it is no longer what had the marks `known`; see [`peek`]. Blocks; retries.
    pub(crate) fn peek(
        &self,
        url: Url,
        tokens: Option<Arc<Tokens>>,
        accept: &'static str,
        known: Option<HttpValidators>,
    ) -> Result<Option<HeaderMap>, Error> {
        let client = self.client(url, tokens);
        let (policy, stall_timeout) = (self.options.retry.clone(), self.options.stall_timeout);
        self.network.wait_for(client.name().to_string(), async move {
            let options = GetRequest {
                method: Method::HEAD,
                accept: Some(accept),
                unless: known,
                ..GetRequest::default()
            };
            peek(&client, &options, &policy, stall_timeout).await
        })?
    }

    /// Succeeds if a server at this address responds, whatever its response. Sends one request.
    pub(crate) fn speaks(&self, url: Url) -> Result<(), Error> {
        let once = RetryPolicy { attempts_max: 1, ..self.options.retry.clone() };
        let options = FetchOptions { accept: None, len_max: 64 << 10 };
        match self.fetch_with(url, None, options, once) {
            Err(Error::GaveUp { source, .. }) if matches!(*source, Error::Status { .. }) => Ok(()),
            Ok(_) | Err(Error::Status { .. } | Error::Answer { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn fetch_with(
        &self,
        url: Url,
        tokens: Option<Arc<Tokens>>,
        options: FetchOptions,
        policy: RetryPolicy,
    ) -> Result<Document, Error> {
        let client = self.client(url, tokens);
        let stall_timeout = self.options.stall_timeout;
        self.network.wait_for(client.name().to_string(), async move {
            fetch(&client, options, &policy, stall_timeout).await
        })?
    }

    /// A blob of `size` bytes whose digest the caller verifies: no more is needed to put parts of it together.
    pub(crate) fn blob(
        &self,
        url: Url,
        tokens: Option<Arc<Tokens>>,
        size: u64,
    ) -> Result<HttpSource, Error> {
        let client = Arc::new(self.client(url, tokens));
        let network = Arc::clone(&self.network);
        HttpSource::open(network, client, &self.options, RangeTrust::Hashed(size), PACE_INTERVAL)
    }
}
