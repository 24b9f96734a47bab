//! Objects in S3, and in stores that speak like it.
//!
//! The official client knows where keys come from and how addresses are signed; it moves no bytes. Those travel through
//! the same requests, ranges and retries as any image on a web server.

mod endpoint;
mod keys;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::presigning::{PresignedRequest, PresigningConfig};
use aws_sdk_s3::types::ChecksumMode;
use endpoint::S3Endpoint;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use keys::Keys;
pub use keys::S3Credentials;
use parking_lot::Mutex;
use url::Url;

use runtime::chain;

use crate::error::Error;
use crate::objects::{Algorithm, Code, Object, ObjectChecksum, field};
use crate::secret::RedactedUrl;
use crate::web::{HttpOptions, HttpSource, Refusal, RefusalAction, Signed, Signing, Store};

const SCHEME: &str = "s3";
/// Longer than an address is used, so that a slow clock does no harm.
const SIGNATURE_GOOD: Duration = Duration::from_secs(3600);
/// Requests a checksum in the response to HEAD.
const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
const BUCKET_REGION: &str = "x-amz-bucket-region";

/// How to reach an object store with the API of S3. By default Amazon's, with the keys of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Options {
    /// `https://host:port` of another store than Amazon's.
    pub endpoint: Option<String>,
    /// Where the bucket is. `None`: found out.
    pub region: Option<String>,
    /// The bucket is a part of the endpoint's host name, and not of the path.
    pub virtual_host: bool,
    /// Whose keys to sign with.
    pub credentials: S3Credentials,
}

/// Opens `s3://bucket/key`, of which one version may be chosen by `?versionId=…`.
pub(crate) fn source(
    location: &str,
    options: &S3Options,
    http: &HttpOptions,
) -> Result<HttpSource, Error> {
    HttpSource::connect_object(store(location, options)?, http)
}

/// Where such an object is, and how it is requested.
pub(crate) fn store(location: &str, options: &S3Options) -> Result<Arc<dyn Store>, Error> {
    let object = Object::parse(SCHEME, location, "versionId")?;
    let endpoint = S3Endpoint::new(options)?;
    let keys = Keys::new(&options.credentials, options.endpoint.is_none());
    Ok(Arc::new(S3 { object, keys, endpoint: Mutex::new(endpoint) }))
}

/// The form that manifests have, `http(s)://endpoint/bucket/key`, as `s3://bucket/key` and the endpoint. An address that
/// begins with `s3://` stays what it is.
///
/// # Errors
/// When the address holds no bucket and key.
pub fn s3_location(address: &str) -> Result<(String, Option<String>), Error> {
    if address.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("s3://")) {
        return Ok((address.to_owned(), None));
    }
    let (object, endpoint) = Object::parse_url(address, "versionId")?;
    let version = object.version.map(|version| format!("?versionId={version}"));
    let location = format!("s3://{}/{}{}", object.bucket, object.key, version.unwrap_or_default());
    Ok((location, Some(endpoint.to_string())))
}

/// An object, and how its addresses are signed.
struct S3 {
    object: Object,
    keys: Keys,
    /// Changes when the store names another region.
    endpoint: Mutex<S3Endpoint>,
}

impl S3 {
    fn endpoint(&self) -> S3Endpoint {
        self.endpoint.lock().clone()
    }

    async fn signed(&self, method: &Method) -> Result<Signed, Error> {
        let endpoint = self.endpoint();
        let Object { bucket, key, version } = &self.object;
        let Some(client) = self.keys.client(&endpoint).await? else {
            let mut headers = HeaderMap::new();
            if *method == Method::HEAD {
                headers.insert(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"));
            }
            return Ok(Signed { url: endpoint.address(&self.object)?, headers });
        };
        let wrong = |because| Error::Store { store: SCHEME, host: endpoint.host(), because };
        let failed = |error: &dyn std::error::Error| wrong(chain(error));
        let terms = PresigningConfig::expires_in(SIGNATURE_GOOD).map_err(|error| failed(&error))?;
        let signed = if *method == Method::HEAD {
            let request = client.head_object().bucket(bucket).key(key);
            let request = request.set_version_id(version.clone());
            let request = request.checksum_mode(ChecksumMode::Enabled);
            request.presigned(terms).await.map_err(|error| failed(&error))?
        } else {
            let request = client.get_object().bucket(bucket).key(key);
            let request = request.set_version_id(version.clone());
            request.presigned(terms).await.map_err(|error| failed(&error))?
        };
        into_signed(&signed).ok_or_else(|| wrong("the signed address is none".into()))
    }

    /// Another region, if a refusal names one.
    fn moved(&self, refusal: &Refusal) -> bool {
        let header = refusal.headers.get(BUCKET_REGION).and_then(|value| value.to_str().ok());
        let Some(region) = header.or_else(|| field(&refusal.body, "Region")) else { return false };
        let mut endpoint = self.endpoint.lock();
        let moved = endpoint.move_to(region);
        if moved {
            tracing::info!("{} is in the region {region}", self.name());
        }
        moved
    }
}

impl Store for S3 {
    fn name(&self) -> RedactedUrl {
        self.object.name(SCHEME)
    }

    fn sign<'a>(&'a self, method: &'a Method) -> Signing<'a> {
        Box::pin(self.signed(method))
    }

    fn classify(&self, refusal: &Refusal, last: bool) -> RefusalAction {
        if !last && self.moved(refusal) {
            return RefusalAction::SignAgain;
        }
        let code = Code::from_refusal(refusal);
        let anonymous = self.keys.are_none();
        if !last && !anonymous && code.is_about_expiry(refusal) {
            return RefusalAction::SignAgain;
        }
        if matches!(refusal.status.as_u16(), 302 | 303 | 307 | 308) {
            return RefusalAction::Plain;
        }
        let status = Some(refusal.status.as_u16());
        RefusalAction::Fail(self.object.refused(SCHEME, status, code.explain(refusal, anonymous)))
    }

    fn record_identity(&self, _headers: &HeaderMap) -> bool {
        false // the entity tag is enough, and reading a version by name takes another permission
    }

    fn needs_head_for_checksum(&self) -> bool {
        true
    }

    fn checksum(&self, headers: &HeaderMap) -> Option<ObjectChecksum> {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        if text("x-amz-checksum-type").is_some_and(|kind| kind.eq_ignore_ascii_case("COMPOSITE")) {
            return None; // of the parts that were once uploaded
        }
        let algorithms =
            [Algorithm::Sha256, Algorithm::Crc64Nvme, Algorithm::Crc32c, Algorithm::Crc32];
        algorithms.into_iter().find_map(|algorithm| {
            ObjectChecksum::parse(algorithm, text(&format!("x-amz-checksum-{algorithm}"))?)
        })
    }
}

fn into_signed(request: &PresignedRequest) -> Option<Signed> {
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers() {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.insert(name, HeaderValue::from_str(value).ok()?);
    }
    Some(Signed { url: Url::parse(request.uri()).ok()?, headers })
}

#[cfg(test)]
mod tests;
