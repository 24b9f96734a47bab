//! What can go wrong between a plan and the cluster.

use std::io;
use std::sync::Arc;

use controller_core::refusal::{Refusal, WriteFailure};

/// Why a piece of work could not be finished. It is tried again, later and later; the cause is `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or did not answer.
    #[error("cannot {action} the {kind} {name}")]
    Api {
        /// `create`, `change`, `delete` …
        action: &'static str,
        /// Of the object.
        kind: String,
        /// `namespace/name` of the object.
        name: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// There is no way to the API server.
    #[error("cannot reach the cluster")]
    Client(#[source] runtime::ClusterClientError),
    /// A flag or variable says nothing that can be meant.
    #[error("{name} has to be {wanted}, not {got:?}")]
    Setting {
        /// Of the flag or variable.
        name: &'static str,
        /// What it may be.
        wanted: &'static str,
        /// What it is.
        got: String,
    },
    /// A file or socket of this process.
    #[error("cannot {action}")]
    Local {
        /// What was being done, to what.
        action: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A DataVolume's annotation.
    #[error("the DataVolume cannot be filled")]
    PopulationMode(#[source] controller_core::operation::InvalidPopulationMode),
    /// A DataVolume of which no claim can be made. Its condition says why.
    #[error("no claim can be made of the DataVolume")]
    Claim(#[source] controller_core::claim::Error),
    /// A claim that cannot be filled as it is.
    #[error("the claim cannot be filled by a populator")]
    Populator(#[source] controller_core::populator::Error),
    /// A clone that cannot be done as it is asked for.
    #[error("the claim cannot be cloned to")]
    CloneRefused(#[source] controller_core::clone::Refusal),
    /// A clone that does not get on.
    #[error("the clone does not get on")]
    Clone(#[source] controller_core::clone::Error),
    /// A claim and a volume that do not know each other.
    #[error("the source cannot be cloned")]
    NotItsVolume(#[source] controller_core::clone::NotItsVolume),
    /// A source that means nothing, or may not be meant.
    #[error("cross-namespace with resource grants is not supported yet")]
    NoGrant,
    /// A VolumeCloneSource that names something that cannot be cloned.
    #[error("the VolumeCloneSource {name:?} names neither a claim nor a VolumeSnapshot")]
    NoOrigin {
        /// Of the VolumeCloneSource.
        name: String,
    },
    /// Nobody has said that this may be cloned.
    #[error("invalid token: {origin} may not be cloned to {target}")]
    NoRight {
        /// What was to be cloned.
        origin: String,
        /// `namespace/name` of what it was to be cloned to.
        target: String,
        /// What is wrong with the token.
        source: Option<Arc<auth::token::TokenError>>,
    },
    /// The key that tokens are signed with cannot be used.
    #[error("tokens can neither be signed nor believed")]
    Tokens(#[source] auth::token::TokenError),
    /// An object is there, and cannot be decoded.
    #[error("cannot read {kind} {name}: correct or delete it")]
    Undecodable {
        /// Its kind.
        kind: String,
        /// `namespace/name`, or the name alone.
        name: String,
        /// The field and the reason.
        source: Box<runtime::decoded::UndecodableObject>,
    },
    /// No worker can be made for a claim.
    #[error("no worker can be made for the claim")]
    Worker(#[source] controller_core::worker::Error),
    /// A StorageProfile that only its administrator can put right.
    #[error("the StorageProfile cannot be completed")]
    StorageProfile(#[source] controller_core::storage_profile::Error),
    /// Nobody knows whose settings count.
    #[error("the settings cannot be told")]
    Installation(#[source] controller_core::config::SeveralInstallations),
    /// The source of a DataImportCron cannot be asked for its newest image.
    #[error("the source cannot be asked")]
    Source(#[source] controller_core::data_import_cron::PollRequestError),
    /// An ImageStream names no image.
    #[error("the ImageStream cannot be asked")]
    ImageStream(#[source] controller_core::data_import_cron::image_stream::NoImage),
    /// A volume that was made by hand was bound elsewhere.
    #[error("DataVolume bound to unexpected PV {volume}")]
    UnexpectedVolume {
        /// Its name.
        volume: String,
    },
    /// The Secret that an Ingress names is not there, or has no certificate.
    #[error("the Secret {secret:?} of the Ingress to the upload proxy has no certificate")]
    NoCertificate {
        /// Its name.
        secret: String,
    },
    /// The page of metrics has no certificate.
    #[error("cannot serve metrics")]
    Metrics(#[source] auth::Error),
    /// A certificate cannot be made or read.
    #[error("cannot make certificates")]
    Certificates(#[source] auth::IssueError),
    /// The lease went to somebody else, or could not be kept.
    #[error("this process leads no more")]
    LeadershipLost,
}

impl Error {
    /// Whether a clone stands still until somebody changes something, and not for want of an answer.
    pub fn is_of_clone(&self) -> bool {
        matches!(
            self,
            Self::CloneRefused(_)
                | Self::Clone(_)
                | Self::NotItsVolume(_)
                | Self::NoGrant
                | Self::NoOrigin { .. }
                | Self::NoRight { .. }
        )
    }

    /// For those who tell users of it.
    pub fn to_write_failure(&self) -> WriteFailure {
        let refusal = self.refusal().map(|status| Refusal {
            code: status.code,
            message: status.message.clone(),
            namespace_is_terminating: is_of_ending_namespace(status),
        });
        WriteFailure { refusal, chain: chain(self) }
    }

    /// Whether a request for an object of this kind failed.
    pub fn is_about(&self, object_kind: &str) -> bool {
        matches!(self, Self::Api { kind, .. } if kind == object_kind)
    }

    /// What the API server said, where it refused.
    pub fn refusal(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The API server refused, and would again.
    pub fn is_final(&self) -> bool {
        self.refusal().is_some_and(|status| matches!(status.code, 400 | 403 | 422))
    }

    /// The words of a refusal for want of quota.
    pub fn quota(&self) -> Option<&str> {
        self.refusal().map(|s| s.message.as_str()).filter(|text| text.contains("exceeded quota:"))
    }

    /// Somebody else changed the object meanwhile: the next look sees it.
    pub fn is_conflict(&self) -> bool {
        self.refusal().is_some_and(|status| status.code == 409)
    }

    /// Nothing new is taken where it belongs, for its namespace is on the way out, and all of this with it.
    pub fn is_going(&self) -> bool {
        self.refusal().is_some_and(is_of_ending_namespace)
    }

    /// The object is gone.
    pub fn is_gone(&self) -> bool {
        self.refusal().is_some_and(|status| status.code == 404)
    }
}

/// Whether the API server refuses because the namespace is on its way out.
pub fn is_of_ending_namespace(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// An error and all its causes in one line, which people read on their DataVolumes too.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // The library would add all fields of the answer to its words.
        let boxed = error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
        if let Some(kube::Error::Api(status)) = error.downcast_ref().or(boxed) {
            return format!("{text}: {}", status.message);
        }
        let said = error.to_string();
        // Some libraries repeat their cause.
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(causes: serde_json::Value) -> Error {
        let status = json!({
            "status": "Failure", "code": 403, "reason": "Forbidden", "message": "pods \"a\" is forbidden",
            "details": { "causes": causes },
        });
        Error::Api {
            action: "make",
            kind: "Pod".into(),
            name: "vms/a".into(),
            source: Box::new(kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))),
        }
    }

    #[test]
    fn people_read_the_words_of_the_api_server_and_no_more() {
        let text = chain(&refused(json!([])));
        assert_eq!(text, "cannot make the Pod vms/a: pods \"a\" is forbidden");
    }

    #[test]
    fn what_ends_with_its_namespace_is_told_from_what_is_forbidden() {
        assert!(!refused(json!([])).is_going());
        let cause = json!([{ "reason": "NamespaceTerminating", "message": "m", "field": "f" }]);
        assert!(refused(cause).is_going());
    }
}
