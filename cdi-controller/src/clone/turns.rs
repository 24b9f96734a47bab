//! Taking turns: a thousand clones of one image are not begun at once.
//!
//! A driver that gets a thousand requests answers each of them late, and late looks like never. So only so many clones of a
//! storage class are at work, and the others wait before they ask for anything. A place is held for some time only: what
//! cannot get on stands in nobody's way for ever.

use api::annotations::{request, state};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::facts::Temporary;
use super::target::owner_uid;
use crate::meta;

/// So long a clone holds its place, unless pods copy.
const PLACE_HELD: SignedDuration = SignedDuration::from_mins(10);

/// Whether something was made for this clone already: then it has had its turn.
pub fn has_begun(temporary: &Temporary) -> bool {
    let Temporary { claim, volume: _, told: _, source_claim, snapshot, pod } = temporary;
    claim.is_some() || source_claim.is_some() || snapshot.is_some() || pod.is_some()
}

/// How many clones to a storage class are at work: their helper claims that are not filled. `snapshots`: helper snapshots,
/// of which no claim has been made yet.
pub fn at_work<'a>(
    claims: impl Iterator<Item = &'a PersistentVolumeClaim>,
    snapshots: impl Iterator<Item = &'a ObjectMeta>,
    class: Option<&str>,
    now: Timestamp,
) -> usize {
    let is_at_work = |claim: &&PersistentVolumeClaim| {
        let metadata = &claim.metadata;
        if owner_uid(metadata).is_none()
            || metadata.deletion_timestamp.is_some()
            || claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) != class
        {
            return false;
        }
        match meta::has_annotation(metadata, request::CLONE_REQUEST) {
            true => {
                let phase = meta::annotation(metadata, state::POD_PHASE);
                phase == Some("Running") || phase != Some("Succeeded") && is_young(metadata, now)
            }
            false => {
                !matches!(meta::claim_phase(claim), "Bound" | "Lost") && is_young(metadata, now)
            }
        }
    };
    let is_taken = |snapshot: &&ObjectMeta| {
        owner_uid(snapshot).is_some()
            && snapshot.deletion_timestamp.is_none()
            && is_young(snapshot, now)
    };
    claims.filter(is_at_work).count() + snapshots.filter(is_taken).count()
}

fn is_young(metadata: &ObjectMeta, now: Timestamp) -> bool {
    let since = metadata.creation_timestamp.as_ref().map(|time| time.0);
    since.is_none_or(|since| now.duration_since(since) < PLACE_HELD)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(class: &str, phase: &str, annotations: Value, second: i64) -> PersistentVolumeClaim {
        let at = Timestamp::from_second(second).unwrap().to_string();
        serde_json::from_value(json!({
            "metadata": {
                "labels": { "cdi.kubevirt.io/OwnedByUID": "1" }, "annotations": annotations,
                "creationTimestamp": at,
            },
            "spec": { "storageClassName": class }, "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn a_place_is_held_by_what_is_not_done_and_not_for_ever() {
        let copy = |phase: &str| json!({ request::CLONE_REQUEST: "a/b", state::POD_PHASE: phase });
        let check = |claim: PersistentVolumeClaim| {
            let now = Timestamp::from_second(10_000).unwrap();
            at_work([&claim].into_iter(), [].into_iter(), Some("fast"), now) == 1
        };
        assert!(check(claim("fast", "Pending", json!({}), 9_900)));
        assert!(!check(claim("slow", "Pending", json!({}), 9_900)), "of another class");
        assert!(!check(claim("fast", "Bound", json!({}), 9_900)));
        assert!(!check(claim("fast", "Pending", json!({}), 9_300)), "for too long");
        assert!(check(claim("fast", "Bound", copy("Pending"), 9_900)));
        assert!(!check(claim("fast", "Bound", copy("Pending"), 9_300)));
        assert!(check(claim("fast", "Bound", copy("Running"), 10)), "a copy takes what it takes");
        assert!(!check(claim("fast", "Bound", copy("Succeeded"), 9_900)));
        let mut other = claim("fast", "Pending", json!({}), 9_900);
        other.metadata.labels = None;
        assert!(!check(other), "nobody's clone");
    }
}
