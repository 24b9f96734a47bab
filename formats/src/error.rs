//! Why bytes were refused.

/// Why bytes were refused: what is wrong, and where it was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream ended in the middle of something.
    #[error("the {what} ends too early, at byte {at}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where the bytes ended.
        at: u64,
    },
}
