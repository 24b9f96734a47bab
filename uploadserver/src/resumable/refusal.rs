//! Why a tus request is rejected.

use http::StatusCode;

/// The upload itself stays as it was, except with [`Self::Gone`].
#[derive(Debug, thiserror::Error)]
pub enum ResumableRefusal {
    #[error("the header Tus-Resumable must be 1.0.0")]
    Version,
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the Content-Type must be application/offset+octet-stream")]
    Kind,
    #[error("unsupported Content-Encoding: use zstd, or none")]
    Coding,
    #[error("cannot decode the body as zstd")]
    Unpack(#[source] std::io::Error),
    #[error("unknown upload: it was replaced by another one, or is complete")]
    Unknown,
    #[error("the upload has failed: create it again")]
    Gone,
    #[error("a later request continues this upload")]
    Overtaken,
    #[error("wrong Upload-Offset: the next byte of this upload has offset {offset}")]
    Offset { offset: u64 },
    #[error("the body exceeds the Upload-Length of the upload")]
    TooMuch,
    #[error("the connection ended in the middle of the body")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the checksum differs from the one that was sent before")]
    Digest,
    #[error(
        "cannot verify the checksum of an OVA, which is not read completely: upload it without a checksum"
    )]
    Unchecked,
}

impl ResumableRefusal {
    /// tus clients act on these status codes.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Version => StatusCode::PRECONDITION_FAILED,
            Self::Malformed(_)
            | Self::Unpack(_)
            | Self::Broken(_)
            | Self::Digest
            | Self::Unchecked => StatusCode::BAD_REQUEST,
            Self::Kind | Self::Coding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Gone => StatusCode::GONE,
            Self::Overtaken => StatusCode::LOCKED,
            Self::Offset { .. } => StatusCode::CONFLICT,
            Self::TooMuch => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }
}
