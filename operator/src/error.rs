//! Errors of the operator.

/// Why the certificates could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}")]
    Cluster {
        /// Such as `read Secret cdi-apiserver-signer`.
        what: String,
        source: Box<kube::Error>,
    },
    #[error("cannot create a certificate")]
    Issue(#[from] auth::IssueError),
    #[error("cannot parse a certificate that was just created")]
    Unreadable,
}

impl Error {
    /// Wraps the failure of a request: what it was for, such as `read Secret a`.
    pub fn cluster(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Cluster { what, source: Box::new(source) }
    }
}
