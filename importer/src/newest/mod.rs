//! Which image a location holds now, without fetching it, so that a newer one can be imported.

mod sums;

use contract::{Checksum, Hasher};
use url::Url;

use crate::error::Error;
use crate::registry::newest_digest;
use crate::secret::RedactedUrl;
use crate::web::{Agent, HttpOptions, HttpValidators, http_validators, object_validators};
use crate::{s3, scheme_of};

/// Files of checksums list what one directory holds.
const SUMS_LEN_MAX: u64 = 4 << 20;

/// An image as it was found once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownRevision {
    /// What identifies it: `sha256:…` of a manifest or of the file's bytes; `etag:…` or `date:…` where a web server or an
    /// object store shows only whether it is another one. Hexadecimal digits in each case.
    pub digest: String,
    /// To be shown to the server, which then need not answer at length.
    pub marks: HttpValidators,
}

/// What a location holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatestImage {
    Unchanged,
    /// Another image; or the one that was known, by marks that were not.
    Found(KnownRevision),
}

/// Fetches the identity of the image that `location` holds now: `docker://…`, `http(s)://…` or `s3://…`. `checksums` is
/// the address of a file that lists the hashes of the images next to it (`SHA256SUMS`, `CHECKSUM`): then that decides,
/// and nothing else. Costs the server the headers of one response, and less if it supports conditional requests for
/// what is `known`. Blocks; retries by `options.retry`.
///
/// # Errors
/// When the location cannot be polled, or returns nothing that identifies an image.
pub fn newest(
    location: &str,
    checksums: Option<&str>,
    options: &HttpOptions,
    known: Option<&KnownRevision>,
) -> Result<LatestImage, Error> {
    let known_digest = known.map(|known| known.digest.as_str());
    let found = match (scheme_of(location), checksums) {
        (Some("docker"), _) => {
            let known = known_digest.and_then(|digest| digest.parse::<Checksum>().ok());
            let found = newest_digest(location, options, known.as_ref())?;
            found.map(|digest| KnownRevision {
                digest: digest.to_string(),
                marks: HttpValidators::default(),
            })
        }
        (_, Some(checksums)) => Some(listed(location, checksums, options)?),
        (scheme, None) => {
            let known = known
                .map(|known| &known.marks)
                .filter(|marks| **marks != HttpValidators::default());
            let found = match scheme {
                Some("http" | "https") => http_validators(location, options, known)?,
                Some("s3") => object_validators(s3::store(location, &options.s3)?, options, known)?,
                other => {
                    let scheme = other.unwrap_or("file").to_owned();
                    return Err(Error::Scheme { scheme });
                }
            };
            found.map(|marks| marked(location, marks)).transpose()?
        }
    };
    let is_new = |found: &KnownRevision| known != Some(found);
    Ok(found.filter(is_new).map_or(LatestImage::Unchanged, LatestImage::Found))
}

/// An image that only its marks identify.
fn marked(location: &str, marks: HttpValidators) -> Result<KnownRevision, Error> {
    let hashed = |kind: &str, text: &str| {
        let mut hasher = Hasher::sha256();
        hasher.update(text.as_bytes());
        let hash = hasher.finish().to_string();
        format!("{kind}:{}", hash.trim_start_matches("sha256:"))
    };
    // A weak tag is good enough: equal tags mean equivalent content.
    let etag = marks.etag.as_deref().map(|etag| etag.strip_prefix("W/").unwrap_or(etag));
    let digest = match (etag, &marks.modified) {
        (Some(etag), _) => hashed("etag", etag),
        (None, Some(modified)) => hashed("date", modified),
        (None, None) => {
            let because = "neither an entity tag nor a date identifies the image";
            let url = RedactedUrl::of_text(location);
            return Err(Error::Answer { url, because: because.into() });
        }
    };
    Ok(KnownRevision { digest, marks })
}

/// An image whose hash is in a list.
fn listed(location: &str, checksums: &str, options: &HttpOptions) -> Result<KnownRevision, Error> {
    let refuse =
        |text: &str, because: String| Error::Address { url: RedactedUrl::of_text(text), because };
    let name = sums::file_name(location)
        .ok_or_else(|| refuse(location, "it names no file to look for in a list".into()))?;
    let url = Url::parse(checksums).map_err(|error| refuse(checksums, error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::Scheme { scheme: url.scheme().to_owned() });
    }
    // Credentials are for the image, and may be meant for no other host.
    let image = Url::parse(location).ok();
    let is_same_origin = image.is_some_and(|image| image.origin() == url.origin());
    let mut terms = options.clone();
    if !is_same_origin {
        (terms.auth, terms.headers) = (None, Vec::new());
    }
    let shown = RedactedUrl::from(&url);
    let tokens = None;
    let answer = Agent::new(&terms)?.fetch(url, tokens, None, SUMS_LEN_MAX)?;
    let text = String::from_utf8_lossy(&answer.bytes);
    let found = sums::find(&text, &name)
        .map_err(|because| Error::Answer { url: shown, because: because.to_owned() })?;
    Ok(KnownRevision { digest: found.to_string(), marks: HttpValidators::default() })
}
