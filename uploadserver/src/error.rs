//! Why an upload is not accepted, and what the client is told.

use std::io;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use pipeline::Error as Pipeline;
use runtime::chain;

use crate::form::FormError;
use crate::resumable::Refusal;
use crate::slot::Taken;

/// Before why a body did not become the content of the volume.
const FAILED: &str = "Saving stream failed: ";
/// And before what only another image would change. Clients look for these words.
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
            Self::Taken(Taken::Busy) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Taken(Taken::Done) => StatusCode::CONFLICT,
            Self::Form(FormError::Malformed(_)) => StatusCode::BAD_REQUEST,
            Self::Import(error) if is_the_images_fault(error) => StatusCode::BAD_REQUEST,
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
            Self::AsyncClone => self.to_string(),
            Self::Resumable(refusal) => chain(refusal),
            Self::Import(error) if is_the_images_fault(error) => {
                format!("{FAILED}{TOO_LARGE}{}", chain(error))
            }
            Self::Import(error) => format!("{FAILED}{}", chain(error)),
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

/// No other server would take it either: what is sent has to change. No `_` arm: a new error has to choose.
fn is_the_images_fault(error: &Pipeline) -> bool {
    match error {
        Pipeline::TooLarge { .. }
        | Pipeline::Decode { .. }
        | Pipeline::Checksum { .. }
        | Pipeline::Unsupported { .. } => true,
        Pipeline::Target { source, .. } => is_full(source),
        Pipeline::Source { .. }
        | Pipeline::Untar(_)
        | Pipeline::Scratch { .. }
        | Pipeline::NeedsScratch { .. }
        | Pipeline::Thread(_)
        | Pipeline::Panicked
        | Pipeline::Stopped => false,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
