//! Why an installation could not be kept.

/// What was being done. The cause is `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster does not answer, or does not want to.
    #[error("cannot {what}")]
    Cluster {
        /// Such as `read Secret a`.
        what: String,
        /// What it says.
        source: Box<kube::Error>,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Issue(#[from] auth::IssueError),
    /// What was made is not what was asked for.
    #[error("a certificate that was just made cannot be read")]
    Unreadable,
}

impl Error {
    /// The cluster failed while this was being done.
    pub fn cluster(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Cluster { what, source: Box::new(source) }
    }
}
