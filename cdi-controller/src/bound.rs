//! Why a claim is not bound: what the cluster last said of it, kept on the claim so that its DataVolume can tell.

use api::annotations::state;
use api::conditions::reason;
use api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::event::Event;
use crate::meta::{self, Changes};

/// Told of every claim that was bound to its volume by hand, and no reason for anything.
const MISBOUND: &str = "ClaimMisbound";

/// An event of a claim, as the cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What was told.
    pub event: Event,
    /// The last time it was told.
    pub at: Option<Timestamp>,
}

/// The annotations that say why a claim is not bound: the newest event of it, and of two at the same time the one with
/// more words. Those that were handed on from the claim beside it come first, as that is where things happen. Nothing is
/// said of a claim that is bound.
pub fn annotations(claim: &PersistentVolumeClaim, seen: &[Seen]) -> Changes {
    let present = &claim.metadata;
    let mut changes = Changes::default();
    match meta::claim_phase(claim) {
        "Bound" => {
            for key in [state::BOUND, state::BOUND_REASON, state::BOUND_MESSAGE] {
                changes.remove(present, key);
            }
        }
        "Pending" => {
            // Its name is written on the claim with the first news of its worker, and known before.
            let beside = meta::annotation(present, state::PRIME).map(str::to_owned);
            let prefix = handed_on(&beside.unwrap_or_else(|| names::prime(meta::uid(present))));
            let is_handed_on = |seen: &&Seen| seen.event.message.starts_with(&prefix);
            let newest = |seen: &&Seen| (seen.at, seen.event.message.len());
            let best = seen.iter().filter(is_handed_on).max_by_key(newest);
            if let Some(best) = best.or_else(|| seen.iter().max_by_key(newest)) {
                changes.set(present, state::BOUND, "false");
                changes.set(present, state::BOUND_REASON, reason::PENDING);
                changes.set(present, state::BOUND_MESSAGE, best.event.message.as_str());
            }
        }
        _ => {}
    }
    changes
}

/// The events of the claim that is filled, in the words in which its target tells them; those that it has told already are
/// left out.
pub fn handed_on_events(prime: &str, of_prime: &[Seen], of_target: &[Seen]) -> Vec<Event> {
    let is_told = |message: &str| of_target.iter().any(|seen| seen.event.message == message);
    let mut events: Vec<Event> = Vec::new();
    for Seen { event, .. } in of_prime {
        let message = format!("{}{}", handed_on(prime), event.message);
        let is_news = event.reason != MISBOUND
            && !is_told(&message)
            && events.iter().all(|event| event.message != message);
        if is_news {
            events.push(Event { message, ..event.clone() });
        }
    }
    events
}

fn handed_on(prime: &str) -> String {
    format!("[{prime}] : ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(phase: &str, annotations: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": { "name": "disk", "annotations": annotations }, "status": { "phase": phase },
        }))
        .unwrap()
    }

    fn seen(second: i64, message: &str) -> Seen {
        let at = Some(Timestamp::from_second(second).unwrap());
        Seen { event: Event::warning("ProvisioningFailed", message), at }
    }

    #[test]
    fn the_newest_word_of_the_place_where_things_happen_is_kept() {
        let said = |annotations: Value, all: &[Seen]| {
            let changes = annotations_of(&claim("Pending", annotations), all);
            changes.0.get(state::BOUND_MESSAGE).cloned().flatten().unwrap_or_default()
        };
        let all = [
            seen(1, "old"),
            seen(3, "new"),
            seen(3, "newer, longer"),
            seen(2, "[prime-1] : beside"),
        ];
        assert_eq!(said(json!({}), &all), "newer, longer");
        assert_eq!(said(json!({ state::PRIME: "prime-1" }), &all), "[prime-1] : beside");
        assert_eq!(said(json!({ state::PRIME: "prime-2" }), &all), "newer, longer");
        let mut unnamed = claim("Pending", json!({}));
        unnamed.metadata.uid = Some("1".into());
        let changes = annotations_of(&unnamed, &all);
        let message = changes.0[state::BOUND_MESSAGE].as_deref();
        assert_eq!(message, Some("[prime-1] : beside"), "its name is known before it is written");
        assert_eq!(said(json!({}), &[]), "");
    }

    fn annotations_of(claim: &PersistentVolumeClaim, all: &[Seen]) -> Changes {
        let first = annotations(claim, all);
        let mut after = claim.clone();
        after.metadata.annotations = Some(first.applied_to(&claim.metadata));
        assert!(annotations(&after, all).is_empty(), "a second look changes nothing");
        first
    }

    #[test]
    fn a_bound_claim_says_nothing() {
        let noted = json!({ state::BOUND: "false", state::BOUND_REASON: "r", state::BOUND_MESSAGE: "m", "a": "b" });
        let changes = annotations_of(&claim("Bound", noted), &[seen(1, "old")]);
        assert_eq!(changes.0.len(), 3);
        assert!(changes.0.values().all(Option::is_none));
    }

    #[test]
    fn events_are_handed_on_once() {
        let told = [seen(1, "[p] : told")];
        let mut misbound = seen(1, "misbound");
        misbound.event.reason = MISBOUND.into();
        let of_prime = [seen(1, "told"), seen(2, "news"), seen(3, "news"), misbound];
        let events = handed_on_events("p", &of_prime, &told);
        assert_eq!(events, [Event::warning("ProvisioningFailed", "[p] : news")]);
    }
}
