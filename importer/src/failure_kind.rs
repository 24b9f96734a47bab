//! An error as one of a few kinds, whose texts hold nothing that a server sent.
//!
//! A program that requests addresses on behalf of tenants reports these kinds to them: the tenant who chose the address may
//! have no access to the server. The whole error belongs into the program's own log.

use std::fmt;

use crate::error::{Error, TransportError, Unresolved};

/// Why a request failed. `Display` is one of a fixed set of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The address or an option of it cannot be used. Nothing was sent.
    BadAddress,
    /// The address is one that this program does not connect to.
    Denied,
    /// Its host name has no address.
    Unresolved,
    /// There was no connection, or it broke.
    Unreachable,
    /// The certificate of the server is not trusted.
    Untrusted,
    /// There was no answer in time.
    TimedOut,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404, or 410.
    NotFound,
    /// 429.
    TooManyRequests,
    /// Another status from 400 on.
    ClientError,
    /// A status from 500 on.
    ServerError,
    /// Redirects that cannot be followed.
    Redirects,
    /// A response that is no image, or has nothing that identifies one.
    NotAnImage,
    /// The request was not finished, for a reason that lies with this program.
    Interrupted,
}

impl FailureKind {
    /// Whether the server requires credentials, or other ones.
    pub fn is_about_credentials(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden)
    }

    fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 | 410 => Self::NotFound,
            408 => Self::TimedOut,
            429 => Self::TooManyRequests,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::NotAnImage,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::BadAddress => "the address cannot be used",
            Self::Denied => "connections to the address are not permitted",
            Self::Unresolved => "cannot resolve the host name",
            Self::Unreachable => "cannot connect to the server",
            Self::Untrusted => "the TLS certificate of the server is not trusted",
            Self::TimedOut => "timed out",
            Self::Unauthorized => "the server refused: 401 Unauthorized",
            Self::Forbidden => "the server refused: 403 Forbidden",
            Self::NotFound => "the server refused: 404 Not Found",
            Self::TooManyRequests => "the server refused: 429 Too Many Requests",
            Self::ClientError => "the server refused the request",
            Self::ServerError => "the server failed: 5xx",
            Self::Redirects => "the server redirects to where it cannot be followed",
            Self::NotAnImage => "the answer is not an image, or does not identify one",
            Self::Interrupted => "the request was interrupted",
        })
    }
}

impl Error {
    /// What kind of failure this is. No `_` arm: a new variant must choose.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Address { .. } | Self::Scheme { .. } | Self::Option { .. } => {
                FailureKind::BadAddress
            }
            Self::Status { status, .. } => FailureKind::of_status(*status),
            Self::Object { status, .. } => {
                status.map_or(FailureKind::BadAddress, FailureKind::of_status)
            }
            Self::Transport { source, .. } | Self::Nbd { source, .. } => source.kind(),
            Self::Redirect { .. } => FailureKind::Redirects,
            Self::GaveUp { source, .. } | Self::TooCostly { source, .. } | Self::Pull(source) => {
                source.kind()
            }
            Self::TimedOut { .. } => FailureKind::TimedOut,
            Self::Answer { .. }
            | Self::RangeIgnored { .. }
            | Self::Refused { .. }
            | Self::Remote { .. }
            | Self::Changed { .. }
            | Self::Corrupt { .. }
            | Self::OnePass { .. }
            | Self::Image(_) => FailureKind::NotAnImage,
            Self::Store { .. }
            | Self::Stopped { .. }
            | Self::Cancelled { .. }
            | Self::File { .. }
            | Self::Vanished { .. } => FailureKind::Interrupted,
        }
    }
}

impl TransportError {
    fn kind(&self) -> FailureKind {
        match self {
            Self::Connect { source, .. } if source.is::<Unresolved>() => FailureKind::Unresolved,
            Self::Connect { .. }
            | Self::Proxy { .. }
            | Self::Tls { .. }
            | Self::Incompatible { .. }
            | Self::Broken { .. }
            | Self::Short { .. } => FailureKind::Unreachable,
            Self::Denied { .. } => FailureKind::Denied,
            Self::ProxySettings { .. } => FailureKind::Interrupted,
            Self::Certificate { .. } => FailureKind::Untrusted,
            Self::Stalled { .. } => FailureKind::TimedOut,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use crate::registry::ContainerImageError;
    use crate::secret::RedactedUrl;
    use crate::web::DeniedAddress;

    /// Text from a server, or from its name.
    const PAYLOAD: &str = "payload";

    fn url() -> RedactedUrl {
        RedactedUrl::of_text("http://payload/payload")
    }

    fn transport(source: TransportError) -> Error {
        Error::Transport { url: url(), source }
    }

    fn status(status: u16) -> Error {
        Error::Status { url: url(), status, reason: PAYLOAD, retry_after: None, hint: PAYLOAD }
    }

    fn object(status: Option<u16>) -> Error {
        let (object, because) = (PAYLOAD.to_owned(), PAYLOAD.to_owned());
        Error::Object { store: "s3", status, object, because }
    }

    #[test]
    fn the_text_of_a_kind_holds_nothing_of_the_server() {
        let (host, because) = (|| PAYLOAD.to_owned(), || PAYLOAD.to_owned());
        let cause = || io::Error::other(PAYLOAD);
        let name = ContainerImageError::Document { what: "manifest", because: because() };
        let table = [
            (Error::Address { url: url(), because: because() }, "the address cannot be used"),
            (Error::Scheme { scheme: because() }, "the address cannot be used"),
            (Error::Option { what: because() }, "the address cannot be used"),
            (status(401), "the server refused: 401 Unauthorized"),
            (status(403), "the server refused: 403 Forbidden"),
            (status(404), "the server refused: 404 Not Found"),
            (status(410), "the server refused: 404 Not Found"),
            (status(418), "the server refused the request"),
            (status(429), "the server refused: 429 Too Many Requests"),
            (status(500), "the server failed: 5xx"),
            (status(503), "the server failed: 5xx"),
            (status(204), "the answer is not an image, or does not identify one"),
            (object(Some(403)), "the server refused: 403 Forbidden"),
            (object(Some(404)), "the server refused: 404 Not Found"),
            (object(None), "the address cannot be used"),
            (
                transport(TransportError::Connect { host: host(), source: cause().into() }),
                "cannot connect to the server",
            ),
            (
                transport(TransportError::Connect {
                    host: host(),
                    source: Unresolved(cause()).into(),
                }),
                "cannot resolve the host name",
            ),
            (
                transport(TransportError::Denied { host: host(), kind: DeniedAddress::Loopback }),
                "connections to the address are not permitted",
            ),
            (
                transport(TransportError::Tls { host: host(), source: cause().into() }),
                "cannot connect to the server",
            ),
            (
                transport(TransportError::Incompatible {
                    host: host(),
                    because: PAYLOAD,
                    source: cause().into(),
                }),
                "cannot connect to the server",
            ),
            (
                transport(TransportError::Certificate {
                    host: host(),
                    because: PAYLOAD,
                    source: cause().into(),
                }),
                "the TLS certificate of the server is not trusted",
            ),
            (
                transport(TransportError::Stalled {
                    host: host(),
                    waited: Duration::from_secs(30),
                }),
                "timed out",
            ),
            (
                transport(TransportError::Broken { host: host(), source: cause().into() }),
                "cannot connect to the server",
            ),
            (Error::TimedOut { name: because() }, "timed out"),
            (Error::Cancelled { name: because() }, "the request was interrupted"),
            (
                Error::Redirect { url: url(), because: because() },
                "the server redirects to where it cannot be followed",
            ),
            (
                Error::Answer { url: url(), because: because() },
                "the answer is not an image, or does not identify one",
            ),
            (Error::Image(Box::new(name)), "the answer is not an image, or does not identify one"),
            (
                Error::Pull(Box::new(Error::GaveUp {
                    url: url(),
                    at: 0,
                    attempts: 2,
                    source: Box::new(status(502)),
                })),
                "the server failed: 5xx",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(error.kind().to_string(), expected, "{error:?}");
            assert!(!expected.contains(PAYLOAD));
        }
    }
}
