//! Finds out by headers whether the content of an address has changed, without the image.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{ETAG, LAST_MODIFIED};

use super::Network;
use super::client::{Client, GetRequest};
use super::options::HttpOptions;
use super::retry::{Attempts, RetryPolicy};
use super::signed::Store;
use crate::error::Error;

/// Longer marks are none: they are kept and sent back.
const MARK_LEN_MAX: usize = 1024;

/// What identifies the content of an address at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpValidators {
    /// Entity tag, as the server writes it.
    pub etag: Option<String>,
    /// `Last-Modified`, as the server writes it.
    pub modified: Option<String>,
}

impl HttpValidators {
    fn from_headers(headers: &HeaderMap) -> Self {
        let text = |name| {
            let value: &http::HeaderValue = headers.get(name)?;
            let text = value.to_str().ok()?.trim();
            let fits = !text.is_empty() && text.len() <= MARK_LEN_MAX;
            fits.then(|| text.to_owned())
        };
        Self { etag: text(ETAG), modified: text(LAST_MODIFIED) }
    }
}

/// Requests, and retries by `policy`. `None`: it is what had the marks that were known.
pub(super) async fn peek(
    client: &Client,
    request: &GetRequest,
    policy: &RetryPolicy,
    stall_timeout: Duration,
) -> Result<Option<HeaderMap>, Error> {
    let mut attempts = Attempts::new(policy);
    loop {
        match once(client, request, attempts.patience(stall_timeout)).await {
            Ok(headers) => return Ok(headers),
            Err(error) => attempts.wait_after(error, &client.name(), 0).await?,
        }
    }
}

async fn once(
    client: &Client,
    request: &GetRequest,
    patience: Duration,
) -> Result<Option<HeaderMap>, Error> {
    let (mut response, mut target) = client.get(request, patience).await?;
    // As with images: a server that refuses a range may still serve the whole. Its body is not read.
    let refuses_parts = matches!(response.status.as_u16(), 400 | 403 | 405 | 406 | 412 | 501);
    if request.part.is_some() && refuses_parts {
        let whole = GetRequest { part: None, ..request.clone() };
        (response, target) = client.get(&whole, patience).await?;
    }
    match response.status.as_u16() {
        304 => Ok(None),
        // An empty image has no first byte.
        200 | 206 | 416 => Ok(Some(response.headers)),
        _ => Err(client.refusal(&response, &target)),
    }
}

/// The marks of an image on a web server. `None`: those that were known. Blocks; retries.
pub(crate) fn http_validators(
    address: &str,
    options: &HttpOptions,
    known: Option<&HttpValidators>,
) -> Result<Option<HttpValidators>, Error> {
    fetch_validators(Client::new(address, options)?, options, known)
}

/// The same of an object in a store.
pub(crate) fn object_validators(
    store: Arc<dyn Store>,
    options: &HttpOptions,
    known: Option<&HttpValidators>,
) -> Result<Option<HttpValidators>, Error> {
    fetch_validators(Client::of_object(store, options)?, options, known)
}

/// Never by `HEAD`: signed addresses are good for `GET` only, and some servers forbid it.
fn fetch_validators(
    client: Client,
    options: &HttpOptions,
    known: Option<&HttpValidators>,
) -> Result<Option<HttpValidators>, Error> {
    let (policy, stall_timeout) = (options.retry.clone(), options.stall_timeout);
    let request =
        GetRequest { part: Some((0, 1)), unless: known.cloned(), ..GetRequest::default() };
    let network = Network::within(&options.limit)?;
    let headers = network.wait_for(client.name().to_string(), async move {
        peek(&client, &request, &policy, stall_timeout).await
    })??;
    let found = headers.map(|headers| HttpValidators::from_headers(&headers));
    // A server that ignores conditions sends the same again.
    Ok(found.filter(|found| Some(found) != known))
}
