//! Objects in Google's store, through its XML interface: the same requests, ranges and retries as any image on a web
//! server. What is not public is requested by addresses that a service account's key signs; no token is fetched.

mod account;
mod sign;

use std::sync::Arc;
use std::time::SystemTime;

pub use account::GcsCredentials;
use account::ServiceAccount;
use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use url::Url;

use crate::error::Error;
use crate::objects::{self, Algorithm, Code, Object, ObjectChecksum};
use crate::secret::RedactedUrl;
use crate::web::{HttpOptions, HttpSource, Refusal, RefusalAction, Signed, Signing, Store};

const SCHEME: &str = "gcs";
const ENDPOINT: &str = "https://storage.googleapis.com";
/// What identifies one state of an object.
const GENERATION: &str = "x-goog-generation";
const HASH: &str = "x-goog-hash";

/// How to reach Google's object store, or one with the same API. The default reads public objects of Google's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcsOptions {
    /// `https://host:port` of another store than Google's.
    pub endpoint: Option<String>,
    /// Whose key to sign with.
    pub credentials: GcsCredentials,
}

/// Opens `gs://bucket/object`, of which one state may be chosen by `?generation=…`.
pub(crate) fn source(
    location: &str,
    options: &GcsOptions,
    http: &HttpOptions,
) -> Result<HttpSource, Error> {
    let object = Object::parse("gs", location, "generation")?;
    let endpoint = objects::endpoint(options.endpoint.as_deref().unwrap_or(ENDPOINT))?;
    let account =
        ServiceAccount::from_credentials(&options.credentials).map_err(|because| Error::Store {
            store: SCHEME,
            host: endpoint.host_str().unwrap_or_default().to_owned(),
            because,
        })?;
    HttpSource::connect_object(Arc::new(Gcs::new(object, endpoint, account)), http)
}

/// The forms that manifests have, `gs://bucket/object` and `http(s)://endpoint/bucket/object`, as the first of them and
/// the endpoint.
///
/// # Errors
/// When the address holds no bucket and object.
pub fn gcs_location(address: &str) -> Result<(String, Option<String>), Error> {
    if address.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("gs://")) {
        return Ok((address.to_owned(), None));
    }
    let (object, endpoint) = Object::parse_url(address, "generation")?;
    let version = object.version.map(|version| format!("?generation={version}"));
    let location = format!("gs://{}/{}{}", object.bucket, object.key, version.unwrap_or_default());
    Ok((location, Some(endpoint.to_string())))
}

/// An object, and how its addresses are signed.
struct Gcs {
    object: Object,
    endpoint: Url,
    /// `None`: nothing is signed.
    account: Option<ServiceAccount>,
    seen: Mutex<ObservedObject>,
}

/// From the first successful response.
#[derive(Clone, Default)]
struct ObservedObject {
    /// The state that is read from then on.
    generation: Option<String>,
    checksum: Option<ObjectChecksum>,
}

impl Gcs {
    fn new(object: Object, endpoint: Url, account: Option<ServiceAccount>) -> Self {
        let generation = object.version.clone();
        Self {
            object,
            endpoint,
            account,
            seen: Mutex::new(ObservedObject { generation, ..ObservedObject::default() }),
        }
    }

    fn seen(&self) -> ObservedObject {
        self.seen.lock().clone()
    }

    fn address(&self, method: &Method, now: SystemTime) -> Result<Url, String> {
        let host = self.endpoint.host_str().unwrap_or_default();
        let port = self.endpoint.port().map(|port| format!(":{port}")).unwrap_or_default();
        let target = sign::Target {
            method: method.as_str(),
            host: &format!("{host}{port}"),
            path: &format!("/{}/{}", self.object.bucket, self.object.encoded_key()),
            generation: self.seen().generation,
        };
        let query = match &self.account {
            Some(account) => account.sign(&target, now)?,
            None => target.query(),
        };
        let mark = if query.is_empty() { "" } else { "?" };
        let address =
            format!("{}://{}{}{mark}{query}", self.endpoint.scheme(), target.host, target.path);
        Url::parse(&address).map_err(|error| format!("its address is none: {error}"))
    }
}

impl Store for Gcs {
    fn name(&self) -> RedactedUrl {
        self.object.name("gs")
    }

    fn sign<'a>(&'a self, method: &'a Method) -> Signing<'a> {
        let signed = self.address(method, SystemTime::now());
        // An object that was stored compressed is otherwise unpacked for us, and is then not what its checksum is of.
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        let signed = signed.map(|url| Signed { url, headers });
        Box::pin(std::future::ready(
            signed.map_err(|because| self.object.refused(SCHEME, None, because)),
        ))
    }

    fn classify(&self, refusal: &Refusal, last: bool) -> RefusalAction {
        let code = Code::from_refusal(refusal);
        if !last && self.account.is_some() && code.is_about_expiry(refusal) {
            return RefusalAction::SignAgain;
        }
        if refusal.status.is_redirection() {
            return RefusalAction::Plain;
        }
        let generation = self.seen().generation.filter(|_| self.object.version.is_none());
        if let (StatusCode::NOT_FOUND, Some(before)) = (refusal.status, generation) {
            let (before, after) = (format!("generation {before}"), "gone".to_owned());
            return RefusalAction::Fail(Error::Changed {
                name: self.name().to_string(),
                before,
                after,
            });
        }
        let because = code.explain(refusal, self.account.is_none());
        let status = Some(refusal.status.as_u16());
        RefusalAction::Fail(self.object.refused(SCHEME, status, because))
    }

    fn record_identity(&self, headers: &HeaderMap) -> bool {
        let mut seen = self.seen.lock();
        if seen.checksum.is_none() {
            seen.checksum = hash_of(headers);
        }
        let generation = headers.get(GENERATION).and_then(|value| value.to_str().ok());
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        match generation.filter(digits) {
            Some(generation) if seen.generation.is_none() => {
                seen.generation = Some(generation.to_owned());
                true
            }
            _ => false,
        }
    }

    fn needs_head_for_checksum(&self) -> bool {
        false
    }

    fn checksum(&self, _headers: &HeaderMap) -> Option<ObjectChecksum> {
        self.seen().checksum
    }
}

/// `x-goog-hash: crc32c=…,md5=…`, or a header for each. It is of the stored bytes, which come as they are.
fn hash_of(headers: &HeaderMap) -> Option<ObjectChecksum> {
    let values = headers.get_all(HASH).into_iter().filter_map(|value| value.to_str().ok());
    let mut hashes = values.flat_map(|value| value.split(','));
    hashes.find_map(|hash| {
        ObjectChecksum::parse(Algorithm::Crc32c, hash.trim().strip_prefix("crc32c=")?)
    })
}

#[cfg(test)]
mod tests;
