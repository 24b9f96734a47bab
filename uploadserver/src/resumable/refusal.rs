//! What is wrong with a request of an upload that can go on.

use http::StatusCode;

/// Why a request does not bring an upload on. The upload itself is as it was, unless it is said to be gone.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Another version of the protocol.
    #[error("the header Tus-Resumable has to be 1.0.0")]
    Version,
    /// A header that cannot be understood.
    #[error("{0}")]
    Malformed(&'static str),
    /// The body is none of this protocol.
    #[error("the Content-Type of a part of an upload is application/offset+octet-stream")]
    Kind,
    /// The body is wrapped up in something else than zstd.
    #[error("a body may have the Content-Encoding zstd, or none")]
    Coding,
    /// What unwraps it gets stuck.
    #[error("the body is no zstd")]
    Unpack(#[source] std::io::Error),
    /// No such upload.
    #[error("there is no such upload: it has been replaced by another one, or is complete")]
    Unknown,
    /// It was given up, and has to be begun anew.
    #[error("this upload has ended without success, and has to be begun anew")]
    Gone,
    /// Another request for the same upload has come meanwhile.
    #[error("a later request goes on with this upload")]
    Overtaken,
    /// Bytes for another place than the next.
    #[error("the next byte of this upload is number {offset}")]
    Offset {
        /// Where it goes on.
        offset: u64,
    },
    /// More bytes than were announced.
    #[error("there is more of it than its Upload-Length")]
    TooMuch,
    /// The end of a body is missing.
    #[error("the body broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Two different checksums of the same bytes.
    #[error("the upload was said to have another checksum before")]
    Digest,
    /// A checksum that nobody will compare with anything.
    #[error("an OVA is not read whole, so that its checksum cannot be checked")]
    Unchecked,
}

impl Refusal {
    /// What the client is answered. Clients of tus act on these numbers.
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
