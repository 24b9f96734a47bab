//! What can go wrong between a plan and the cluster.

use std::io;
use std::sync::Arc;

use controller_core::refusal::{Refusal, WriteFailure};

/// Why a reconciliation failed. It is retried with back-off; the cause is `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a request, or could not be reached.
    #[error("cannot {action} the {kind} {name}")]
    Api {
        /// `create`, `change`, `delete` …
        action: &'static str,
        kind: String,
        /// `namespace/name` of the object.
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// No client for the API server can be created.
    #[error("cannot reach the cluster")]
    Client(#[source] runtime::ClusterClientError),
    /// A flag or environment variable has an invalid value.
    #[error("{name} has to be {wanted}, not {got:?}")]
    Setting {
        /// The flag or variable.
        name: &'static str,
        /// The allowed values.
        wanted: &'static str,
        /// The value.
        got: String,
    },
    /// A file or socket of this process.
    #[error("cannot {action}")]
    Local {
        /// The operation and the path or address.
        action: String,
        #[source]
        source: io::Error,
    },
    /// A DataVolume's annotation is invalid.
    #[error("the DataVolume cannot be filled")]
    PopulationMode(#[source] controller_core::operation::InvalidPopulationMode),
    /// A DataVolume that describes no valid PVC. Its condition reports why.
    #[error("the DataVolume describes no valid PVC")]
    Claim(#[source] controller_core::claim::Error),
    /// A PVC that a populator cannot fill.
    #[error("the PVC cannot be filled by a populator")]
    Populator(#[source] controller_core::populator::Error),
    /// A clone that cannot be created as requested.
    #[error("the PVC cannot be a clone target")]
    CloneRefused(#[source] controller_core::clone::Refusal),
    /// A clone that makes no progress.
    #[error("the clone makes no progress")]
    Clone(#[source] controller_core::clone::Error),
    /// A PVC and a volume that do not refer to each other.
    #[error("the source cannot be cloned")]
    NotItsVolume(#[source] controller_core::clone::NotItsVolume),
    /// A source in another namespace that requires a ReferenceGrant.
    #[error("cross-namespace with resource grants is not supported yet")]
    NoGrant,
    /// A VolumeCloneSource that names something that cannot be cloned.
    #[error("the VolumeCloneSource {name:?} names neither a PVC nor a VolumeSnapshot")]
    NoOrigin { name: String },
    /// No valid token allows this clone.
    #[error("invalid token: {origin} may not be cloned to {target}")]
    NoRight {
        /// The source of the clone.
        origin: String,
        /// `namespace/name` of the target PVC.
        target: String,
        /// What is wrong with the token.
        source: Option<Arc<auth::token::TokenError>>,
    },
    /// The key that tokens are signed with cannot be used.
    #[error("tokens can neither be signed nor verified")]
    Tokens(#[source] auth::token::TokenError),
    /// An object exists, and cannot be decoded.
    #[error("cannot read {kind} {name}: correct or delete it")]
    Undecodable {
        kind: String,
        /// `namespace/name`, or the name alone.
        name: String,
        /// The field and the reason.
        source: Box<runtime::decoded::UndecodableObject>,
    },
    /// No worker pod can be created for a PVC.
    #[error("cannot create a worker pod for the PVC")]
    Worker(#[source] controller_core::worker::Error),
    /// A StorageProfile that only an administrator can correct.
    #[error("the StorageProfile cannot be completed")]
    StorageProfile(#[source] controller_core::storage_profile::Error),
    /// Several installations compete, so that it is unknown whose settings apply.
    #[error("cannot determine the settings")]
    Installation(#[source] controller_core::config::SeveralInstallations),
    /// The source of a DataImportCron cannot be polled.
    #[error("cannot poll the source")]
    Source(#[source] controller_core::data_import_cron::PollRequestError),
    /// An ImageStream names no image.
    #[error("cannot poll the ImageStream")]
    ImageStream(#[source] controller_core::data_import_cron::image_stream::NoImage),
    /// A static volume was expected, and the PVC was bound to another one.
    #[error("DataVolume bound to unexpected PV {volume}")]
    UnexpectedVolume { volume: String },
    /// The Secret that an Ingress names does not exist, or has no certificate.
    #[error("the Secret {secret:?} of the Ingress to the upload proxy has no certificate")]
    NoCertificate { secret: String },
    /// The metrics endpoint has no certificate.
    #[error("cannot serve metrics")]
    Metrics(#[source] auth::Error),
    /// A certificate cannot be created or read.
    #[error("cannot create certificates")]
    Certificates(#[source] auth::IssueError),
    /// Another process holds the lease, or this one could not renew it.
    #[error("lost the leader-election lease")]
    LeadershipLost,
}

impl Error {
    /// Whether a clone is blocked until an object changes, unlike a failed request, which is retried.
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

    /// The failure as plans report it to users.
    pub fn to_write_failure(&self) -> WriteFailure {
        let refusal = self.refusal().map(|status| Refusal {
            code: status.code,
            message: status.message.clone(),
            namespace_is_terminating: reports_terminating_namespace(status),
        });
        WriteFailure { refusal, chain: chain(self) }
    }

    /// Whether a request for an object of this kind failed.
    pub fn is_about(&self, object_kind: &str) -> bool {
        matches!(self, Self::Api { kind, .. } if kind == object_kind)
    }

    /// The API server's status if it refused the request.
    pub fn refusal(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The API server refused, and would refuse a retry.
    pub fn is_final(&self) -> bool {
        self.refusal().is_some_and(|status| matches!(status.code, 400 | 403 | 422))
    }

    /// The message if the quota is exceeded.
    pub fn quota(&self) -> Option<&str> {
        self.refusal().map(|s| s.message.as_str()).filter(|text| text.contains("exceeded quota:"))
    }

    /// The object was changed meanwhile: the next reconciliation sees the change.
    pub fn is_conflict(&self) -> bool {
        self.refusal().is_some_and(|status| status.code == 409)
    }

    /// Nothing can be created in the namespace, as it is terminating.
    pub fn is_of_terminating_namespace(&self) -> bool {
        self.refusal().is_some_and(reports_terminating_namespace)
    }

    /// The object does not exist.
    pub fn is_gone(&self) -> bool {
        self.refusal().is_some_and(|status| status.code == 404)
    }
}

/// Whether the API server refused a request because the namespace is terminating.
pub fn reports_terminating_namespace(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// An error and all its causes in one line, for logs and for conditions.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // The library's text has all fields of the status.
        let boxed = error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
        if let Some(kube::Error::Api(status)) = error.downcast_ref().or(boxed) {
            return format!("{text}: {}", status.message);
        }
        let message = error.to_string();
        // Some libraries repeat their cause.
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
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
            action: "create",
            kind: "Pod".into(),
            name: "vms/a".into(),
            source: Box::new(kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))),
        }
    }

    #[test]
    fn chain_ends_with_the_message_of_the_api_server() {
        let text = chain(&refused(json!([])));
        assert_eq!(text, "cannot create the Pod vms/a: pods \"a\" is forbidden");
    }

    #[test]
    fn terminating_namespace_is_distinguished_from_forbidden() {
        assert!(!refused(json!([])).is_of_terminating_namespace());
        let cause = json!([{ "reason": "NamespaceTerminating", "message": "m", "field": "f" }]);
        assert!(refused(cause).is_of_terminating_namespace());
    }
}
