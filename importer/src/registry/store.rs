//! Where the parts of an image are: behind a registry's interface, or in a file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use contract::{Checksum, Hasher};
use http::header::CONTENT_TYPE;
use pipeline::{ByteStream, Source, SourceError};
use url::Url;

use super::archive::ArchiveFile;
use super::credentials::RegistryAuth;
use super::image_error::ContainerImageError;
use super::manifest::{ACCEPT, DOCUMENT_LEN_MAX, Descriptor};
use super::reference::{Reference, Version, digest, host_of};
use crate::error::Error;
use crate::web::{Agent, HttpOptions, HttpValidators, Tokens, is_listed};

/// Where the parts of an image are.
pub(super) enum Store {
    Registry(Box<Remote>),
    Archive(ArchiveFile),
}

/// A manifest or an index as it came, its digest verified.
pub(super) struct Fetched {
    pub(super) bytes: Bytes,
    pub(super) content_type: Option<String>,
    pub(super) digest: Checksum,
}

impl Store {
    /// The document that a manifest names.
    pub(super) fn document(&self, descriptor: &Descriptor) -> Result<Fetched, Error> {
        let fetched = match self {
            Self::Registry(remote) => remote.document(&Version::Digest(descriptor.digest))?,
            Self::Archive(_) => {
                let bytes = self.small_blob("manifest", descriptor)?;
                Fetched { bytes, content_type: None, digest: descriptor.digest }
            }
        };
        let (expected, found) = (descriptor.size, fetched.bytes.len() as u64);
        if expected != found {
            return Err(ContainerImageError::Length { what: "manifest", expected, found }.into());
        }
        Ok(fetched)
    }

    /// A blob from its start. Its length is limited; the reader has to verify its digest.
    pub(super) fn blob(
        &self,
        what: &'static str,
        descriptor: &Descriptor,
    ) -> Result<Box<dyn ByteStream>, Error> {
        let stream = match self {
            Self::Registry(remote) => remote.blob(descriptor)?,
            Self::Archive(archive) => archive.blob(descriptor)?,
        };
        Ok(Box::new(Capped { stream, what, expected: descriptor.size, found: 0 }))
    }

    /// A blob that fits into memory, verified.
    pub(super) fn small_blob(
        &self,
        what: &'static str,
        descriptor: &Descriptor,
    ) -> Result<Bytes, Error> {
        if descriptor.size > DOCUMENT_LEN_MAX {
            let because = format!("it is longer than {DOCUMENT_LEN_MAX} bytes");
            return Err(ContainerImageError::Document { what, because }.into());
        }
        let mut stream = self.blob(what, descriptor)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().map_err(Error::of_source)? {
            bytes.extend_from_slice(&chunk); // capped
        }
        check(what, &descriptor.digest, &bytes)?;
        Ok(bytes.into())
    }
}

fn check(what: &'static str, expected: &Checksum, bytes: &[u8]) -> Result<(), Error> {
    let mut hasher = expected.hasher();
    hasher.update(bytes);
    same(what, expected, hasher.finish())
}

/// What was named is what came.
pub(super) fn same(what: &'static str, expected: &Checksum, found: Checksum) -> Result<(), Error> {
    if *expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(ContainerImageError::Digest { what, expected, found }.into())
}

/// As long as it should be, or an error.
struct Capped {
    stream: Box<dyn ByteStream>,
    what: &'static str,
    expected: u64,
    found: u64,
}

impl ByteStream for Capped {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let next = self.stream.next()?;
        self.found += next.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let Self { what, expected, found, .. } = *self;
        if found > expected || (next.is_none() && found < expected) {
            return Err(Error::from(ContainerImageError::Length { what, expected, found }).into());
        }
        Ok(next)
    }
}

/// A repository of a registry, and of its mirrors.
pub(super) struct Remote {
    agent: Agent,
    /// Mirrors first, the registry itself last.
    endpoints: Vec<Endpoint>,
    current: AtomicUsize,
}

struct Endpoint {
    host: String,
    repository: String,
    tokens: Arc<Tokens>,
    /// May be without TLS.
    insecure: bool,
    /// `https://host/v2/repository/`, once it is known how it speaks.
    base: OnceLock<Url>,
}

/// From the headers of a manifest.
enum HeadResult {
    /// It is the one that was known.
    Unchanged,
    Digest(Checksum),
    Nothing,
}

impl Remote {
    pub(super) fn new(reference: &Reference, options: &HttpOptions) -> Result<Self, Error> {
        let agent = Agent::new(options)?;
        let Reference { registry, repository, .. } = reference;
        let known = &options.registry.credentials;
        let mut endpoints = Vec::new();
        for mirror in options.registry.mirrors.iter().filter(|m| m.registry == *registry) {
            let repository = format!("{}{repository}", mirror.prefix);
            let found = known.find(&mirror.host, &repository);
            endpoints.push(Endpoint::new(&agent, options, &mirror.host, repository, found)?);
        }
        // A user that was named is known to the registry that was named, and to no mirror.
        let given = options.auth.clone().map(RegistryAuth::Password);
        let found = given.as_ref().or_else(|| known.for_reference(reference));
        let host = host_of(registry);
        endpoints.push(Endpoint::new(&agent, options, host, repository.clone(), found)?);
        Ok(Self { agent, endpoints, current: AtomicUsize::new(0) })
    }

    /// A manifest or an index.
    pub(super) fn document(&self, version: &Version) -> Result<Fetched, Error> {
        self.try_endpoints(|agent, endpoint| {
            let url = endpoint.url(agent, "manifests", &version.text())?;
            let tokens = Some(Arc::clone(&endpoint.tokens));
            let answer = agent.fetch(url, tokens, Some(ACCEPT), DOCUMENT_LEN_MAX)?;
            let text = |name: &str| answer.headers.get(name)?.to_str().ok();
            // The registry resolves a tag; the digest that it announces has to agree with the document that it sends.
            let announced = text("docker-content-digest").and_then(|text| digest(text).ok());
            let expected = match version {
                Version::Digest(expected) => Some(*expected),
                Version::Tag(_) => announced,
            };
            let mut hasher = expected.map_or_else(Hasher::sha256, |expected| expected.hasher());
            hasher.update(&answer.bytes);
            let digest = hasher.finish();
            if let Some(expected) = &expected {
                same("manifest", expected, digest)?;
            }
            let content_type = text(CONTENT_TYPE.as_str())
                .map(|kind| kind.split(';').next().unwrap_or_default().trim().to_owned());
            Ok(Fetched { bytes: answer.bytes, content_type, digest })
        })
    }

    /// The digest of what a tag names now, mostly without its document. `None`: it is still `known`.
    pub(super) fn digest(
        &self,
        version: &Version,
        known: Option<&Checksum>,
    ) -> Result<Option<Checksum>, Error> {
        let result = self.try_endpoints(|agent, endpoint| {
            let url = endpoint.url(agent, "manifests", &version.text())?;
            let tokens = Some(Arc::clone(&endpoint.tokens));
            let etag = known.map(|digest| format!("\"{digest}\""));
            let known = etag.map(|etag| HttpValidators { etag: Some(etag), modified: None });
            match agent.peek(url, tokens, ACCEPT, known) {
                Ok(None) => Ok(HeadResult::Unchanged),
                Ok(Some(headers)) => {
                    let text = headers.get("docker-content-digest");
                    let found = text.and_then(|text| digest(text.to_str().ok()?).ok());
                    Ok(found.map_or(HeadResult::Nothing, HeadResult::Digest))
                }
                // A registry without HEAD serves the document.
                Err(Error::Status { status: 400 | 403 | 405 | 406 | 501, .. }) => {
                    Ok(HeadResult::Nothing)
                }
                Err(error) => Err(error),
            }
        })?;
        let found = match result {
            HeadResult::Unchanged => return Ok(None),
            HeadResult::Digest(digest) => digest,
            HeadResult::Nothing => self.document(version)?.digest,
        };
        Ok((known != Some(&found)).then_some(found))
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn ByteStream>, Error> {
        self.try_endpoints(|agent, endpoint| {
            let url = endpoint.url(agent, "blobs", &descriptor.digest.to_string())?;
            let source = agent.blob(url, Some(Arc::clone(&endpoint.tokens)), descriptor.size)?;
            Ok(source.open(0, None))
        })
    }

    /// The first successful response; else the error of the registry itself.
    fn try_endpoints<T>(
        &self,
        request: impl Fn(&Agent, &Endpoint) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let first = self.current.load(Ordering::Relaxed);
        let mut failure = None;
        for index in first..self.endpoints.len() {
            match request(&self.agent, &self.endpoints[index]) {
                Ok(found) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok(found);
                }
                Err(error) => {
                    if index + 1 < self.endpoints.len() {
                        let host = &self.endpoints[index].host;
                        tracing::warn!("the mirror {host} does not help: {error}");
                    }
                    failure = Some(error);
                }
            }
        }
        let name = || self.endpoints.last().map(|last| last.host.clone()).unwrap_or_default();
        Err(failure.map_or_else(|| Error::Vanished { name: name() }, Error::pull))
    }
}

impl Endpoint {
    fn new(
        agent: &Agent,
        options: &HttpOptions,
        host: &str,
        repository: String,
        known: Option<&RegistryAuth>,
    ) -> Result<Self, Error> {
        let (auth, token) = match known {
            None => (None, None),
            Some(RegistryAuth::Password(auth)) => (Some(auth.clone()), None),
            Some(RegistryAuth::Token(token)) => (None, Some(token)),
            Some(RegistryAuth::Identity) => {
                let what = format!(
                    "the registry credentials for {host} are an identity token, which is not supported: \
                     give a user and a password"
                );
                return Err(Error::Option { what });
            }
        };
        let url = address(&format!("https://{host}/"))?;
        Ok(Self {
            host: host.to_owned(),
            tokens: agent.tokens(auth, token, &repository)?,
            repository,
            insecure: options.insecure_tls || is_listed(&url, &options.insecure_hosts),
            base: OnceLock::new(),
        })
    }

    fn url(&self, agent: &Agent, kind: &str, what: &str) -> Result<Url, Error> {
        let base = match self.base.get() {
            Some(base) => base,
            None => {
                let found = self.find_base(agent)?;
                self.base.get_or_init(|| found)
            }
        };
        base.join(&format!("{kind}/{what}"))
            .map_err(|error| Error::Address { url: base.into(), because: error.to_string() })
    }

    /// Only for a registry that may lack TLS, it is probed whether it does.
    fn find_base(&self, agent: &Agent) -> Result<Url, Error> {
        let Self { host, repository, .. } = self;
        let base = |scheme| address(&format!("{scheme}://{host}/v2/{repository}/"));
        if self.insecure
            && let Err(error) = agent.speaks(address(&format!("https://{host}/v2/"))?)
            && agent.speaks(address(&format!("http://{host}/v2/"))?).is_ok()
        {
            tracing::debug!("connecting to {host} without TLS: {error}");
            return base("http");
        }
        base("https")
    }
}

fn address(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|error| Error::Address {
        url: crate::secret::RedactedUrl::of_text(text),
        because: error.to_string(),
    })
}
