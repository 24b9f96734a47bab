//! Why a clone stopped, and what follows.

use std::io;
use std::path::PathBuf;

use clonestream::extents::WriteError;

/// Why a clone stopped: what was being done, to what. The cause is `source()`, never repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source cannot be read.
    #[error("cannot {what} {}", path.display())]
    Source {
        /// What was tried.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The source holds what cannot be cloned, or changes while it is.
    #[error("cannot clone {}: {because}", path.display())]
    Unsendable {
        /// What.
        path: PathBuf,
        /// Why not.
        because: String,
    },
    /// Our certificate, its key or the server's authority is none.
    #[error("cannot use the {what}")]
    Tls {
        /// Which.
        what: &'static str,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nobody is there.
    #[error("cannot connect to {address}")]
    Connect {
        /// Host and port.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke.
    #[error("cannot {what} the upload server")]
    Transport {
        /// What was tried.
        what: &'static str,
        /// What happened.
        source: io::Error,
    },
    /// The server does not take it.
    #[error("Unexpected status code {status}{said}")]
    Status {
        /// What it answered.
        status: u16,
        /// And its words, behind a colon, or nothing.
        said: String,
    },
    /// The target in this pod cannot be written.
    #[error("cannot {what} {}", path.display())]
    Target {
        /// What was tried.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The same, where the pipeline says it.
    #[error(transparent)]
    Disk(#[from] pipeline::Error),
    /// The sandbox is required, and not whole.
    #[error(transparent)]
    Sandbox(#[from] runtime::SandboxMissing),
    /// There is no memory, or no thread.
    #[error("cannot start a worker")]
    Worker(#[source] io::Error),
}

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the server how far it is, and go on.
    TryAgain,
    /// Nothing helps.
    Fail,
}

impl Error {
    pub(crate) fn next(&self) -> Next {
        match self {
            Self::Connect { .. } | Self::Transport { .. } => Next::TryAgain,
            // The server is busy with what is left of an earlier connection, or on its way out.
            Self::Status { status: 502..=504, .. } => Next::TryAgain,
            Self::Source { .. }
            | Self::Unsendable { .. }
            | Self::Tls { .. }
            | Self::Status { .. }
            | Self::Target { .. }
            | Self::Disk(_)
            | Self::Sandbox(_)
            | Self::Worker(_) => Next::Fail,
        }
    }

    pub(crate) fn sending(path: &std::path::Path) -> impl Fn(WriteError) -> Self {
        move |error| match error {
            WriteError::Out(source) => Self::Transport { what: "send to", source },
            WriteError::Content(because) => {
                Self::Unsendable { path: path.to_owned(), because: because.to_owned() }
            }
        }
    }
}

/// An error and all its causes, as one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
