//! What an image is called: `docker://host/repository:tag`, by Docker's rules for what may be left out.

use std::fmt;
use std::path::PathBuf;

use contract::{Algorithm, Checksum};

use crate::error::Error;
use crate::secret::RedactedUrl;

/// Where a name without a host leads, and its other names.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";
/// The host that serves what is called `docker.io`.
const DEFAULT_REGISTRY_HOST: &str = "registry-1.docker.io";
/// As the specification of distribution has it.
const NAME_LEN_MAX: usize = 255;
const TAG_LEN_MAX: usize = 128;

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// As users write it: `docker.io`, `quay.io`, `localhost:5000`.
    pub(crate) registry: String,
    /// `library/debian`.
    pub(crate) repository: String,
    pub(crate) version: Version,
}

/// Which of a repository's images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Tag(String),
    Digest(Checksum),
}

/// An image in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveReference {
    pub(crate) path: PathBuf,
    /// `org.opencontainers.image.ref.name` of the one that is meant.
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Registry(Reference),
    Archive(ArchiveReference),
}

impl Location {
    /// Reads `docker://…` or `oci-archive:…`; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, Error>> {
        if let Some(name) = text.strip_prefix("docker://") {
            return Some(Reference::parse(name).map(Self::Registry).map_err(|because| {
                Error::Address { url: RedactedUrl::of_text(text), because: because.to_owned() }
            }));
        }
        let rest = text.strip_prefix("oci-archive:")?;
        let (path, name) = match rest.split_once(':') {
            Some((path, name)) => (path, Some(name.to_owned()).filter(|name| !name.is_empty())),
            None => (rest, None),
        };
        if path.is_empty() {
            let because = "it names no file".to_owned();
            return Some(Err(Error::Address { url: RedactedUrl::of_text(text), because }));
        }
        Some(Ok(Self::Archive(ArchiveReference { path: path.into(), name })))
    }
}

impl Reference {
    /// Reads what stands behind `docker://`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(self::digest(digest)?)),
            None => (text, None),
        };
        // A colon before the last slash belongs to a port.
        let name_at = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[name_at..].split_once(':') {
            Some((last, tag)) => (&rest[..name_at + last.len()], Some(tag)),
            None => (rest, None),
        };
        let version = match (tag, digest) {
            (Some(_), Some(_)) => {
                return Err("it has both a tag and a digest, and one of them has to go");
            }
            (None, Some(digest)) => Version::Digest(digest),
            (Some(tag), None) if is_tag(tag) => Version::Tag(tag.to_owned()),
            (Some(_), None) => return Err("its tag is none"),
            (None, None) => Version::Tag(DEFAULT_TAG.to_owned()),
        };
        let (registry, repository) = match name.split_once('/') {
            // Capitals alone may be what makes it one.
            Some((host, rest)) if is_host(host) => {
                let lower = host.to_ascii_lowercase();
                (if is_host(&lower) { lower } else { host.to_owned() }, rest)
            }
            _ => (DEFAULT_REGISTRY.to_owned(), name),
        };
        let registry = match registry.as_str() {
            "index.docker.io" | DEFAULT_REGISTRY_HOST => DEFAULT_REGISTRY.to_owned(),
            _ => registry,
        };
        let repository = if !repository.contains('/') && registry == DEFAULT_REGISTRY {
            format!("{DEFAULT_NAMESPACE}/{repository}")
        } else {
            repository.to_owned()
        };
        if !is_authority(&registry) {
            return Err("its host is none");
        }
        if !is_repository(&repository) {
            return Err(
                "its repository is none: lower-case letters, digits and . _ - between slashes",
            );
        }
        Ok(Self { registry, repository, version })
    }
}

impl Version {
    /// As it stands at the end of an address.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Tag(tag) => tag.clone(),
            Self::Digest(digest) => digest.to_string(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registry, repository, version } = self;
        let separator = if matches!(version, Version::Tag(_)) { ':' } else { '@' };
        write!(formatter, "docker://{registry}/{repository}{separator}{}", version.text())
    }
}

/// The host that serves a registry's interface.
pub(crate) fn host_of(registry: &str) -> &str {
    if registry == DEFAULT_REGISTRY { DEFAULT_REGISTRY_HOST } else { registry }
}

/// A digest as manifests have it: SHA-256 or SHA-512, in lower case.
pub(crate) fn digest(text: &str) -> Result<Checksum, &'static str> {
    let found = text.parse::<Checksum>().map_err(|_| "its digest is none")?;
    let strong = matches!(found.algorithm(), Algorithm::Sha256 | Algorithm::Sha512);
    if strong && found.to_string() == text { Ok(found) } else { Err("its digest is none") }
}

/// What a first part has to look like to be a host and not a namespace.
fn is_host(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.chars().any(char::is_uppercase)
}

/// `host`, `host:port`, `[::1]:port`: it becomes part of an address, so nothing else may stand there.
pub(crate) fn is_authority(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    !text.is_empty()
        && text.len() <= NAME_LEN_MAX
        && text.chars().all(legal)
        && !text.ends_with(':')
        && url::Url::parse(&format!("https://{text}/")).is_ok_and(|url| url.host_str().is_some())
}

fn is_repository(text: &str) -> bool {
    let part = |part: &str| {
        let edge =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        edge(part.chars().next()) && edge(part.chars().last()) && part.chars().all(legal)
    };
    text.len() <= NAME_LEN_MAX && text.split('/').all(part)
}

fn is_tag(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= TAG_LEN_MAX && text.starts_with(first) && text.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn omitted_parts_default_as_in_docker() {
        let table = [
            ("debian", "docker://docker.io/library/debian:latest"),
            ("kubevirt/demo:latest", "docker://docker.io/kubevirt/demo:latest"),
            ("docker.io/debian:12", "docker://docker.io/library/debian:12"),
            ("index.docker.io/debian", "docker://docker.io/library/debian:latest"),
            (
                "quay.io/containerdisks/centos:7-2009",
                "docker://quay.io/containerdisks/centos:7-2009",
            ),
            ("myprivateregistry/custom1", "docker://docker.io/myprivateregistry/custom1:latest"),
            ("localhost/a", "docker://localhost/a:latest"),
            ("localhost:5000/a/b/c:x", "docker://localhost:5000/a/b/c:x"),
            ("HOST/a", "docker://HOST/a:latest"),
            ("Quay.io/a", "docker://quay.io/a:latest"),
            ("[::1]:5000/a", "docker://[::1]:5000/a:latest"),
        ];
        for (text, expected) in table {
            assert_eq!(Reference::parse(text).unwrap().to_string(), expected, "{text}");
        }
        let text = format!("quay.io/a@sha256:{HEX}");
        assert_eq!(Reference::parse(&text).unwrap().to_string(), format!("docker://{text}"));
    }

    #[test]
    fn invalid_references_are_rejected() {
        let both = format!("quay.io/a:b@sha256:{HEX}");
        assert!(Reference::parse(&both).unwrap_err().contains("both a tag and a digest"));
        let upper = format!("quay.io/a@sha256:{}", HEX.to_uppercase());
        let weak = "quay.io/a@md5:9e107d9d372bb6826bd81d3542a419d6";
        for text in [
            "",
            "/",
            "quay.io/",
            "quay.io/A",
            "quay.io/a:",
            "quay.io/a:b:c",
            "quay.io/a b",
            "a//b",
            "quay.io/../a",
            "user@quay.io/a",
            "quay.io/a?b",
            "quay.io/a@sha256:12",
            "ho st:1/a",
            "quay.io:port/a",
            &upper,
            weak,
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_archive_is_a_path_and_perhaps_a_name() {
        let parse = |text| match Location::parse(text) {
            Some(Ok(Location::Archive(found))) => Some((found.path, found.name)),
            _ => None,
        };
        assert_eq!(parse("oci-archive:/a/b.tar"), Some(("/a/b.tar".into(), None)));
        assert_eq!(parse("oci-archive:b.tar:v1:x"), Some(("b.tar".into(), Some("v1:x".into()))));
        assert!(matches!(Location::parse("oci-archive:"), Some(Err(_))));
        assert!(Location::parse("https://host/a").is_none());
    }

    proptest! {
        #[test]
        fn accepted_references_parse_to_themselves(text in "[a-zA-Z0-9./:@_-]{0,60}") {
            if let Ok(found) = Reference::parse(&text) {
                let again = found.to_string();
                let again = Reference::parse(again.strip_prefix("docker://").unwrap());
                prop_assert_eq!(again, Ok(found));
            }
        }
    }
}
