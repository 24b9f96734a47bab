//! Why a source gave up, and what follows from each reason.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::registry::ContainerImageError;
use crate::secret::RedactedUrl;
use crate::web::DeniedAddress;

/// Why a source cannot be read: where, and what was tried. The cause is `source()`, never repeated in the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be understood.
    #[error("{url} is not an address: {because}")]
    Address {
        url: RedactedUrl,
        /// What is wrong with it.
        because: String,
    },
    /// An address of a kind that has no source.
    #[error(
        "cannot import from {scheme}:// addresses, only from http, https, s3, gs, docker, nbd and files"
    )]
    Scheme {
        /// What stands before `://`.
        scheme: String,
    },
    /// An option that cannot be used. Its text holds no secret.
    #[error("{what}")]
    Option { what: String },
    /// The server answered, and not with the image.
    #[error("expected status code 200, got {status}. Status: {status} {reason} ({url}{hint})")]
    Status {
        url: RedactedUrl,
        status: u16,
        reason: &'static str,
        /// When to retry, from the server.
        retry_after: Option<Duration>,
        /// What may help, beginning with a separator, or nothing.
        hint: &'static str,
    },
    /// No answer, or not all of it.
    #[error("HTTP request errored: {url}")]
    Transport { url: RedactedUrl, source: TransportError },
    /// The server sent us elsewhere once too often.
    #[error("cannot follow the redirects of {url}: {because}")]
    Redirect {
        /// Where the redirect came from.
        url: RedactedUrl,
        because: String,
    },
    /// A response that contradicts the request.
    #[error("{url} answered nonsense: {because}")]
    Answer { url: RedactedUrl, because: String },
    /// Parts were sent before, and now the whole comes instead: another server behind the same address, perhaps.
    #[error("{url} answered a request for a part with the whole image")]
    RangeIgnored { url: RedactedUrl },
    /// No connection to an NBD server, or a broken one.
    #[error("cannot read {url}")]
    Nbd { url: RedactedUrl, source: TransportError },
    /// A server that was reached does not want to, or cannot.
    #[error("{url} refuses: {because}")]
    Refused { url: RedactedUrl, because: String },
    /// A server fails to read its own disk.
    #[error("{url} cannot read {len} bytes at {at}: {because}")]
    Remote { url: RedactedUrl, at: u64, len: u64, because: String },
    /// The deadline of a request passed.
    #[error("{name} did not answer before the deadline")]
    TimedOut { name: String },
    /// The caller cancelled the request.
    #[error("the request to {name} was cancelled")]
    Cancelled { name: String },
    #[error("the import of {name} was stopped")]
    Stopped { name: String },
    /// The bytes already received belong to another image than those still to come.
    #[error("{name} changed during the import: it was {before}, it is {after}")]
    Changed {
        name: String,
        /// What identified it at first.
        before: String,
        after: String,
    },
    /// Tried again and again, without one new byte.
    #[error("gave up on {url} at byte {at} after {attempts} attempts without progress")]
    GaveUp {
        url: RedactedUrl,
        /// The first byte that is missing.
        at: u64,
        /// How often it was tried since the last byte.
        attempts: u32,
        /// Why the last attempt failed.
        source: Box<Error>,
    },
    /// A server without ranges breaks off again and again, and each time everything comes from the start.
    #[error(
        "gave up on {url} at byte {at}: {repeated} bytes were fetched again after broken connections"
    )]
    TooCostly {
        url: RedactedUrl,
        /// The first byte that is missing.
        at: u64,
        /// Bytes that came more than once.
        repeated: u64,
        /// Why the last attempt failed.
        source: Box<Error>,
    },
    /// An object store does not give the object.
    #[error("could not get {store} object: \"{object}\": {because}")]
    Object {
        /// `s3` or `gcs`.
        store: &'static str,
        /// The status of its response, if it was requested.
        status: Option<u16>,
        object: String,
        /// What is wrong, and what helps.
        because: String,
    },
    /// No request to an object store is possible.
    #[error("could not build {store} client for \"{host}\": {because}")]
    Store {
        /// `s3` or `gcs`.
        store: &'static str,
        /// The host of the request.
        host: String,
        /// What is wrong, and what helps. Holds no secret.
        because: String,
    },
    /// The object is complete, but its checksum differs from the one that the store reports.
    #[error(
        "checksum validation failed: checksum mismatch: expected {expected}, calculated {calculated} ({name} was \
         damaged in its store or on the way)"
    )]
    Corrupt {
        name: String,
        /// The checksum that the store reports: algorithm and hexadecimal digits.
        expected: String,
        calculated: String,
    },
    #[error("cannot {what} {}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// A part, or the same bytes again, of what flows by only once.
    #[error("{name} can only be read once, from its start to its end")]
    OnePass { name: String },
    /// An image in a registry or an OCI archive, which is not one to use.
    #[error("Failed to read registry image")]
    Image(#[source] Box<ContainerImageError>),
    /// A registry does not bring the image.
    #[error("Failed to read registry image: failed to pull image")]
    Pull(#[source] Box<Error>),
    /// A thread or task of ours ended without a result, which it never should.
    #[error("the transfer from {name} ended without saying why")]
    Vanished { name: String },
}

/// A failure below HTTP: of the connection, or of the transfer over it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection to the server or the proxy.
    #[error("cannot connect to {host}")]
    Connect {
        /// Host and port.
        host: String,
        source: Cause,
    },
    /// An address that the [policy](crate::DialPolicy) refuses.
    #[error("{host} is not connected to: it has {kind}")]
    Denied {
        /// Host and port.
        host: String,
        kind: DeniedAddress,
    },
    /// The proxy did not let us through.
    #[error("the proxy {host} refuses to connect to {to} (status {status})")]
    Proxy {
        /// Host and port of the proxy.
        host: String,
        /// Host and port of the server.
        to: String,
        status: u16,
    },
    /// The proxy's settings cannot be used.
    #[error("{because}")]
    ProxySettings {
        /// What is wrong. Holds no secret.
        because: String,
    },
    /// The server's certificate is not one to trust.
    #[error("cannot verify the certificate of {host}: {because}")]
    Certificate {
        /// Host and port.
        host: String,
        /// What is wrong and what helps.
        because: &'static str,
        source: Cause,
    },
    /// Server and client have no TLS version or extension in common.
    #[error("no TLS connection with {host}: {because}")]
    Incompatible {
        /// Host and port.
        host: String,
        /// What is missing and what helps.
        because: &'static str,
        source: Cause,
    },
    /// TLS could not be agreed upon.
    #[error("no TLS connection with {host}")]
    Tls {
        /// Host and port.
        host: String,
        source: Cause,
    },
    /// No byte came for so long that the connection was abandoned.
    #[error("no byte from {host} for {} seconds", waited.as_secs())]
    Stalled {
        /// Host and port.
        host: String,
        waited: Duration,
    },
    /// The connection ended in the middle.
    #[error("the connection to {host} broke")]
    Broken {
        /// Host and port.
        host: String,
        source: Cause,
    },
    /// The connection ended in order, with bytes missing.
    #[error("{host} ended the transfer {missing} bytes early")]
    Short {
        /// Host and port.
        host: String,
        /// How many had been announced and did not come.
        missing: u64,
    },
}

/// A name that has no address, as the cause of [`TransportError::Connect`]. Its text is that of the system.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Unresolved(pub(crate) io::Error);

/// The text of a library's error.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Temporary: retry after a growing delay.
    Retry,
    /// Temporary: the server gives the delay.
    RetryAfter(Duration),
    /// Asking again would give the same answer, and cost.
    Fail,
}

impl From<ContainerImageError> for Error {
    fn from(error: ContainerImageError) -> Self {
        Self::Image(Box::new(error))
    }
}

impl Error {
    /// An error of a request to a registry.
    pub(crate) fn pull(self) -> Self {
        match self {
            Self::Image(_) | Self::Pull(_) | Self::Option { .. } => self,
            other => Self::Pull(Box::new(other)),
        }
    }

    /// An error that has passed through the pipeline's hands: one of ours.
    pub(crate) fn of_source(error: pipeline::SourceError) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours.pull(),
            Err(other) => Self::Option { what: other.to_string() },
        }
    }

    /// What follows. No `_` arm: a new variant has to choose.
    pub fn next(&self) -> Next {
        match self {
            Self::Status { status: 408 | 425 | 429 | 500..=599, retry_after, .. } => {
                retry_after.map_or(Next::Retry, Next::RetryAfter)
            }
            Self::Transport { source, .. } | Self::Nbd { source, .. } => source.next(),
            Self::RangeIgnored { .. } | Self::Remote { .. } => Next::Retry,
            Self::Status { .. }
            | Self::Address { .. }
            | Self::Scheme { .. }
            | Self::Option { .. }
            | Self::Redirect { .. }
            | Self::Answer { .. }
            | Self::Refused { .. }
            | Self::Stopped { .. }
            | Self::TimedOut { .. }
            | Self::Cancelled { .. }
            | Self::Changed { .. }
            | Self::GaveUp { .. }
            | Self::TooCostly { .. }
            | Self::Object { .. }
            | Self::Store { .. }
            | Self::Corrupt { .. }
            | Self::File { .. }
            | Self::OnePass { .. }
            | Self::Image(_)
            | Self::Pull(_)
            | Self::Vanished { .. } => Next::Fail,
        }
    }
}

impl TransportError {
    fn next(&self) -> Next {
        match self {
            Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Stalled { .. }
            | Self::Broken { .. }
            | Self::Short { .. } => Next::Retry,
            Self::Proxy { status: 500..=599, .. } => Next::Retry,
            Self::Proxy { .. }
            | Self::ProxySettings { .. }
            | Self::Certificate { .. }
            | Self::Incompatible { .. }
            | Self::Denied { .. } => Next::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_depends_on_the_status() {
        let second = Duration::from_secs(1);
        let table = [
            (400, None, Next::Fail),
            (401, None, Next::Fail),
            (404, Some(second), Next::Fail),
            (408, None, Next::Retry),
            (410, None, Next::Fail),
            (416, None, Next::Fail),
            (425, None, Next::Retry),
            (429, Some(second), Next::RetryAfter(second)),
            (500, None, Next::Retry),
            (503, Some(second), Next::RetryAfter(second)),
            (599, None, Next::Retry),
            (304, None, Next::Fail),
        ];
        for (status, retry_after, expected) in table {
            let url = RedactedUrl::of_text("http://host/a");
            let error = Error::Status { url, status, reason: "", retry_after, hint: "" };
            assert_eq!(error.next(), expected, "{status}");
        }
    }

    #[test]
    fn clients_find_the_status_text_they_match_on() {
        let error = Error::Status {
            url: RedactedUrl::of_text("http://host/a"),
            status: 404,
            reason: "Not Found",
            retry_after: None,
            hint: "",
        };
        let expected = "expected status code 200, got 404. Status: 404 Not Found";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
