//! Why an import stopped.

use std::path::PathBuf;

use contract::ByteCount;
use contract::import::texts::LARGER_THAN;

use crate::source::SourceError;

/// Why an import stopped: what was being done, to what. The cause is `source()`, never repeated in the text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source gave up.
    #[error("cannot read {name}")]
    Source {
        /// The source as messages name it.
        name: String,
        /// Its error.
        source: SourceError,
    },
    /// The bytes are damaged, or the image needs a feature that is refused.
    #[error("cannot decode {name}")]
    Decode {
        /// The source as messages name it.
        name: String,
        /// What is wrong, and where.
        source: formats::Error,
    },
    /// The disk does not fit.
    #[error("virtual image size {needed}{LARGER_THAN}{offered}. A larger PVC is required")]
    TooLarge {
        /// The virtual size.
        needed: ByteCount,
        /// What the target offers.
        offered: ByteCount,
    },
    /// The target could not be opened, written or made durable.
    #[error("cannot {what} {}", path.display())]
    Target {
        /// A verb: `open`, `write to`, `make durable`.
        what: &'static str,
        /// The target.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// Scratch space could not be used. The target is not affected.
    #[error("cannot write to scratch space in {}", path.display())]
    Scratch {
        /// Its directory.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The wire bytes hash to something else.
    #[error(
        "checksum validation failed: checksum mismatch: expected {expected}, calculated {calculated}"
    )]
    Checksum {
        /// `algorithm:hex`, as expected.
        expected: String,
        /// `algorithm:hex`, as found.
        calculated: String,
    },
    /// Something this version does not do.
    #[error("{what} is not supported")]
    Unsupported {
        /// The request.
        what: String,
    },
    /// The image cannot be imported without scratch space, and there is none.
    #[error("this image needs scratch space: {because}")]
    NeedsScratch {
        /// Why one pass is not enough.
        because: String,
    },
    /// The archive is invalid, damaged, or holds what is not unpacked.
    #[error("unable to untar files from endpoint")]
    Untar(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// A thread panicked or broke an invariant.
    #[error("a stage of the import panicked; this is a bug, please report it")]
    Panicked,
    /// Another thread failed first, with the cause.
    #[error("the import was stopped")]
    Stopped,
}

impl Error {
    /// The same import, started again, may continue where this one ended and succeed. No `_` arm: a new variant has to
    /// choose.
    pub fn is_worth_another_try(&self) -> bool {
        match self {
            Self::Source { .. }
            | Self::Target { .. }
            | Self::Scratch { .. }
            | Self::Thread(_)
            | Self::Panicked
            | Self::Stopped => true,
            Self::Decode { .. }
            | Self::TooLarge { .. }
            | Self::Checksum { .. }
            | Self::Unsupported { .. }
            | Self::Untar(_)
            | Self::NeedsScratch { .. } => false,
        }
    }
}
