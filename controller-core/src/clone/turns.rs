//! Concurrency limit of clones.
//!
//! A driver with a thousand requests at once answers each of them late, possibly after the timeout. So only a limited
//! number of clones to a storage class is active, and the others wait before they create objects. A clone holds its
//! slot for a limited time, so a clone without progress does not block others for ever. Slots are distributed fairly
//! between namespaces by [`crate::turns`].

use api::annotations::request;
use api::{ClaimPhase, PodPhase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::facts::IntermediateObjects;
use crate::meta;

/// How long a clone holds its slot, unless pods copy.
const SLOT_HELD: SignedDuration = SignedDuration::from_mins(10);

/// Whether objects were created for this clone: then it has been admitted.
pub fn has_begun(temporary: &IntermediateObjects) -> bool {
    let IntermediateObjects { claim, volume: _, pvc_warnings: _, source_claim, snapshot, pod } =
        temporary;
    claim.is_some() || source_claim.is_some() || snapshot.is_some() || pod.is_some()
}

/// Whether a clone holds a slot, by its objects: PVCs that are not populated, or a snapshot from which no PVC was
/// restored yet.
pub fn is_active(temporary: &IntermediateObjects, now: Timestamp) -> bool {
    let IntermediateObjects { claim, volume: _, pvc_warnings: _, source_claim, snapshot, pod: _ } =
        *temporary;
    let claims = [claim, source_claim];
    if claims.iter().any(Option::is_some) {
        return claims.into_iter().flatten().any(|claim| is_being_populated(claim, now));
    }
    snapshot.is_some_and(|snapshot| !snapshot.is_terminating && is_young(snapshot.created_at, now))
}

fn is_being_populated(claim: &PersistentVolumeClaim, now: Timestamp) -> bool {
    let metadata = &claim.metadata;
    let created_at = metadata.creation_timestamp.as_ref().map(|time| time.0);
    if metadata.deletion_timestamp.is_some() {
        return false;
    }
    if meta::has_annotation(metadata, request::CLONE_REQUEST) {
        let phase = meta::worker_phase(metadata);
        phase == PodPhase::Running || phase != PodPhase::Succeeded && is_young(created_at, now)
    } else {
        !matches!(meta::claim_phase(claim), ClaimPhase::Bound | ClaimPhase::Lost)
            && is_young(created_at, now)
    }
}

fn is_young(created_at: Option<Timestamp>, now: Timestamp) -> bool {
    created_at.is_none_or(|created_at| now.duration_since(created_at) < SLOT_HELD)
}

#[cfg(test)]
mod tests {
    use api::annotations::state;
    use serde_json::{Value, json};

    use super::*;
    use crate::clone::SnapshotState;

    fn claim(phase: &str, annotations: Value, second: i64) -> PersistentVolumeClaim {
        let at = Timestamp::from_second(second).unwrap().to_string();
        serde_json::from_value(json!({
            "metadata": { "annotations": annotations, "creationTimestamp": at },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    fn now() -> Timestamp {
        Timestamp::from_second(10_000).unwrap()
    }

    #[test]
    fn slot_is_held_by_an_unfinished_clone_for_a_limited_time() {
        let copy = |phase: &str| json!({ request::CLONE_REQUEST: "a/b", state::POD_PHASE: phase });
        let check = |claim: PersistentVolumeClaim| {
            let of_target =
                IntermediateObjects { claim: Some(&claim), ..IntermediateObjects::default() };
            let of_source = IntermediateObjects {
                source_claim: Some(&claim),
                ..IntermediateObjects::default()
            };
            let found = is_active(&of_target, now());
            assert_eq!(found, is_active(&of_source, now()));
            found
        };
        assert!(check(claim("Pending", json!({}), 9_900)));
        assert!(!check(claim("Bound", json!({}), 9_900)));
        assert!(!check(claim("Pending", json!({}), 9_300)), "for too long");
        assert!(check(claim("Bound", copy("Pending"), 9_900)));
        assert!(!check(claim("Bound", copy("Pending"), 9_300)));
        assert!(check(claim("Bound", copy("Running"), 10)), "a running copy has no limit");
        assert!(!check(claim("Bound", copy("Succeeded"), 9_900)));
        let mut terminating = claim("Pending", json!({}), 9_900);
        terminating.metadata.deletion_timestamp = terminating.metadata.creation_timestamp.clone();
        assert!(!check(terminating));
        assert!(!is_active(&IntermediateObjects::default(), now()), "no object is created yet");
    }

    #[test]
    fn snapshot_holds_a_slot_until_a_pvc_is_created_from_it() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let snapshot = |created_at, is_terminating| SnapshotState {
            created_at,
            is_terminating,
            ..Default::default()
        };
        let (populated, unpopulated) =
            (claim("Bound", json!({}), 9_900), claim("Pending", json!({}), 9_900));
        for (snapshot, claim, expected) in [
            (snapshot(at(9_900), false), None, true),
            (snapshot(None, false), None, true),
            (snapshot(at(9_300), false), None, false),
            (snapshot(at(9_900), true), None, false),
            (snapshot(at(9_900), false), Some(&populated), false),
            (snapshot(at(9_300), false), Some(&unpopulated), true),
        ] {
            let objects = IntermediateObjects {
                claim,
                snapshot: Some(&snapshot),
                ..IntermediateObjects::default()
            };
            assert_eq!(is_active(&objects, now()), expected, "{snapshot:?} {claim:?}");
        }
    }
}
