//! Whether an address still holds what it held: told by headers, without the image.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{ETAG, LAST_MODIFIED};

use super::Network;
use super::client::{Client, Wanted};
use super::options::HttpOptions;
use super::retry::{Attempts, RetryPolicy};
use super::signed::Store;
use crate::error::Error;

/// Longer marks are none: they are kept and sent back.
const MARK_LEN_MAX: usize = 1024;

/// What identifies the content of an address at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Entity tag, as the server writes it.
    pub etag: Option<String>,
    /// `Last-Modified`, as the server writes it.
    pub modified: Option<String>,
}

impl Marks {
    fn of(headers: &HeaderMap) -> Self {
        let text = |name| {
            let value: &http::HeaderValue = headers.get(name)?;
            let text = value.to_str().ok()?.trim();
            let fits = !text.is_empty() && text.len() <= MARK_LEN_MAX;
            fits.then(|| text.to_owned())
        };
        Self { etag: text(ETAG), modified: text(LAST_MODIFIED) }
    }
}

/// Asks as patiently as `policy` says. `None`: it is what had the marks that were known.
pub(super) async fn peek(
    client: &Client,
    wanted: &Wanted,
    policy: &RetryPolicy,
    stall_timeout: Duration,
) -> Result<Option<HeaderMap>, Error> {
    let mut attempts = Attempts::new(policy);
    loop {
        match once(client, wanted, attempts.patience(stall_timeout)).await {
            Ok(headers) => return Ok(headers),
            Err(error) => attempts.wait_after(error, &client.name(), 0).await?,
        }
    }
}

async fn once(
    client: &Client,
    wanted: &Wanted,
    patience: Duration,
) -> Result<Option<HeaderMap>, Error> {
    let (mut response, mut place) = client.get(wanted, patience).await?;
    // As with images: whoever refuses a part may still give the whole, whose body nobody reads.
    let refuses_parts = matches!(response.status.as_u16(), 400 | 403 | 405 | 406 | 412 | 501);
    if wanted.part.is_some() && refuses_parts {
        let whole = Wanted { part: None, ..wanted.clone() };
        (response, place) = client.get(&whole, patience).await?;
    }
    match response.status.as_u16() {
        304 => Ok(None),
        // An empty image has no first byte.
        200 | 206 | 416 => Ok(Some(response.headers)),
        _ => Err(client.refusal(&response, &place)),
    }
}

/// The marks of an image on a web server. `None`: those that were known. Blocks; retries.
pub(crate) fn marks(
    address: &str,
    options: &HttpOptions,
    known: Option<&Marks>,
) -> Result<Option<Marks>, Error> {
    ask(Client::new(address, options)?, options, known)
}

/// The same of an object in a store.
pub(crate) fn marks_of_object(
    store: Arc<dyn Store>,
    options: &HttpOptions,
    known: Option<&Marks>,
) -> Result<Option<Marks>, Error> {
    ask(Client::of_object(store, options)?, options, known)
}

/// Never by `HEAD`: signed addresses are good for `GET` only, and some servers forbid it.
fn ask(
    client: Client,
    options: &HttpOptions,
    known: Option<&Marks>,
) -> Result<Option<Marks>, Error> {
    let (policy, stall_timeout) = (options.retry.clone(), options.stall_timeout);
    let wanted = Wanted { part: Some((0, 1)), unless: known.cloned(), ..Wanted::default() };
    let network = Network::within(&options.limit)?;
    let headers = network.wait_for(client.name().to_string(), async move {
        peek(&client, &wanted, &policy, stall_timeout).await
    })??;
    let found = headers.map(|headers| Marks::of(&headers));
    // A server without conditions answers the same again.
    Ok(found.filter(|found| Some(found) != known))
}
