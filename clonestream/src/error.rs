//! Why a stream was refused.

use std::io;

/// Why a stream was refused: what is wrong, and after how many of its bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It ends before its end.
    #[error("the {what} was cut off after {at} bytes")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes that had come.
        at: u64,
    },
    /// Bytes that contradict their format, or a checksum.
    #[error("the {what} is damaged near byte {at}: {because}")]
    Corrupt {
        /// What was being read.
        what: &'static str,
        /// Where it was noticed.
        at: u64,
        /// What does not fit, as a clause.
        because: &'static str,
    },
    /// A later version than this one.
    #[error("the {what} is of version {version}, which is not known here")]
    Version {
        /// What was being read.
        what: &'static str,
        /// What it says.
        version: u16,
    },
}

/// So that a reader of bytes can hand it on; [`io::Error::downcast`] finds it again.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Error::Corrupt { .. } | Error::Version { .. } => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
