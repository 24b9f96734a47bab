//! When the PVC of a snapshot is deleted: its DataVolume may be in another namespace, so no garbage collector does it.

use std::time::Duration;

use api::Phase;
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::meta;
use crate::plan::{Plan, Requeue, Write};

/// A DataVolume may be deleted without an event that wakes the controller of its PVC.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

pub struct RestoredCleanupFacts<'a> {
    /// The PVC, if this controller created it.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The pod that binds it.
    pub pod: Option<&'a Pod>,
    /// See [`needs_restored`].
    pub is_needed: bool,
}

/// Whether this is the DataVolume with that UID, and has not ended.
pub fn needs_restored(volume: &DataVolume, uid: &str) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_ended =
        [Phase::Succeeded, Phase::Failed].iter().any(|ended| phase == Some(ended.as_str()));
    meta::uid(&volume.metadata) == uid && volume.metadata.deletion_timestamp.is_none() && !has_ended
}

/// Deletes the PVC and its pod once the DataVolume needs them no longer.
pub fn plan_restored_cleanup(facts: &RestoredCleanupFacts) -> Plan {
    if facts.claim.is_some() && facts.is_needed {
        return Plan::requeue(Requeue::After(CHECK_INTERVAL));
    }
    // The pod first: while it mounts the PVC, the PVC is not deleted.
    let pod = facts.pod.and_then(Write::delete);
    Plan::writes(pod.into_iter().chain(facts.claim.and_then(Write::delete)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::ObjectKind;

    #[test]
    fn restored_cleanup_decision_table() {
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({ "metadata": { "name": "a", "uid": "2" } })).unwrap();
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "b" } })).unwrap();
        let (no_claim, no_pod) = (None::<&PersistentVolumeClaim>, None::<&Pod>);
        let both = [ObjectKind::Pod, ObjectKind::PersistentVolumeClaim];
        for (case, claim, pod, is_needed, deleted, requeue) in [
            ("needed", Some(&claim), Some(&pod), true, &[][..], Requeue::After(CHECK_INTERVAL)),
            ("not needed", Some(&claim), Some(&pod), false, &both[..], Requeue::OnChange),
            ("no pod", Some(&claim), no_pod, false, &both[1..], Requeue::OnChange),
            ("orphaned pod", no_claim, Some(&pod), true, &both[..1], Requeue::OnChange),
            ("nothing", no_claim, no_pod, false, &[][..], Requeue::OnChange),
        ] {
            let plan = plan_restored_cleanup(&RestoredCleanupFacts { claim, pod, is_needed });
            let kinds: Vec<_> = plan.writes.iter().map(Write::kind).collect();
            assert_eq!((&kinds[..], plan.requeue), (deleted, requeue), "{case}");
        }
    }

    #[test]
    fn restored_is_needed_until_its_data_volume_has_ended() {
        for (uid, phase, deleted, expected) in [
            ("1", json!(null), json!(null), true),
            ("1", json!("CloneInProgress"), json!(null), true),
            ("1", json!("Succeeded"), json!(null), false),
            ("1", json!("Failed"), json!(null), false),
            ("1", json!("CloneInProgress"), json!("2026-01-01T00:00:00Z"), false),
            ("2", json!("CloneInProgress"), json!(null), false),
        ] {
            let volume: DataVolume = serde_json::from_value(json!({
                "apiVersion": "v", "kind": "k", "spec": {},
                "metadata": { "name": "disk", "uid": uid, "deletionTimestamp": deleted },
                "status": { "phase": phase },
            }))
            .unwrap();
            let case: Value = json!([uid, phase, deleted]);
            assert_eq!(needs_restored(&volume, "1"), expected, "{case}");
        }
    }
}
