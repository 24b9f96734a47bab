//! Why a clone stopped, and how the process reacts.

use std::io;
use std::path::PathBuf;

use clonestream::extents::WriteError;

/// Why a clone stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source cannot be read. `what` is a verb, with a preposition where it needs one.
    #[error("cannot {what} {}", path.display())]
    Source { what: &'static str, path: PathBuf, source: io::Error },
    /// The source has content that cannot be cloned, or changes during the clone.
    #[error("cannot clone {}: {because}", path.display())]
    Unsendable { path: PathBuf, because: String },
    /// The client certificate, its key or the server's CA is invalid.
    #[error("cannot use the {what}")]
    Tls { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// `address` is host and port.
    #[error("cannot connect to {address}")]
    Connect { address: String, source: io::Error },
    #[error("cannot {what} the upload server")]
    Transport { what: &'static str, source: io::Error },
    /// The server's response; the words are those of upstream's cloner. `body` is empty, or begins with a colon.
    #[error("Unexpected status code {status}{body}")]
    Status { status: u16, body: String },
    /// The target volume of this pod cannot be written.
    #[error("cannot {what} {}", path.display())]
    Target { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Disk(#[from] pipeline::Error),
    #[error(transparent)]
    Sandbox(#[from] runtime::SandboxMissing),
    #[error("cannot start a worker thread")]
    Worker(#[source] io::Error),
}

/// How the process reacts to an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferRecovery {
    /// Ask the server for its position and resume there.
    Resume,
    Fail,
}

impl Error {
    /// No `_` arm: a new error must choose.
    pub(crate) fn recovery(&self) -> TransferRecovery {
        match self {
            Self::Connect { .. } | Self::Transport { .. } => TransferRecovery::Resume,
            // The server still handles an earlier connection, or is shutting down.
            Self::Status { status: 502..=504, .. } => TransferRecovery::Resume,
            Self::Source { .. }
            | Self::Unsendable { .. }
            | Self::Tls { .. }
            | Self::Status { .. }
            | Self::Target { .. }
            | Self::Disk(_)
            | Self::Sandbox(_)
            | Self::Worker(_) => TransferRecovery::Fail,
        }
    }

    /// Converts the error of a stream's writer; `path` is what was sent.
    pub(crate) fn from_write(path: &std::path::Path) -> impl Fn(WriteError) -> Self {
        move |error| match error {
            WriteError::Out(source) => Self::Transport { what: "send to", source },
            WriteError::Content(because) => {
                Self::Unsendable { path: path.to_owned(), because: because.to_owned() }
            }
        }
    }
}
