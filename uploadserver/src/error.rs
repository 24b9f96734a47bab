//! Why an upload was rejected or failed, and the response to its client.

use std::io;

use axum::response::{IntoResponse, Response};
use contract::import::texts;
use http::StatusCode;
use pipeline::Error as Pipeline;
use pipeline::target::is_full;
use runtime::chain;

use crate::multipart::FormError;
use crate::resumable::ResumableRefusal;
use crate::volume_slot::SlotUnavailable;

/// The beginning of the response to a failed upload, as upstream's server writes it.
const FAILED: &str = "Saving stream failed: ";
/// Follows [`FAILED`] if the image does not fit, and only then. Upstream's tests match these words.
const TOO_LARGE: &str = "effective image size is larger than the reported available storage: ";

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// No such path, or not with this method. The body is empty.
    #[error("no such path or method")]
    Unknown,
    /// No client certificate, or one with another common name. The body is empty.
    #[error("the client certificate does not have the expected common name")]
    Unauthorized,
    /// The upload proxy, acting for the holder of an upload token, has sent clone content.
    #[error(
        "cannot accept clone content from the upload proxy: only the pod of a clone source may send it"
    )]
    NoCloneSource,
    /// Another transfer is running, or the volume is complete. The body is empty.
    #[error("{}", match .0 {
        SlotUnavailable::Busy => "another transfer is running",
        SlotUnavailable::Done => "the volume is complete",
    })]
    SlotUnavailable(SlotUnavailable),
    /// The body is not a form with a part `file`.
    #[error("cannot read the form")]
    Form(#[from] FormError),
    /// Clones have no asynchronous path. The text is upstream's.
    #[error("async clone not supported")]
    AsyncClone,
    #[error("cannot read the archive")]
    Tar(#[source] io::Error),
    #[error("cannot read the clone stream")]
    Extents(#[source] io::Error),
    /// Writing a clone to the volume failed.
    #[error("cannot write to the volume")]
    Target(#[source] io::Error),
    /// A clone of files to a device needs a `disk.img` among them. The text is upstream's.
    #[error("no disk image found in tar")]
    NoDisk,
    #[error("cannot unpack an archive to a block device: set volumeMode to Filesystem")]
    NoFolder,
    #[error("cannot store the upload")]
    Import(#[source] Pipeline),
    #[error(transparent)]
    Resumable(#[from] ResumableRefusal),
    /// The record that a later process needs to resume cannot be written.
    #[error("cannot save the state of the upload")]
    Record(#[source] io::Error),
    /// The thread of the transfer panicked.
    #[error(
        "the transfer failed unexpectedly: report this as a bug, with the log of the upload pod"
    )]
    Panicked,
}

impl UploadError {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NoCloneSource => StatusCode::FORBIDDEN,
            Self::SlotUnavailable(SlotUnavailable::Busy) => StatusCode::SERVICE_UNAVAILABLE,
            Self::SlotUnavailable(SlotUnavailable::Done) => StatusCode::CONFLICT,
            Self::Form(FormError::Malformed(_)) => StatusCode::BAD_REQUEST,
            Self::Import(error) if Blame::from_error(error) != Blame::Server => {
                StatusCode::BAD_REQUEST
            }
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
            | Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The next byte of a resumable upload, if the client has sent another one.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Resumable(ResumableRefusal::Offset { offset }) => Some(*offset),
            _ => None,
        }
    }

    /// The response body.
    fn body(&self) -> String {
        match self {
            Self::Unknown | Self::Unauthorized | Self::SlotUnavailable(_) => String::new(),
            Self::AsyncClone | Self::NoCloneSource => self.to_string(),
            Self::Resumable(refusal) => chain(refusal),
            Self::Import(error) if Blame::from_error(error) == Blame::Size => {
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
            | Self::Panicked => format!("{FAILED}{}", chain(self)),
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

/// What has to change for the same upload to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// The image or the volume: it does not fit.
    Size,
    /// The image: it is damaged, of another content than announced, or unsupported.
    Image,
    /// Nothing that the client can change.
    Server,
}

impl Blame {
    /// No `_` arm: a new error must choose.
    fn from_error(error: &Pipeline) -> Self {
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

#[cfg(test)]
mod tests {
    use contract::ByteCount;

    use super::*;

    #[test]
    fn only_errors_about_size_have_the_words_about_size() {
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
