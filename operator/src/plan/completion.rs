//! When an installation or upgrade is complete, what it leaves to delete, and the status that it has until then.

use serde_json::Value;

use crate::kinds::{self, Kind, ObjectId};
use crate::metadata;
use crate::plan::status::{ConditionState, Health, Phase};

/// Kinds of which an upgrade deletes the objects that no version installs any more.
pub static CLEANED_KINDS: [&Kind; 15] = [
    &kinds::CRD,
    &kinds::CLUSTER_ROLE_BINDING,
    &kinds::CLUSTER_ROLE,
    &kinds::DEPLOYMENT,
    &kinds::SERVICE,
    &kinds::ROLE_BINDING,
    &kinds::ROLE,
    &kinds::SERVICE_ACCOUNT,
    &kinds::API_SERVICE,
    &kinds::VALIDATING_WEBHOOKS,
    &kinds::MUTATING_WEBHOOKS,
    &kinds::NETWORK_POLICY,
    &kinds::POD_DISRUPTION_BUDGET,
    &kinds::INGRESS,
    &kinds::RESOURCE_QUOTA,
];

/// A ConfigMap of versions of upstream CDI that are long gone. It is deleted.
pub const DEPRECATED_CONFIG_MAP: &str = "cdi-insecure-registries";

/// Failures that a message names. More are counted.
const NAMED_FAILURES: usize = 3;
/// An API server's text may hold that of a user, and be long.
const MESSAGE_LEN_MAX: usize = 1000;

/// An object that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    pub verb: WriteVerb,
    /// Such as `Deployment cdi/cdi-apiserver`.
    pub object: String,
    pub cause: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteVerb {
    Create,
    Update,
    Delete,
}

impl WriteVerb {
    pub const fn failed_reason(self) -> &'static str {
        match self {
            Self::Create => "CreateResourceFailed",
            Self::Update => "UpdateResourceFailed",
            Self::Delete => "DeleteResourceFailed",
        }
    }

    pub const fn success_reason(self) -> &'static str {
        match self {
            Self::Create => "CreateResourceSuccess",
            Self::Update => "UpdateResourceSuccess",
            Self::Delete => "DeleteResourceSuccess",
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    const fn participle(self) -> &'static str {
        match self {
            Self::Create => "created",
            Self::Update => "updated",
            Self::Delete => "deleted",
        }
    }

    /// `Successfully created resource Deployment cdi-apiserver`
    pub fn success_message(self, id: &ObjectId) -> String {
        format!("Successfully {} resource {} {}", self.participle(), id.kind.kind, id.name)
    }
}

impl WriteFailure {
    pub fn message(&self) -> String {
        cut(format!("Failed to {} resource {}, {}", self.verb.as_str(), self.object, self.cause))
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MESSAGE_LEN_MAX {
        let end = (0..=MESSAGE_LEN_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
    text
}

/// Whether a Deployment has all its pods, and they are ready.
///
/// Upstream CDI does not compare `observedGeneration`, and so reports an upgrade as complete before the first new pod.
pub fn is_deployment_ready(deployment: &Value) -> bool {
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64);
    let desired = number("/spec/replicas").unwrap_or(1);
    let replicas = number("/status/replicas").unwrap_or(0);
    let ready = number("/status/readyReplicas").unwrap_or(0);
    let is_observed = match (number("/metadata/generation"), number("/status/observedGeneration")) {
        (Some(generation), Some(observed)) => observed >= generation,
        _ => true,
    };
    is_observed && desired == replicas && replicas == ready
}

pub struct CompletionFacts<'a> {
    pub phase: Option<Phase>,
    pub operator_version: &'a str,
    /// Objects that could not be computed, with the reason.
    pub not_rendered: &'a [String],
    pub failures: &'a [WriteFailure],
    /// Deployments of the desired set that are missing or not ready.
    pub not_ready: &'a [String],
    /// Objects that are being deleted, and are then created.
    pub awaited: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CompletionStep {
    /// Only the conditions change. `None` leaves them.
    Report(Option<Health>),
    /// Delete the objects of older versions, then report the operator's version as installed.
    Complete,
}

pub fn completion_step(facts: &CompletionFacts) -> CompletionStep {
    let CompletionFacts { phase, operator_version, not_rendered, failures, not_ready, awaited } =
        *facts;
    if !not_rendered.is_empty() {
        let message = format!("Unable to create all resources: {}", list_failures(not_rendered));
        return CompletionStep::Report(Some(Health::not_rendered(message)));
    }
    let is_complete = failures.is_empty() && not_ready.is_empty() && !awaited;
    let mut health = match phase {
        Some(Phase::Deployed) => Health::deployed(),
        Some(Phase::Upgrading) if is_complete => return CompletionStep::Complete,
        Some(Phase::Upgrading) => Health::upgrading(operator_version),
        _ if is_complete => return CompletionStep::Complete,
        Some(Phase::Deploying) => Health::deploying(),
        // After an error that is over, until the Deployments are ready.
        _ => Health::deploying(),
    };
    if let Some(failure) = failures.first() {
        let messages: Vec<_> = failures.iter().map(WriteFailure::message).collect();
        health.degraded = ConditionState::with_reason(
            true,
            failure.verb.failed_reason(),
            cut(list_failures(&messages)),
        );
    } else if phase == Some(Phase::Deployed) && (awaited || !not_ready.is_empty()) {
        health.degraded = ConditionState::plain(true);
        health.degraded.message = match not_ready {
            [] => "Objects are being replaced".to_owned(),
            names => format!("Deployments are not ready: {}", names.join(", ")),
        };
    }
    CompletionStep::Report(Some(health))
}

fn list_failures(all: &[String]) -> String {
    let mut text = all[..all.len().min(NAMED_FAILURES)].join("; ");
    if all.len() > NAMED_FAILURES {
        text.push_str(&format!("; and {} more", all.len() - NAMED_FAILURES));
    }
    cut(text)
}

/// Of `observed` objects of a kind: those that this operator created for the installation and that are not desired.
pub fn obsolete_objects<'a>(
    kind: &'static Kind,
    observed: &'a [Value],
    installation_uid: &str,
    desired: &[ObjectId],
) -> Vec<(ObjectId, &'a Value)> {
    let identify = |object: &Value| {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        ObjectId::new(kind, namespace, metadata::name(object))
    };
    observed
        .iter()
        .filter(|object| {
            metadata::label(object, metadata::CREATE_VERSION).is_some()
                && metadata::is_controlled_by(object, installation_uid)
                && !metadata::is_terminating(object)
        })
        .map(|object| (identify(object), object))
        .filter(|(id, _)| !desired.contains(id))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deployment_readiness_table() {
        for (case, deployment, expected) in [
            ("no status", json!({ "spec": { "replicas": 1 } }), false),
            (
                "default of replicas",
                json!({ "status": { "replicas": 1, "readyReplicas": 1 } }),
                true,
            ),
            ("none desired", json!({ "spec": { "replicas": 0 } }), true),
            (
                "one of two ready",
                json!({ "spec": { "replicas": 2 }, "status": { "replicas": 2, "readyReplicas": 1 } }),
                false,
            ),
            (
                "surge",
                json!({ "spec": { "replicas": 1 }, "status": { "replicas": 2, "readyReplicas": 2 } }),
                false,
            ),
            (
                "status of the previous generation",
                json!({
                    "metadata": { "generation": 2 },
                    "status": { "replicas": 1, "readyReplicas": 1, "observedGeneration": 1 },
                }),
                false,
            ),
        ] {
            assert_eq!(is_deployment_ready(&deployment), expected, "{case}");
        }
    }

    #[test]
    fn completion_decision_table() {
        let failure = WriteFailure {
            verb: WriteVerb::Update,
            object: "Service cdi/cdi-api".into(),
            cause: "no".into(),
        };
        struct Case {
            phase: Option<Phase>,
            not_rendered: Vec<String>,
            failures: Vec<WriteFailure>,
            not_ready: Vec<String>,
        }
        let table: [(&str, &dyn Fn(&mut Case), CompletionStep); 9] = [
            ("deploying, ready", &|_| (), CompletionStep::Complete),
            (
                "deploying, not ready",
                &|case| case.not_ready = vec!["cdi-apiserver".into()],
                CompletionStep::Report(Some(Health::deploying())),
            ),
            (
                "deploying, failed",
                &|case| case.failures = vec![failure.clone()],
                CompletionStep::Report(Some(Health {
                    degraded: ConditionState::with_reason(
                        true,
                        "UpdateResourceFailed",
                        "Failed to update resource Service cdi/cdi-api, no",
                    ),
                    ..Health::deploying()
                })),
            ),
            (
                "deployed",
                &|case| case.phase = Some(Phase::Deployed),
                CompletionStep::Report(Some(Health::deployed())),
            ),
            (
                "deployed, not ready",
                &|case| {
                    case.phase = Some(Phase::Deployed);
                    case.not_ready = vec!["cdi-apiserver".into(), "cdi-deployment".into()];
                },
                CompletionStep::Report(Some(Health {
                    degraded: ConditionState {
                        is_true: true,
                        reason: String::new(),
                        message: "Deployments are not ready: cdi-apiserver, cdi-deployment".into(),
                    },
                    ..Health::deployed()
                })),
            ),
            (
                "upgrading, not ready",
                &|case| {
                    case.phase = Some(Phase::Upgrading);
                    case.not_ready = vec!["cdi-apiserver".into()];
                },
                CompletionStep::Report(Some(Health::upgrading("2"))),
            ),
            ("upgraded", &|case| case.phase = Some(Phase::Upgrading), CompletionStep::Complete),
            ("error is over", &|case| case.phase = Some(Phase::Error), CompletionStep::Complete),
            (
                "bad customization",
                &|case| {
                    case.phase = Some(Phase::Deployed);
                    case.not_rendered = ["a", "b", "c", "d", "e"].map(String::from).into();
                },
                CompletionStep::Report(Some(Health::not_rendered(
                    "Unable to create all resources: a; b; c; and 2 more".into(),
                ))),
            ),
        ];
        for (name, change, expected) in table {
            let mut case = Case {
                phase: Some(Phase::Deploying),
                not_rendered: vec![],
                failures: vec![],
                not_ready: vec![],
            };
            change(&mut case);
            let step = completion_step(&CompletionFacts {
                phase: case.phase,
                operator_version: "2",
                not_rendered: &case.not_rendered,
                failures: &case.failures,
                not_ready: &case.not_ready,
                awaited: false,
            });
            assert_eq!(step, expected, "{name}");
        }
    }

    #[test]
    fn only_own_labelled_objects_become_obsolete() {
        let object = |name: &str, owner: &str, labels: Value| {
            json!({ "metadata": {
                "name": name, "labels": labels,
                "ownerReferences": [{ "uid": owner, "controller": true }],
            } })
        };
        let label = || json!({ metadata::CREATE_VERSION: "1" });
        let mut terminating = object("terminating", "cr", label());
        terminating["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
        let observed = [
            object("old", "cr", label()),
            object("desired", "cr", label()),
            object("foreign", "other", label()),
            object("unlabelled", "cr", json!({})),
            terminating,
        ];
        let desired = [ObjectId::new(&kinds::CLUSTER_ROLE, "", "desired")];
        let obsolete = obsolete_objects(&kinds::CLUSTER_ROLE, &observed, "cr", &desired);
        let names: Vec<_> = obsolete.iter().map(|(id, _)| id.name.as_str()).collect();
        assert_eq!(names, ["old"]);
    }

    #[test]
    fn long_texts_of_failures_are_cut() {
        let failure = WriteFailure {
            verb: WriteVerb::Create,
            object: "Secret a".into(),
            cause: "ü".repeat(5000),
        };
        assert!(failure.message().len() <= MESSAGE_LEN_MAX);
    }
}
