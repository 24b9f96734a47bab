//! What to do with a CDI object: install, keep, reject or remove.

use serde_json::Value;

use crate::metadata;
use crate::plan::status::Phase;
use crate::plan::version::{Installer, VersionStep, version_step};

pub const FINALIZER: &str = "operator.cdi.kubevirt.io";
/// The ConfigMap whose controller is the CDI object that counts.
pub const MARKER: &str = "cdi-config";
/// On [`MARKER`]: the version that this operator installed last. A CDI object that reports another version was kept by
/// another operator in between.
pub const INSTALLED_VERSION: &str = "operator.cdi.kubevirt.io/installedVersion";

pub const UNWANTED: &str = "Reconciling to error state, unwanted CDI object";
pub const ILLEGAL_PHASE: &str = "Reconciling to error state, illegal phase";
pub const DOWNGRADED: &str = "operator downgraded, will not reconcile";

pub struct LifecycleFacts<'a> {
    pub installation: &'a Value,
    /// All CDI objects.
    pub installations: &'a [Value],
    pub marker: Option<&'a Value>,
    pub operator_version: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleStep {
    /// It is being deleted, and other controllers hold it.
    Ignore,
    /// Another CDI object counts, so this one goes without any effect.
    Release,
    Remove,
    /// A text for the condition.
    Reject(&'static str),
    /// The marker's owner is being deleted.
    AwaitOwner,
    /// Install as soon as no object of an earlier installation is left.
    Claim,
    /// The marker of an installation was deleted.
    RestoreMarker,
    /// The marker is ours, the status is not written yet.
    StartDeploying,
    StartUpgrade,
    Keep,
    /// Change nothing.
    RefuseDowngrade,
}

pub fn lifecycle_step(facts: &LifecycleFacts) -> LifecycleStep {
    let LifecycleFacts { installation, installations, marker, operator_version } = *facts;
    let phase = Phase::of_installation(installation);
    let owns_marker = marker
        .is_some_and(|marker| metadata::is_controlled_by(marker, metadata::uid(installation)));
    if metadata::is_terminating(installation) {
        return match () {
            () if !metadata::has_finalizer(installation, FINALIZER) => LifecycleStep::Ignore,
            () if !owns_marker && has_live_owner(marker, installations) => LifecycleStep::Release,
            () => LifecycleStep::Remove,
        };
    }
    let Some(marker) = marker else {
        return match phase {
            None => LifecycleStep::Claim,
            Some(_) if is_only_installed(installation, installations) => {
                LifecycleStep::RestoreMarker
            }
            Some(_) => LifecycleStep::Reject(ILLEGAL_PHASE),
        };
    };
    if !owns_marker {
        return if has_live_owner(Some(marker), installations) {
            LifecycleStep::Reject(UNWANTED)
        } else {
            LifecycleStep::AwaitOwner
        };
    }
    if metadata::is_terminating(marker) {
        return LifecycleStep::AwaitOwner;
    }
    match phase {
        None => return LifecycleStep::StartDeploying,
        Some(Phase::Deploying) => return LifecycleStep::Keep,
        Some(_) => {}
    }
    let observed = installation["status"]["observedVersion"].as_str();
    let installer = match metadata::annotation(marker, INSTALLED_VERSION) {
        Some(installed) if Some(installed) == observed => Installer::ThisOperator,
        _ => Installer::OtherOperator,
    };
    match version_step(operator_version, observed, installer) {
        VersionStep::Downgrade => LifecycleStep::RefuseDowngrade,
        VersionStep::Upgrade if phase != Some(Phase::Upgrading) => LifecycleStep::StartUpgrade,
        VersionStep::Upgrade if target_changed(installation, operator_version) => {
            LifecycleStep::StartUpgrade
        }
        VersionStep::Upgrade | VersionStep::Current => LifecycleStep::Keep,
    }
}

/// Whether this operator, or upstream's, has installed this CDI object and no other one.
fn is_only_installed(installation: &Value, installations: &[Value]) -> bool {
    let is_installed = |one: &Value| metadata::has_finalizer(one, FINALIZER);
    let others =
        installations.iter().filter(|one| metadata::uid(one) != metadata::uid(installation));
    is_installed(installation) && !others.into_iter().any(is_installed)
}

/// Whether an object of the desired set belongs to an earlier installation, which garbage collection is about to delete.
///
/// Objects without a controller are never collected, so waiting for them would not end: the installation adopts them.
/// Examples are objects of plain manifests, and CRDs that were kept.
pub fn blocks_installation(object: &Value, installation_uid: &str) -> bool {
    metadata::is_terminating(object)
        || metadata::controller(object).is_some_and(|owner| owner["uid"] != installation_uid)
}

/// The operator was replaced during an upgrade.
fn target_changed(installation: &Value, operator_version: &str) -> bool {
    installation["status"]["targetVersion"] != operator_version
}

/// Whether the marker's controller is a CDI object that exists and is not being deleted.
fn has_live_owner(marker: Option<&Value>, installations: &[Value]) -> bool {
    let owner = marker.and_then(metadata::controller).and_then(|owner| owner["uid"].as_str());
    let Some(owner) = owner else { return false };
    installations.iter().any(|one| metadata::uid(one) == owner && !metadata::is_terminating(one))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Case {
        phase: Option<&'static str>,
        observed: &'static str,
        /// UID of the marker's controller; `None` without a marker.
        marker: Option<&'static str>,
        installed: &'static str,
        is_terminating: bool,
        finalizers: Value,
        other_is_terminating: bool,
        other_is_installed: bool,
    }

    /// CDI object `a`, which is installed, and `b`.
    fn installed() -> Case {
        Case {
            phase: Some("Deployed"),
            observed: "1.1.0",
            marker: Some("a"),
            installed: "1.1.0",
            is_terminating: false,
            finalizers: json!([FINALIZER]),
            other_is_terminating: false,
            other_is_installed: false,
        }
    }

    fn step(case: &Case) -> LifecycleStep {
        let mut a = json!({
            "metadata": { "name": "a", "uid": "a", "finalizers": case.finalizers },
            "status": { "phase": case.phase, "observedVersion": case.observed },
        });
        if case.is_terminating {
            a["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
        }
        let mut b = json!({ "metadata": { "name": "b", "uid": "b" } });
        if case.other_is_installed {
            b["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        if case.other_is_terminating {
            b["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
        }
        let marker = case.marker.map(|owner| {
            json!({ "metadata": {
                "annotations": { INSTALLED_VERSION: case.installed },
                "ownerReferences": [{ "uid": owner, "controller": true }],
            } })
        });
        lifecycle_step(&LifecycleFacts {
            installation: &a.clone(),
            installations: &[a, b],
            marker: marker.as_ref(),
            operator_version: "1.1.0",
        })
    }

    #[test]
    fn lifecycle_decision_table() {
        use LifecycleStep::*;
        let table: [(&str, fn(&mut Case), LifecycleStep); 22] = [
            ("installed", |_| (), Keep),
            ("fresh", |c| (c.phase, c.marker) = (None, None), Claim),
            ("empty phase", |c| (c.phase, c.marker) = (Some(""), None), Claim),
            ("killed after the marker", |c| c.phase = None, StartDeploying),
            ("deploying", |c| (c.phase, c.observed) = (Some("Deploying"), ""), Keep),
            ("marker lost", |c| c.marker = None, RestoreMarker),
            (
                "marker lost, rejected object",
                |c| (c.phase, c.marker, c.finalizers) = (Some("Error"), None, json!([])),
                Reject(ILLEGAL_PHASE),
            ),
            (
                "marker lost, both installed",
                |c| (c.marker, c.other_is_installed) = (None, true),
                Reject(ILLEGAL_PHASE),
            ),
            ("second object", |c| (c.phase, c.marker) = (None, Some("b")), Reject(UNWANTED)),
            (
                "second object again",
                |c| (c.phase, c.marker) = (Some("Error"), Some("b")),
                Reject(UNWANTED),
            ),
            ("owner is gone", |c| (c.phase, c.marker) = (None, Some("c")), AwaitOwner),
            (
                "owner is being deleted",
                |c| (c.phase, c.marker, c.other_is_terminating) = (None, Some("b"), true),
                AwaitOwner,
            ),
            (
                "older version installed",
                |c| (c.observed, c.installed) = ("1.0.0", "1.0.0"),
                StartUpgrade,
            ),
            (
                "newer minor installed",
                |c| (c.observed, c.installed) = ("1.2.0", "1.2.0"),
                RefuseDowngrade,
            ),
            ("upstream installed", |c| c.observed = "v1.62.0", StartUpgrade),
            (
                "upstream with our number",
                |c| (c.installed, c.observed) = ("1.0.0", "1.1.0"),
                StartUpgrade,
            ),
            ("error is over", |c| c.phase = Some("Error"), Keep),
            ("deleted", |c| c.is_terminating = true, Remove),
            ("deleted, marker gone", |c| (c.is_terminating, c.marker) = (true, None), Remove),
            (
                "deleted, other counts",
                |c| (c.is_terminating, c.marker) = (true, Some("b")),
                Release,
            ),
            (
                "deleted without our finalizer",
                |c| (c.is_terminating, c.finalizers) = (true, json!(["foreign"])),
                Ignore,
            ),
            (
                "deleted, both",
                |c| {
                    (c.is_terminating, c.other_is_terminating, c.marker) = (true, true, Some("b"));
                },
                Remove,
            ),
        ];
        for (case, change, expected) in table {
            let mut facts = installed();
            change(&mut facts);
            assert_eq!(step(&facts), expected, "{case}");
        }
    }

    #[test]
    fn only_objects_that_will_be_collected_block_an_installation() {
        let owned = |uid: &str| json!({ "metadata": { "ownerReferences": [{ "uid": uid, "controller": true }] } });
        assert!(blocks_installation(&owned("old"), "a"));
        assert!(!blocks_installation(&owned("a"), "a"));
        assert!(!blocks_installation(&json!({ "metadata": {} }), "a"));
        let terminating = json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } });
        assert!(blocks_installation(&terminating, "a"));
    }

    #[test]
    fn operator_that_is_replaced_during_an_upgrade_restarts_it() {
        let mut case = installed();
        (case.phase, case.observed, case.installed) = (Some("Upgrading"), "1.0.0", "1.0.0");
        // `status.targetVersion` is missing, so it differs.
        assert_eq!(step(&case), LifecycleStep::StartUpgrade);
    }
}
