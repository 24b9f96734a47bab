//! Why a stream was rejected.

use std::io;

/// What is wrong with a stream, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the {what} ends after {at} bytes without its end frame")]
    Truncated {
        what: &'static str,
        /// Bytes that were received.
        at: u64,
    },
    /// Bytes that contradict the format or a checksum.
    #[error("the {what} is damaged near byte {at}: {because}")]
    Corrupt {
        what: &'static str,
        /// Offset of the frame in the stream.
        at: u64,
        because: &'static str,
    },
    #[error("the {what} has version {version}, this receiver supports version {supported}", supported = crate::offer::VERSION)]
    Version { what: &'static str, version: u16 },
}

/// For `Read` implementations; [`io::Error::downcast`] recovers the error.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Error::Corrupt { .. } | Error::Version { .. } => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
