//! Where a bucket is: endpoint, region, and which of the two styles its addresses have.

use url::Url;

use super::{S3Options, SCHEME};
use crate::error::Error;
use crate::objects::{self, Object};

/// Region of a bucket by default. From there the store names the right one.
pub(super) const REGION_DEFAULT: &str = "us-east-1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct S3Endpoint {
    endpoint: Option<Url>,
    /// As given, from the endpoint's name, or from the store's response.
    region: Option<String>,
    virtual_host: bool,
}

impl S3Endpoint {
    pub(super) fn new(options: &S3Options) -> Result<Self, Error> {
        let S3Options { endpoint, region, virtual_host, credentials: _ } = options;
        let endpoint = endpoint.as_deref().map(objects::endpoint).transpose()?;
        if let Some(region) = region.as_deref().filter(|region| !is_region(region)) {
            let region = region.escape_debug();
            return Err(Error::Option { what: format!("{region} is no name of a region") });
        }
        let named = || region_in(endpoint.as_ref()?.host_str()?).map(str::to_owned);
        let region = region.clone().or_else(named);
        Ok(Self { endpoint, region, virtual_host: *virtual_host })
    }

    pub(super) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_ref().map(|url| url.as_str().trim_end_matches('/'))
    }

    /// Where the bucket is, or may be: `otherwise` is from the environment.
    pub(super) fn region_or<'a>(&'a self, otherwise: Option<&'a str>) -> &'a str {
        self.region.as_deref().or(otherwise).unwrap_or(REGION_DEFAULT)
    }

    /// The bucket is in the path. Amazon's client decides by itself, and prefers the host name.
    pub(super) fn is_path_style(&self, other_endpoint: bool) -> bool {
        !self.virtual_host && (self.endpoint.is_some() || other_endpoint)
    }

    /// Takes the region that the store names. `false` for what is none, or is known.
    pub(super) fn move_to(&mut self, region: &str) -> bool {
        let moves = is_region(region) && self.region.as_deref() != Some(region);
        if moves {
            self.region = Some(region.to_owned());
        }
        moves
    }

    /// The host of requests, for messages.
    pub(super) fn host(&self) -> String {
        match &self.endpoint {
            Some(url) => url.host_str().unwrap_or_default().to_owned(),
            None => amazon(self.region_or(None)),
        }
    }

    /// The address of a public object.
    pub(super) fn address(&self, object: &Object) -> Result<Url, Error> {
        let Object { bucket, version, .. } = object;
        let key = object.encoded_key();
        let (scheme, host) = match &self.endpoint {
            None => ("https", amazon(self.region_or(None))),
            Some(url) => {
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                (url.scheme(), format!("{}{port}", url.host_str().unwrap_or_default()))
            }
        };
        // A certificate for *.host does not cover a name with more dots.
        let in_host = self.virtual_host || (self.endpoint.is_none() && !bucket.contains('.'));
        let address = if in_host {
            format!("{scheme}://{bucket}.{host}/{key}")
        } else {
            format!("{scheme}://{host}/{bucket}/{key}")
        };
        let mut url = Url::parse(&address).map_err(|error| {
            object.refused(SCHEME, None, format!("its address is none: {error}"))
        })?;
        if let Some(version) = version {
            url.query_pairs_mut().append_pair("versionId", version);
        }
        Ok(url)
    }
}

fn amazon(region: &str) -> String {
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("s3.{region}.amazonaws.com{china}")
}

/// The region in the names that Amazon's endpoints have: `s3.REGION.amazonaws.com`, of old `s3-REGION…`.
fn region_in(host: &str) -> Option<&str> {
    let host = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let host = host.strip_prefix("s3").and_then(|rest| rest.strip_prefix(['.', '-']))?;
    let region = host.strip_prefix("dualstack.").unwrap_or(host);
    is_region(region).then_some(region)
}

/// It becomes a part of a host name.
fn is_region(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=40).contains(&text.len()) && text.chars().all(legal) && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(endpoint: Option<&str>, region: Option<&str>, virtual_host: bool) -> S3Options {
        S3Options {
            endpoint: endpoint.map(str::to_owned),
            region: region.map(str::to_owned),
            virtual_host,
            ..S3Options::default()
        }
    }

    #[test]
    fn a_public_object_has_an_address_in_either_style() {
        let minio = Some("http://127.0.0.1:9000");
        let table = [
            (options(None, None, false), "b", "https://b.s3.us-east-1.amazonaws.com/k/a%20b"),
            (
                options(None, Some("eu-west-1"), false),
                "b",
                "https://b.s3.eu-west-1.amazonaws.com/k/a%20b",
            ),
            (
                options(None, Some("cn-north-1"), false),
                "b",
                "https://b.s3.cn-north-1.amazonaws.com.cn/k/a%20b",
            ),
            (options(None, None, false), "b.c", "https://s3.us-east-1.amazonaws.com/b.c/k/a%20b"),
            (options(minio, None, false), "b", "http://127.0.0.1:9000/b/k/a%20b"),
            (options(Some("https://s.example"), None, true), "b", "https://b.s.example/k/a%20b"),
        ];
        for (options, bucket, expected) in table {
            let object = Object { bucket: bucket.into(), key: "k/a b".into(), version: None };
            let url = S3Endpoint::new(&options).unwrap().address(&object).unwrap();
            assert_eq!(url.as_str(), expected);
        }
        let versioned = Object { bucket: "b".into(), key: "k".into(), version: Some("v&w".into()) };
        let url =
            S3Endpoint::new(&options(minio, None, false)).unwrap().address(&versioned).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:9000/b/k?versionId=v%26w");
    }

    #[test]
    fn a_region_is_given_or_in_the_name_of_the_endpoint() {
        let table = [
            (options(None, None, false), "us-east-1"),
            (options(None, Some("eu-west-1"), false), "eu-west-1"),
            (options(Some("https://s3.eu-north-1.amazonaws.com"), None, false), "eu-north-1"),
            (
                options(Some("https://s3.dualstack.eu-north-1.amazonaws.com"), None, false),
                "eu-north-1",
            ),
            (options(Some("https://s3-eu-north-1.amazonaws.com"), Some("x"), false), "x"),
            (options(Some("https://s3.amazonaws.com"), None, false), "us-east-1"),
            (options(Some("https://minio.example"), None, false), "us-east-1"),
        ];
        for (options, expected) in table {
            assert_eq!(S3Endpoint::new(&options).unwrap().region_or(None), expected, "{options:?}");
        }
        assert!(S3Endpoint::new(&options(None, Some("a.b/c"), false)).is_err());
    }

    #[test]
    fn a_store_may_name_a_region_and_nothing_else() {
        let mut endpoint = S3Endpoint::new(&options(None, None, false)).unwrap();
        for wrong in ["", "evil.example/", "EU", "-x"] {
            assert!(!endpoint.move_to(wrong), "{wrong}");
        }
        assert!(endpoint.move_to("eu-west-1") && !endpoint.move_to("eu-west-1"));
        assert_eq!(endpoint.region_or(Some("us-west-2")), "eu-west-1");
    }
}
