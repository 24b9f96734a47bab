//! Errors of the operator.

/// Why the installation or its certificates could not be reconciled.
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
    #[error("{count} objects of the installation cannot be applied; the first: {first}")]
    NotApplied { count: usize, first: String },
}

impl Error {
    /// Wraps the failure of a request: what it was for, such as `read Secret a`.
    pub fn cluster(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Cluster { what, source: Box::new(source) }
    }

    /// Another writer was faster: the next pass reads its result.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Cluster { source, .. }
            if matches!(&**source, kube::Error::Api(status) if status.code == 409))
    }
}
