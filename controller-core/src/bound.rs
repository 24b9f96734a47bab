//! Why a claim is not bound: what the cluster last said of it, kept on the claim so that its DataVolume can tell.

use api::annotations::{import, state};
use api::conditions::reason;
use api::events::kind;
use api::names;
use api::{ClaimPhase, PodPhase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::components;
use crate::event::Event;
use crate::meta::{self, Changes};
use crate::object::ObjectRef;
use crate::plan::ObjectEvent;
use crate::refusal::Audience;

/// Told of every claim that was bound to its volume by hand, and no reason for anything.
const MISBOUND: &str = "ClaimMisbound";

/// What keeps a worker from its work, in the words of whoever makes workers, who takes it back too.
const OBSTACLES: [&str; 2] = [reason::AWAITING_VDDK, reason::CREATING_SCRATCH_SPACE];
const KEYS: [&str; 3] = [state::BOUND, state::BOUND_REASON, state::BOUND_MESSAGE];

/// An event of a claim, as the cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What was told.
    pub event: Event,
    /// The last time it was told.
    pub at: Option<Timestamp>,
}

/// The worker of a claim has to wait, for a reason that is an obstacle.
pub fn obstructed(claim: &PersistentVolumeClaim, reason: &str, message: &str) -> Changes {
    said(claim, reason, message)
}

/// It has to wait for that no longer. Whatever else is said of the claim stays.
pub fn cleared(claim: &PersistentVolumeClaim, reason: &str) -> Changes {
    if meta::annotation(&claim.metadata, state::BOUND_REASON) == Some(reason) {
        nothing_said(claim)
    } else {
        Changes::default()
    }
}

/// What keeps the worker of this very claim from its work: reason and message.
fn obstacle(claim: &PersistentVolumeClaim) -> Option<(&str, &str)> {
    let noted = |key| meta::annotation(&claim.metadata, key);
    let has_worker = noted(import::SOURCE).is_some() || noted(import::ENDPOINT).is_some();
    let reason = noted(state::BOUND_REASON).filter(|reason| OBSTACLES.contains(reason))?;
    let is_filled = meta::worker_phase(&claim.metadata) == PodPhase::Succeeded;
    (has_worker && !is_filled).then(|| (reason, noted(state::BOUND_MESSAGE).unwrap_or_default()))
}

fn said(claim: &PersistentVolumeClaim, reason: &str, message: &str) -> Changes {
    let mut changes = Changes::default();
    for (key, value) in KEYS.into_iter().zip(["false", reason, message]) {
        changes.set(&claim.metadata, key, value);
    }
    changes
}

fn nothing_said(claim: &PersistentVolumeClaim) -> Changes {
    let mut changes = Changes::default();
    for key in KEYS {
        changes.remove(&claim.metadata, key);
    }
    changes
}

/// The annotations that say why a claim is not bound: the newest event of it, and of two at the same time the one with
/// more words. Those that were handed on from the claim beside it come first, as that is where things happen. Nothing is
/// said of a claim that is bound. What keeps the worker from its work counts more than all that: on the claim itself, bound
/// or not, and on the claim beside it.
pub fn annotations(
    claim: &PersistentVolumeClaim,
    prime: Option<&PersistentVolumeClaim>,
    seen: &[Seen],
) -> Changes {
    let present = &claim.metadata;
    if obstacle(claim).is_some() {
        return Changes::default();
    }
    match meta::claim_phase(claim) {
        ClaimPhase::Bound => nothing_said(claim),
        ClaimPhase::Pending => {
            if let Some(prime) = prime
                && let Some((reason, message)) = obstacle(prime)
            {
                let words = format!("{}{message}", handed_on(meta::name(&prime.metadata)));
                return said(claim, reason, &words);
            }
            // Its name is written on the claim with the first news of its worker, and known before.
            let beside = meta::annotation(present, state::PRIME).map(str::to_owned);
            let prefix = handed_on(&beside.unwrap_or_else(|| names::prime_pvc(meta::uid(present))));
            let is_handed_on = |seen: &&Seen| seen.event.message.starts_with(&prefix);
            let newest = |seen: &&Seen| (seen.at, seen.event.message.len());
            let best = seen.iter().filter(is_handed_on).max_by_key(newest);
            let was_obstructed = meta::annotation(present, state::BOUND_REASON)
                .is_some_and(|reason| OBSTACLES.contains(&reason));
            match best.or_else(|| seen.iter().max_by_key(newest)) {
                Some(best) => said(claim, reason::PENDING, &best.event.message),
                None if was_obstructed => nothing_said(claim),
                None => Changes::default(),
            }
        }
        _ => Changes::default(),
    }
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

/// Who gets a warning about a PVC: the PVC, and the target that it is filled for, which users see.
pub fn audience(
    component: &'static str,
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
) -> Vec<Audience> {
    let own = Audience { component, about: ObjectRef::of(claim), prefix: String::new() };
    let of_target = target.map(|target| Audience {
        component: components::populator_of(target),
        about: ObjectRef::of(target),
        prefix: handed_on(meta::name(&claim.metadata)),
    });
    std::iter::once(own).chain(of_target).collect()
}

/// Events about a PVC, and its warnings again about the target that it is filled for. What goes well, the target's own
/// controller records.
pub fn events_about(
    component: &'static str,
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
    events: &[Event],
) -> Vec<ObjectEvent> {
    let audience = audience(component, claim, target);
    let [own, of_target @ ..] = &audience[..] else { return Vec::new() };
    let record = |audience: &Audience, event: &Event| ObjectEvent {
        component: audience.component,
        about: audience.about.clone(),
        event: Event { message: format!("{}{}", audience.prefix, event.message), ..event.clone() },
    };
    let warnings = || events.iter().filter(|event| event.kind == kind::WARNING);
    let own = events.iter().map(|event| record(own, event));
    let of_target =
        of_target.iter().flat_map(|audience| warnings().map(move |event| record(audience, event)));
    own.chain(of_target).collect()
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
        beside(claim, None, all)
    }

    fn beside(
        claim: &PersistentVolumeClaim,
        prime: Option<&PersistentVolumeClaim>,
        all: &[Seen],
    ) -> Changes {
        let first = annotations(claim, prime, all);
        let mut after = claim.clone();
        after.metadata.annotations = Some(first.applied_to(&claim.metadata));
        assert!(annotations(&after, prime, all).is_empty(), "a second look changes nothing");
        first
    }

    #[test]
    fn a_bound_claim_says_nothing() {
        let noted = json!({ state::BOUND: "false", state::BOUND_REASON: "r", state::BOUND_MESSAGE: "m", "a": "b" });
        let changes = annotations_of(&claim("Bound", noted), &[seen(1, "old")]);
        assert_eq!(changes.0.len(), 3);
        assert!(changes.0.values().all(Option::is_none));
    }

    /// Bound or not, with a worker that waits for something.
    fn waiting(name: &str, phase: &str, reason: &str) -> PersistentVolumeClaim {
        let mut claim = claim(phase, json!({ import::SOURCE: "vddk" }));
        claim.metadata.name = Some(name.into());
        let changes = obstructed(&claim, reason, "waits");
        claim.metadata.annotations = Some(changes.applied_to(&claim.metadata));
        claim
    }

    #[test]
    fn what_a_worker_waits_for_is_said_until_whoever_makes_it_takes_it_back() {
        let complaints = [seen(1, "no room")];
        for reason in OBSTACLES {
            for phase in ["Pending", "Bound"] {
                let mut claim = waiting("disk", phase, reason);
                assert!(annotations_of(&claim, &complaints).is_empty(), "{phase} {reason}");
                for other in OBSTACLES {
                    assert_eq!(cleared(&claim, other).0.len(), if other == reason { 3 } else { 0 });
                }
                // Whoever was here before may have left it on a claim that is full.
                let full = claim.metadata.annotations.as_mut().unwrap();
                full.insert(state::POD_PHASE.into(), "Succeeded".into());
                assert_eq!(annotations_of(&claim, &[]).0.len(), 3, "{phase} {reason}");
            }
            let noted = json!({ state::BOUND: "false", state::BOUND_REASON: "Pending", state::BOUND_MESSAGE: "m" });
            assert!(cleared(&claim("Pending", noted), reason).is_empty());
        }
    }

    #[test]
    fn the_target_says_what_the_worker_of_the_claim_beside_it_waits_for() {
        let reason = reason::AWAITING_VDDK;
        let prime = waiting("prime-1", "Bound", reason);
        let mut target = claim("Pending", json!({ state::PRIME: "prime-1" }));
        let complaints = [seen(1, "[prime-1] : no room")];
        let said = beside(&target, Some(&prime), &complaints);
        let values: Vec<_> = KEYS.iter().map(|key| said.0[*key].as_deref().unwrap()).collect();
        assert_eq!(values, ["false", reason, "[prime-1] : waits"]);
        target.metadata.annotations = Some(said.applied_to(&target.metadata));
        // It begins: what the cluster complains of comes back, or there is nothing to say.
        let begun = claim("Bound", json!({ import::SOURCE: "vddk" }));
        let said = beside(&target, Some(&begun), &complaints);
        assert_eq!(said.0[state::BOUND_REASON].as_deref(), Some("Pending"));
        for prime in [Some(&begun), None] {
            let said = beside(&target, prime, &[]);
            assert_eq!((said.0.len(), said.0.values().any(Option::is_some)), (3, false));
        }
    }

    #[test]
    fn only_what_went_wrong_is_told_of_the_target_too() {
        let all = [Event::normal("Fine", "good"), Event::warning("ErrImportFailed", "404")];
        let (mut prime, target) = (claim("", json!({})), claim("", json!({})));
        prime.metadata.name = Some("prime-1".into());
        let recorded = events_about(components::IMPORT, &prime, Some(&target), &all);
        let of_target = recorded.into_iter().filter(|one| one.about.key.name == "disk");
        let told: Vec<_> = of_target.map(|one| one.event).collect();
        assert_eq!(told, [Event::warning("ErrImportFailed", "[prime-1] : 404")]);
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
