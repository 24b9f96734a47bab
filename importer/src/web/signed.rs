//! Objects in stores: their addresses are signed and expire, and stores explain refusals in their own format.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::transport::Response;
use crate::error::Error;
use crate::objects::ObjectChecksum;
use crate::secret::RedactedUrl;

/// An address is signed again after this time even if it is still valid, since the keys may have been replaced.
const SIGNATURE_USED: Duration = Duration::from_secs(300);
/// What is read of a refusal. Stores send a few hundred bytes of XML.
const REFUSAL_LEN_MAX: usize = 16 << 10;

/// What an object's store knows how to do.
pub(crate) trait Store: Send + Sync {
    /// How messages name the object: `s3://bucket/key`.
    fn name(&self) -> RedactedUrl;

    /// An address of the object, and the headers that its signature covers.
    fn sign<'a>(&'a self, method: &'a Method) -> Signing<'a>;

    /// What a refusal means. The `last` time the result is never [`RefusalAction::SignAgain`].
    fn classify(&self, refusal: &Refusal, last: bool) -> RefusalAction;

    /// Records what identifies the object, from the headers of the first good response. Returns whether that changes
    /// the addresses.
    fn record_identity(&self, headers: &HeaderMap) -> bool;

    /// Only the response to `HEAD` has the checksum of the object.
    fn needs_head_for_checksum(&self) -> bool;

    /// The checksum of the whole object, from the headers of a response.
    fn checksum(&self, headers: &HeaderMap) -> Option<ObjectChecksum>;
}

pub(crate) type Signing<'a> = Pin<Box<dyn Future<Output = Result<Signed, Error>> + Send + 'a>>;

/// An address to be requested unchanged, with these headers. It is a secret: it permits reading the object.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
}

/// A response without the object.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The beginning of it, as text.
    pub(crate) body: String,
}

/// What follows from a refusal.
pub(crate) enum RefusalAction {
    /// The next address may be taken.
    SignAgain,
    /// No address will be.
    Fail(Error),
    /// Nothing that the store defines: as with any web server.
    Plain,
}

/// Addresses of one object, signed when needed.
pub(super) struct Signatures {
    pub(super) store: Arc<dyn Store>,
    current: Mutex<Option<(Signed, Instant)>>,
}

impl Signatures {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, current: Mutex::default() }
    }

    /// An address for `GET` that is still good for a while.
    pub(super) async fn current(&self) -> Result<Signed, Error> {
        let mut current = self.current.lock().await;
        if let Some((signed, since)) = &*current
            && since.elapsed() < SIGNATURE_USED
        {
            return Ok(signed.clone());
        }
        let signed = self.store.sign(&Method::GET).await?;
        *current = Some((signed.clone(), Instant::now()));
        Ok(signed)
    }

    /// The address `url` is not used any more.
    pub(super) async fn discard(&self, url: &Url) {
        let mut current = self.current.lock().await;
        // Another stream may have found out first, and have a new one.
        if current.as_ref().is_some_and(|(signed, _)| signed.url == *url) {
            *current = None;
        }
    }
}

impl Refusal {
    /// Reads the store's error document, as far as it arrives.
    pub(super) async fn read(response: &mut Response) -> Self {
        let mut bytes = vec![0; REFUSAL_LEN_MAX];
        let mut filled = 0;
        while filled < bytes.len() {
            match response.body.read(&mut bytes[filled..]).await {
                Ok(count @ 1..) => filled += count,
                Ok(0) | Err(_) => break,
            }
        }
        Self {
            status: response.status,
            headers: response.headers.clone(),
            body: String::from_utf8_lossy(&bytes[..filled]).into_owned(),
        }
    }
}
