//! What object stores have in common: names of objects, refusals in XML, checksums of wholes.

mod checksum;
mod refusal;

use std::fmt;

pub(crate) use checksum::{Algorithm, ObjectChecksum, Verified};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
pub(crate) use refusal::{Code, field};
use url::Url;

use crate::error::Error;
use crate::secret::RedactedUrl;

/// What stays as it is in the path of a signed address.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// An object in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) bucket: String,
    pub(crate) key: String,
    /// One version of it, where that was given. GCS calls it a generation.
    pub(crate) version: Option<String>,
}

impl Object {
    /// Reads what follows `s3://` or `gs://`: a bucket, a key as it is, and perhaps `?versionId=…` (or whatever the
    /// store calls it).
    pub(crate) fn parse(scheme: &str, location: &str, version: &str) -> Result<Self, Error> {
        let wrong = |because: &str| Error::Address {
            url: RedactedUrl::of_text(location),
            because: because.to_owned(),
        };
        let rest = location.split_once("://").map_or(location, |(_, rest)| rest);
        let Some((bucket, key)) = rest.split_once('/') else {
            return Err(wrong(&format!("{scheme}://BUCKET/KEY is needed, and there is no key")));
        };
        let (key, version) = match key.rsplit_once(&format!("?{version}=")) {
            Some((key, version)) => (key, Some(version.to_owned())),
            None => (key, None),
        };
        Self { bucket: bucket.into(), key: key.trim_start_matches('/').into(), version }
            .check()
            .map_err(wrong)
    }

    /// Reads `http(s)://host/bucket/key`: the object, and the endpoint `http(s)://host`.
    pub(crate) fn parse_url(address: &str, version: &str) -> Result<(Self, Url), Error> {
        let wrong =
            |because: String| Error::Address { url: RedactedUrl::of_text(address), because };
        let mut url = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
        let path = percent_decode_str(url.path().trim_matches('/'))
            .decode_utf8()
            .map_err(|_| wrong("its path is not UTF-8".into()))?
            .into_owned();
        let (bucket, key) = path.split_once('/').unwrap_or((path.as_str(), ""));
        let version = url.query_pairs().find(|(name, _)| name == version);
        let version = version.map(|(_, value)| value.into_owned());
        let object = Self { bucket: bucket.to_owned(), key: key.to_owned(), version }
            .check()
            .map_err(|because| wrong(because.to_owned()))?;
        url.set_path("");
        url.set_query(None);
        url.set_fragment(None);
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok((object, url))
    }

    fn check(self) -> Result<Self, &'static str> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if self.bucket.is_empty() || self.bucket.len() > 222 || !self.bucket.chars().all(legal) {
            return Err("its bucket is no name of a bucket");
        }
        if self.key.split('/').any(|part| matches!(part, "." | "..")) {
            return Err("its key has a part . or .., which no address can hold");
        }
        // S3 and GCS end at 1024 bytes.
        match self.key.len() {
            0 => Err("there is no key behind the bucket"),
            1..=1024 => Ok(self),
            _ => Err("its key is longer than the 1024 bytes that stores allow"),
        }
    }

    pub(crate) fn name(&self, scheme: &str) -> RedactedUrl {
        RedactedUrl::of_object(scheme, &self.bucket, &self.key)
    }

    /// The key as it stands in a path.
    pub(crate) fn encoded_key(&self) -> impl fmt::Display + '_ {
        utf8_percent_encode(&self.key, PATH)
    }

    /// Why it cannot be read, with the texts of upstream CDI.
    /// `status` is the store's, where it answered.
    pub(crate) fn refused(
        &self,
        store: &'static str,
        status: Option<u16>,
        because: String,
    ) -> Error {
        Error::Object {
            store,
            status,
            object: format!("{}/{}", self.bucket, self.key).escape_debug().to_string(),
            because,
        }
    }
}

/// An endpoint as it was given: an address without a path.
pub(crate) fn endpoint(text: &str) -> Result<Url, Error> {
    let wrong = |because: &str| Error::Address {
        url: RedactedUrl::of_text(text),
        because: because.to_owned(),
    };
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("an endpoint begins with http:// or https://, and has a host"));
    }
    if url.path() != "/" || url.query().is_some() || !url.username().is_empty() {
        return Err(wrong("an endpoint is a host and perhaps a port, nothing else"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_a_bucket_a_key_and_perhaps_a_version() {
        let object = |bucket: &str, key: &str, version: Option<&str>| {
            Ok((bucket.to_owned(), key.to_owned(), version.map(str::to_owned)))
        };
        let table = [
            ("s3://images/a/b.qcow2", object("images", "a/b.qcow2", None)),
            ("s3://images//a", object("images", "a", None)),
            ("s3://images/a b?c#d@e", object("images", "a b?c#d@e", None)),
            ("s3://images/a?versionId=x.y", object("images", "a", Some("x.y"))),
            ("s3://images/a/../b", Err("has a part . or ..")),
            ("s3://images", Err("s3://BUCKET/KEY is needed")),
            ("s3://images/", Err("there is no key")),
            ("s3:///a", Err("no name of a bucket")),
            ("s3://key:word@images/a", Err("no name of a bucket")),
        ];
        for (location, expected) in table {
            let found = Object::parse("s3", location, "versionId");
            let found = found.map(|object| (object.bucket, object.key, object.version));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{location}"),
                (Err(error), Err(phrase)) => {
                    let message = error.to_string();
                    assert!(message.contains(phrase) && !message.contains("word@"), "{message}");
                }
                (found, expected) => panic!("{location}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn the_form_of_manifests_holds_endpoint_bucket_and_key() {
        let (object, endpoint) =
            Object::parse_url("https://host:9000/images/a%20b/c?versionId=v#x", "versionId")
                .unwrap();
        assert_eq!((&*object.bucket, &*object.key), ("images", "a b/c"));
        assert_eq!(object.version.as_deref(), Some("v"));
        assert_eq!(endpoint.as_str(), "https://host:9000/");
        assert_eq!(object.encoded_key().to_string(), "a%20b/c");
        for wrong in ["https://host/images", "https://host/", "no address", "http://h/b/%ff"] {
            assert!(Object::parse_url(wrong, "versionId").is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_endpoint_is_a_host_and_nothing_else() {
        for good in ["http://127.0.0.1:9000", "https://minio.example/"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for wrong in ["minio:9000", "ftp://host", "https://host/path", "https://u:p@host", "x"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
