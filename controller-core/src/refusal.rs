//! Writes that the API server refuses: what the response means, and how it is reported to users.

use api::annotations::state;
use api::events;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::copy;
use crate::event::Event;
use crate::meta::Changes;
use crate::object::{Key, ObjectKind, ObjectRef};

/// In the API server's message if a ResourceQuota is exceeded; other parts of the message vary.
const EXCEEDED_QUOTA: &str = "exceeded quota:";

/// The API server's response to a request that it refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub message: String,
    /// One of the causes is `NamespaceTerminating`.
    pub namespace_is_terminating: bool,
}

impl Refusal {
    /// For want of quota. Trying again helps once other objects are gone.
    pub fn is_quota(&self) -> bool {
        self.message.contains(EXCEEDED_QUOTA)
    }

    /// The same request will be refused again.
    pub fn is_final(&self) -> bool {
        matches!(self.code, 400 | 403 | 422)
    }

    /// Another client has changed the object: the next reconcile sees that.
    pub fn is_conflict(&self) -> bool {
        self.code == 409
    }

    /// The object is gone.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// `None`: there was no response.
    pub refusal: Option<Refusal>,
    /// The error with all its causes.
    pub chain: String,
}

/// What follows from a failed write, in addition to a retry.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OnRefused {
    #[default]
    Retry,
    Report(Box<RefusalReport>),
}

/// How a failed write is reported to users.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusalReport {
    pub which: ReportedFailures,
    /// Failures of writes of other kinds are only retried.
    pub kind: ObjectKind,
    /// Of the event, where the quota is not the cause.
    pub reason: &'static str,
    /// Before the cause, in the event's message.
    pub prefix: String,
    pub cause: CauseText,
    pub audience: Vec<Audience>,
    /// The PVC whose annotations report it.
    pub note: Option<(Key, PvcNote)>,
}

/// Which failures are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedFailures {
    /// All but those in a namespace that is terminating.
    All,
    /// Those for want of quota.
    Quota,
    /// Those that will be repeated.
    Final,
}

/// The text of the cause, if it is not the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseText {
    /// The error with all its causes.
    Chain,
    /// The message of the API server, or the chain if there was no response.
    Message,
}

/// An object that the event is recorded about.
#[derive(Clone, Debug, PartialEq)]
pub struct Audience {
    pub component: &'static str,
    pub about: ObjectRef,
    /// Before the message: the PVC that the event is really about.
    pub prefix: String,
}

/// What the annotations of a PVC report of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PvcNote {
    /// The pod that reads the source of its copy does not run.
    CopyNotRunning,
    /// Its worker has failed.
    WorkerFailed,
    /// It is not bound, for this reason. Kept as a warning about the PVC until it is bound.
    NotBound,
}

impl RefusalReport {
    /// A worker pod of `claim` cannot be created.
    pub fn of_worker(claim: Key, pod: &str, audience: Vec<Audience>) -> Self {
        Self {
            which: ReportedFailures::All,
            kind: ObjectKind::Pod,
            reason: events::STARTING_POD,
            prefix: format!("Error starting pod '{pod}': "),
            cause: CauseText::Chain,
            audience,
            note: Some((claim, PvcNote::WorkerFailed)),
        }
    }

    /// The event, where this failure is reported.
    pub fn event(&self, failure: &WriteFailure) -> Option<Event> {
        let refusal = failure.refusal.as_ref();
        let quota = refusal.filter(|refusal| refusal.is_quota());
        // A client that deletes a namespace needs no report about its content.
        let is_terminating = refusal.is_some_and(|refusal| refusal.namespace_is_terminating);
        let is_reported = match self.which {
            ReportedFailures::All => !is_terminating,
            ReportedFailures::Quota => quota.is_some(),
            ReportedFailures::Final => refusal.is_some_and(Refusal::is_final),
        };
        if !is_reported {
            return None;
        }
        let (reason, cause) = match (quota, self.cause, refusal) {
            (Some(quota), ..) if self.which != ReportedFailures::Final => {
                (events::EXCEEDED_QUOTA, &quota.message)
            }
            (_, CauseText::Message, Some(refusal)) => (self.reason, &refusal.message),
            (_, CauseText::Chain, _) | (_, _, None) => (self.reason, &failure.chain),
        };
        Some(Event::warning(reason, format!("{}{cause}", self.prefix)))
    }
}

impl PvcNote {
    /// What changes on the PVC, apart from [`PvcNote::NotBound`], which depends on all warnings about it.
    pub fn annotations(self, claim: &PersistentVolumeClaim, event: &Event) -> Changes {
        let present = &claim.metadata;
        match self {
            Self::CopyNotRunning => copy::not_running(present, &event.reason, &event.message),
            Self::WorkerFailed => {
                let mut changes = Changes::default();
                changes.set(present, state::RUNNING, "false");
                changes.set(present, state::RUNNING_REASON, event.reason.as_str());
                changes.set(present, state::RUNNING_MESSAGE, event.message.as_str());
                changes.set(present, state::POD_PHASE, "Failed");
                changes
            }
            Self::NotBound => Changes::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16, message: &str, namespace_is_terminating: bool) -> WriteFailure {
        let refusal = Refusal { code, message: message.into(), namespace_is_terminating };
        let chain = format!("cannot create Pod vms/a: {message}");
        WriteFailure { refusal: Some(refusal), chain }
    }

    #[test]
    fn refusal_report_decision_table() {
        const QUOTA: &str = "pods \"a\" is forbidden: exceeded quota: q";
        let quota = failure(403, QUOTA, false);
        let denied = failure(403, "denied", false);
        let busy = failure(500, "not now", false);
        let terminating = failure(403, "terminating", true);
        let lost = WriteFailure { refusal: None, chain: "no answer".into() };
        let reported =
            |reason: &str, cause: &str| Some(Event::warning(reason, format!("p: {cause}")));
        use CauseText::{Chain, Message};
        use ReportedFailures::{All, Final, Quota};
        for (case, which, cause, failure, expected) in [
            ("quota", All, Chain, &quota, reported(events::EXCEEDED_QUOTA, QUOTA)),
            ("quota", Quota, Chain, &quota, reported(events::EXCEEDED_QUOTA, QUOTA)),
            ("quota", Final, Message, &quota, reported("Reason", QUOTA)),
            ("denied", All, Chain, &denied, reported("Reason", "cannot create Pod vms/a: denied")),
            ("denied", All, Message, &denied, reported("Reason", "denied")),
            ("denied", Quota, Chain, &denied, None),
            ("denied", Final, Message, &denied, reported("Reason", "denied")),
            ("busy", All, Chain, &busy, reported("Reason", "cannot create Pod vms/a: not now")),
            ("busy", Final, Message, &busy, None),
            ("terminating", All, Chain, &terminating, None),
            ("no answer", All, Message, &lost, reported("Reason", "no answer")),
            ("no answer", Quota, Chain, &lost, None),
        ] {
            let report = RefusalReport {
                which,
                kind: ObjectKind::Pod,
                reason: "Reason",
                prefix: "p: ".into(),
                cause,
                audience: Vec::new(),
                note: None,
            };
            assert_eq!(report.event(failure), expected, "{case} {which:?}");
        }
    }
}
