//! What people are told.

use api::events::kind;

/// An event to record, and on which object the plan says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// One word, for programs.
    pub reason: String,
    /// A sentence, for people.
    pub message: String,
}

impl Event {
    /// Things are as they should be.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind::NORMAL, reason: reason.into(), message: message.into() }
    }

    /// Somebody should look.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind::WARNING, reason: reason.into(), message: message.into() }
    }
}
