//! Taking turns: a thousand clones of one image are not begun at once.
//!
//! A driver that gets a thousand requests answers each of them late, and late looks like never. So only so many clones of a
//! storage class are at work, and the others wait before they ask for anything. A place is held for some time only: what
//! cannot get on stands in nobody's way for ever. Nor does it in other namespaces ([`crate::turns`]).

use api::annotations::request;
use api::{ClaimPhase, PodPhase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::facts::Temporary;
use crate::meta;

/// So long a clone holds its place, unless pods copy.
const PLACE_HELD: SignedDuration = SignedDuration::from_mins(10);

/// Whether something was made for this clone already: then it has had its turn.
pub fn has_begun(temporary: &Temporary) -> bool {
    let Temporary { claim, volume: _, told: _, source_claim, snapshot, pod } = temporary;
    claim.is_some() || source_claim.is_some() || snapshot.is_some() || pod.is_some()
}

/// Whether a clone holds a place, by what was made for it: claims that are not filled, or a snapshot of which no claim has
/// been made yet.
pub fn is_at_work(temporary: &Temporary, now: Timestamp) -> bool {
    let Temporary { claim, volume: _, told: _, source_claim, snapshot, pod: _ } = *temporary;
    let claims = [claim, source_claim];
    if claims.iter().any(Option::is_some) {
        return claims.into_iter().flatten().any(|claim| is_filled_now(claim, now));
    }
    snapshot.is_some_and(|snapshot| !snapshot.leaving && is_young(snapshot.made_at, now))
}

fn is_filled_now(claim: &PersistentVolumeClaim, now: Timestamp) -> bool {
    let metadata = &claim.metadata;
    let made_at = metadata.creation_timestamp.as_ref().map(|time| time.0);
    if metadata.deletion_timestamp.is_some() {
        return false;
    }
    if meta::has_annotation(metadata, request::CLONE_REQUEST) {
        let phase = meta::worker_phase(metadata);
        phase == PodPhase::Running || phase != PodPhase::Succeeded && is_young(made_at, now)
    } else {
        !matches!(meta::claim_phase(claim), ClaimPhase::Bound | ClaimPhase::Lost)
            && is_young(made_at, now)
    }
}

fn is_young(made_at: Option<Timestamp>, now: Timestamp) -> bool {
    made_at.is_none_or(|made_at| now.duration_since(made_at) < PLACE_HELD)
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
    fn a_place_is_held_by_what_is_not_done_and_not_for_ever() {
        let copy = |phase: &str| json!({ request::CLONE_REQUEST: "a/b", state::POD_PHASE: phase });
        let check = |claim: PersistentVolumeClaim| {
            let of_target = Temporary { claim: Some(&claim), ..Temporary::default() };
            let of_source = Temporary { source_claim: Some(&claim), ..Temporary::default() };
            let found = is_at_work(&of_target, now());
            assert_eq!(found, is_at_work(&of_source, now()));
            found
        };
        assert!(check(claim("Pending", json!({}), 9_900)));
        assert!(!check(claim("Bound", json!({}), 9_900)));
        assert!(!check(claim("Pending", json!({}), 9_300)), "for too long");
        assert!(check(claim("Bound", copy("Pending"), 9_900)));
        assert!(!check(claim("Bound", copy("Pending"), 9_300)));
        assert!(check(claim("Bound", copy("Running"), 10)), "a copy takes what it takes");
        assert!(!check(claim("Bound", copy("Succeeded"), 9_900)));
        let mut leaving = claim("Pending", json!({}), 9_900);
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        assert!(!check(leaving));
        assert!(!is_at_work(&Temporary::default(), now()), "nothing is made yet");
    }

    #[test]
    fn a_snapshot_holds_a_place_until_there_is_a_claim_of_it() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let snapshot = |made_at, leaving| SnapshotState { made_at, leaving, ..Default::default() };
        let (filled, empty) =
            (claim("Bound", json!({}), 9_900), claim("Pending", json!({}), 9_900));
        for (snapshot, claim, expected) in [
            (snapshot(at(9_900), false), None, true),
            (snapshot(None, false), None, true),
            (snapshot(at(9_300), false), None, false),
            (snapshot(at(9_900), true), None, false),
            (snapshot(at(9_900), false), Some(&filled), false),
            (snapshot(at(9_300), false), Some(&empty), true),
        ] {
            let made = Temporary { claim, snapshot: Some(&snapshot), ..Temporary::default() };
            assert_eq!(is_at_work(&made, now()), expected, "{snapshot:?} {claim:?}");
        }
    }
}
