//! Errors of the program.

use std::io;
use std::path::PathBuf;

/// What failed. The cause is `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}")]
    Cluster {
        /// Such as `read DataSource ns/name`.
        what: String,
        source: Box<kube::Error>,
    },
    #[error("cannot use the token keys in Secret {secret}: {problem}")]
    Key { secret: &'static str, problem: &'static str },
    #[error("cannot sign a token")]
    Token(#[from] auth::token::TokenError),
    #[error("cannot serve TLS")]
    Certificate(#[from] auth::ReloadError),
    #[error("cannot serve TLS")]
    Tls(#[from] auth::Error),
    #[error("cannot use the CA of webhook clients in {}", path.display())]
    ClientCa {
        /// The file that `-webhook-client-ca` names.
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot listen")]
    Listen(#[source] io::Error),
    #[error("cannot read random bytes from the kernel")]
    Random(#[source] io::Error),
}

impl Error {
    /// Wraps the failure of a request: what it was for.
    pub fn cluster(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Cluster { what, source: Box::new(source) }
    }
}
