//! Why this program cannot go on, or cannot answer.

use std::io;
use std::path::PathBuf;

/// What was being done. The cause is `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster does not answer, or does not want to.
    #[error("cannot {what}")]
    Cluster {
        /// Such as `read DataSource a/b`.
        what: String,
        /// What it says.
        source: Box<kube::Error>,
    },
    /// The key that tokens are signed with.
    #[error("the Secret {secret} cannot be used: {problem}")]
    Key {
        /// Its name.
        secret: &'static str,
        /// What is missing in it.
        problem: &'static str,
    },
    /// The key is none, or does not sign.
    #[error("no token can be signed")]
    Token(#[from] auth::token::TokenError),
    /// The server's own certificate.
    #[error("cannot serve TLS")]
    Certificate(#[from] auth::ReloadError),
    /// Its settings.
    #[error("cannot serve TLS")]
    Tls(#[from] auth::Error),
    /// The CA of clients that may call webhooks.
    #[error("cannot use the CA of webhook clients in {}", path.display())]
    ClientCa {
        /// The file that `-webhook-client-ca` names.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The port.
    #[error("cannot listen")]
    Listen(#[source] io::Error),
    /// The system has no randomness.
    #[error("the system has no randomness")]
    Random(#[source] io::Error),
}

impl Error {
    /// The cluster failed while this was being done.
    pub fn cluster(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Cluster { what, source: Box::new(source) }
    }
}
