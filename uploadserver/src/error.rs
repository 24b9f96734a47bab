//! Why an upload is not accepted, and what the client is told.

use std::io;

use axum::response::{IntoResponse, Response};
use contract::job::texts;
use http::StatusCode;
use pipeline::Error as Pipeline;
use runtime::chain;

use crate::form::FormError;
use crate::resumable::Refusal;
use crate::slot::Taken;

/// Precedes the reason why a body did not become the content of the volume.
const FAILED: &str = "Saving stream failed: ";
/// Follows [`FAILED`] where the image does not fit, and only there. Clients look for these words.
const TOO_LARGE: &str = "effective image size is larger than the reported available storage: ";

/// Why an upload did not become the content of the volume.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// No such path, or not with this method.
    #[error("there is nothing here")]
    Unknown,
    /// No certificate, or one with another name.
    #[error("this client has not shown who it is")]
    Unauthorized,
    /// The upload proxy's client, which acts for the holder of an upload token, has sent what only a clone source may.
    #[error(
        "cannot take clone content from the upload client: only the client certificate of a clone source may send it"
    )]
    NoCloneSource,
    /// The volume is being filled, or is full.
    #[error("the volume is {}", match .0 { Taken::Busy => "being filled", Taken::Done => "complete" })]
    Taken(Taken),
    /// The body is no form with a part `file`.
    #[error("the form cannot be read")]
    Form(#[from] FormError),
    /// Clones are answered once they are complete.
    #[error("async clone not supported")]
    AsyncClone,
    /// A clone's tar cannot be read.
    #[error("cannot read the archive")]
    Tar(#[source] io::Error),
    /// A clone's stream broke off, or is damaged.
    #[error("cannot read the clone")]
    Extents(#[source] io::Error),
    /// What a clone's stream says cannot be written.
    #[error("cannot write to the volume")]
    Target(#[source] io::Error),
    /// A clone's tar was to be put on a device.
    #[error("no disk image found in tar")]
    NoDisk,
    /// Files were to be put on a device.
    #[error("a block device has no place for files")]
    NoFolder,
    /// The stream did not become what it was to become.
    #[error("the upload cannot be stored")]
    Import(#[source] Pipeline),
    /// A request of an upload that can go on does not bring it on.
    #[error(transparent)]
    Resumable(#[from] Refusal),
    /// What the next process would have to know cannot be kept.
    #[error("cannot keep what is known of the upload")]
    Record(#[source] io::Error),
    /// A task of this process ended early.
    #[error("the importing task ended early; this is a bug, please report it")]
    Lost,
}

impl UploadError {
    /// What the client is answered.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NoCloneSource => StatusCode::FORBIDDEN,
            Self::Taken(Taken::Busy) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Taken(Taken::Done) => StatusCode::CONFLICT,
            Self::Form(FormError::Malformed(_)) => StatusCode::BAD_REQUEST,
            Self::Import(error) if Blame::of(error) != Blame::Server => StatusCode::BAD_REQUEST,
            Self::Target(error) if is_full(error) => StatusCode::BAD_REQUEST,
            Self::Resumable(refusal) => refusal.status(),
            Self::Form(FormError::Broken(_))
            | Self::AsyncClone
            | Self::Tar(_)
            | Self::Extents(_)
            | Self::Target(_)
            | Self::NoDisk
            | Self::NoFolder
            | Self::Import(_)
            | Self::Record(_)
            | Self::Lost => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Where an upload goes on whose client has sent bytes for another place.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Resumable(Refusal::Offset { offset }) => Some(*offset),
            _ => None,
        }
    }

    /// What the client reads.
    fn body(&self) -> String {
        match self {
            Self::Unknown | Self::Unauthorized | Self::Taken(_) => String::new(),
            Self::AsyncClone | Self::NoCloneSource => self.to_string(),
            Self::Resumable(refusal) => chain(refusal),
            Self::Import(error) if Blame::of(error) == Blame::Size => {
                format!("{FAILED}{TOO_LARGE}{}", chain(error))
            }
            Self::Import(error @ Pipeline::Decode { source: formats::Error::Foreign(_), .. }) => {
                format!("{FAILED}{}{}", chain(error), texts::RAW_FORMAT_HINT)
            }
            Self::Import(error) => format!("{FAILED}{}", chain(error)),
            Self::Target(error) if is_full(error) => format!("{FAILED}{TOO_LARGE}{}", chain(self)),
            Self::Form(_)
            | Self::Tar(_)
            | Self::Extents(_)
            | Self::Target(_)
            | Self::NoDisk
            | Self::NoFolder
            | Self::Record(_)
            | Self::Lost => format!("{FAILED}{}", chain(self)),
        }
    }
}

impl IntoResponse for UploadError {
    fn into_response(self) -> Response {
        let (status, body) = (self.status(), self.body());
        if !body.is_empty() {
            tracing::error!(http.status = status.as_u16(), "{body}");
        }
        (status, body).into_response()
    }
}

/// What would have to change for the same upload to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// The volume, or the image: it does not fit.
    Size,
    /// The image: it is damaged, of another content than announced, or of a kind that is refused.
    Image,
    /// Nothing that the client sends.
    Server,
}

impl Blame {
    /// No `_` arm: a new error has to choose.
    fn of(error: &Pipeline) -> Self {
        match error {
            Pipeline::TooLarge { .. } => Self::Size,
            Pipeline::Target { source, .. } if is_full(source) => Self::Size,
            Pipeline::Decode { .. } | Pipeline::Checksum { .. } | Pipeline::Unsupported { .. } => {
                Self::Image
            }
            Pipeline::Target { .. }
            | Pipeline::Source { .. }
            | Pipeline::Untar(_)
            | Pipeline::Scratch { .. }
            | Pipeline::NeedsScratch { .. }
            | Pipeline::Thread(_)
            | Pipeline::Panicked
            | Pipeline::Stopped => Self::Server,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use contract::ByteCount;

    use super::*;

    #[test]
    fn only_size_is_answered_with_words_about_size() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let target = |source| Pipeline::Target { what: "write to", path: "d".into(), source };
        let damaged = formats::Error::Truncated { what: "gzip stream", at: 7 };
        let (needed, offered) = (ByteCount::new(2), ByteCount::new(1));
        let checksum = Pipeline::Checksum { expected: "a".into(), calculated: "b".into() };
        let import = UploadError::Import;
        let table = [
            ("too large", import(Pipeline::TooLarge { needed, offered }), 400, true),
            ("full", import(target(full())), 400, true),
            (
                "damaged",
                import(Pipeline::Decode { name: "it".into(), source: damaged }),
                400,
                false,
            ),
            ("checksum", import(checksum), 400, false),
            ("kind", import(Pipeline::Unsupported { what: "an OVA".into() }), 400, false),
            ("broken disk", import(target(io::Error::other("i/o error"))), 500, false),
            ("stopped", import(Pipeline::Stopped), 500, false),
            ("a clone on a full volume", UploadError::Target(full()), 400, true),
        ];
        for (case, error, status, about_size) in table {
            assert_eq!(error.status().as_u16(), status, "{case}");
            let body = error.body();
            assert!(body.starts_with(FAILED), "{case}: {body}");
            assert_eq!(body.contains("available storage: "), about_size, "{case}: {body}");
        }
    }
}
