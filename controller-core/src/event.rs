//! Events, which users see.

use api::events::kind;

/// An event to record. The plan names the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// CamelCase, for programs.
    pub reason: String,
    /// A sentence, for users.
    pub message: String,
}

impl Event {
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind::NORMAL, reason: reason.into(), message: message.into() }
    }

    /// For failures and for anything that needs attention.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind::WARNING, reason: reason.into(), message: message.into() }
    }
}
