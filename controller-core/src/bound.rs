//! Why a PVC is not bound: the newest event about it, copied to its annotations, from which the DataVolume's conditions
//! are set.

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

/// Recorded for every PVC that a client bound to its volume by hand. Not a reason why a PVC is not bound.
const MISBOUND: &str = "ClaimMisbound";

/// Reasons why a worker cannot start. The controller that creates workers sets and removes them.
const BLOCKING_REASONS: [&str; 2] = [reason::AWAITING_VDDK, reason::CREATING_SCRATCH_SPACE];
const KEYS: [&str; 3] = [state::BOUND, state::BOUND_REASON, state::BOUND_MESSAGE];

/// An event about a PVC, as read from the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedEvent {
    pub event: Event,
    /// The time of its last occurrence.
    pub at: Option<Timestamp>,
}

/// Annotations of a PVC whose worker cannot start, for one of the `BLOCKING_REASONS`.
pub fn obstructed(claim: &PersistentVolumeClaim, reason: &str, message: &str) -> Changes {
    not_bound(claim, reason, message)
}

/// Removes these annotations where they have this reason. Other reasons stay.
pub fn cleared(claim: &PersistentVolumeClaim, reason: &str) -> Changes {
    if meta::annotation(&claim.metadata, state::BOUND_REASON) == Some(reason) {
        without_reason(claim)
    } else {
        Changes::default()
    }
}

/// Reason and message of what blocks the worker of this PVC.
fn blocker(claim: &PersistentVolumeClaim) -> Option<(&str, &str)> {
    let noted = |key| meta::annotation(&claim.metadata, key);
    let has_worker = noted(import::SOURCE).is_some() || noted(import::ENDPOINT).is_some();
    let reason = noted(state::BOUND_REASON).filter(|reason| BLOCKING_REASONS.contains(reason))?;
    let is_filled = meta::worker_phase(&claim.metadata) == PodPhase::Succeeded;
    (has_worker && !is_filled).then(|| (reason, noted(state::BOUND_MESSAGE).unwrap_or_default()))
}

fn not_bound(claim: &PersistentVolumeClaim, reason: &str, message: &str) -> Changes {
    let mut changes = Changes::default();
    for (key, value) in KEYS.into_iter().zip(["false", reason, message]) {
        changes.set(&claim.metadata, key, value);
    }
    changes
}

fn without_reason(claim: &PersistentVolumeClaim) -> Changes {
    let mut changes = Changes::default();
    for key in KEYS {
        changes.remove(&claim.metadata, key);
    }
    changes
}

/// The annotations that state why a PVC is not bound: its newest event, and of two at the same time the one with the
/// longer message. Events forwarded from its prime PVC come first, since the volume is provisioned for that one. A
/// bound PVC has none. What blocks the worker takes precedence over all events: on the PVC itself, bound or not, and on
/// its prime PVC.
pub fn annotations(
    claim: &PersistentVolumeClaim,
    prime: Option<&PersistentVolumeClaim>,
    seen: &[ObservedEvent],
) -> Changes {
    let present = &claim.metadata;
    if blocker(claim).is_some() {
        return Changes::default();
    }
    match meta::claim_phase(claim) {
        ClaimPhase::Bound => without_reason(claim),
        ClaimPhase::Pending => {
            if let Some(prime) = prime
                && let Some((reason, message)) = blocker(prime)
            {
                let message = format!("{}{message}", prime_prefix(meta::name(&prime.metadata)));
                return not_bound(claim, reason, &message);
            }
            // The annotation is written with the first report of the worker, but the name can be computed before.
            let prime_name = meta::annotation(present, state::PRIME).map(str::to_owned);
            let prefix =
                prime_prefix(&prime_name.unwrap_or_else(|| names::prime_pvc(meta::uid(present))));
            let is_forwarded = |seen: &&ObservedEvent| seen.event.message.starts_with(&prefix);
            let newest = |seen: &&ObservedEvent| (seen.at, seen.event.message.len());
            let best = seen.iter().filter(is_forwarded).max_by_key(newest);
            let was_obstructed = meta::annotation(present, state::BOUND_REASON)
                .is_some_and(|reason| BLOCKING_REASONS.contains(&reason));
            match best.or_else(|| seen.iter().max_by_key(newest)) {
                Some(best) => not_bound(claim, reason::PENDING, &best.event.message),
                None if was_obstructed => without_reason(claim),
                None => Changes::default(),
            }
        }
        _ => Changes::default(),
    }
}

/// The events of a prime PVC that its target does not have yet, with the prefix for the target.
pub fn forwarded_events(
    prime: &str,
    of_prime: &[ObservedEvent],
    of_target: &[ObservedEvent],
) -> Vec<Event> {
    let is_recorded = |message: &str| of_target.iter().any(|seen| seen.event.message == message);
    let mut events: Vec<Event> = Vec::new();
    for ObservedEvent { event, .. } in of_prime {
        let message = format!("{}{}", prime_prefix(prime), event.message);
        let is_new = event.reason != MISBOUND
            && !is_recorded(&message)
            && events.iter().all(|event| event.message != message);
        if is_new {
            events.push(Event { message, ..event.clone() });
        }
    }
    events
}

/// The objects that a warning about a PVC is recorded on: the PVC, and the target that it is filled for, which users
/// see.
pub fn audience(
    component: &'static str,
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
) -> Vec<Audience> {
    let own = Audience { component, about: ObjectRef::for_object(claim), prefix: String::new() };
    let of_target = target.map(|target| Audience {
        component: components::populator_of(target),
        about: ObjectRef::for_object(target),
        prefix: prime_prefix(meta::name(&claim.metadata)),
    });
    std::iter::once(own).chain(of_target).collect()
}

/// Events about a PVC, and its warnings again about the target that it is filled for. The target's own controller
/// records the normal events.
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

fn prime_prefix(prime: &str) -> String {
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

    fn seen(second: i64, message: &str) -> ObservedEvent {
        let at = Some(Timestamp::from_second(second).unwrap());
        ObservedEvent { event: Event::warning("ProvisioningFailed", message), at }
    }

    #[test]
    fn newest_event_is_written_and_events_of_the_prime_pvc_come_first() {
        let message = |annotations: Value, all: &[ObservedEvent]| {
            let changes = annotations_of(&claim("Pending", annotations), all);
            changes.0.get(state::BOUND_MESSAGE).cloned().flatten().unwrap_or_default()
        };
        let all = [
            seen(1, "old"),
            seen(3, "new"),
            seen(3, "newer, longer"),
            seen(2, "[prime-1] : forwarded"),
        ];
        assert_eq!(message(json!({}), &all), "newer, longer");
        assert_eq!(message(json!({ state::PRIME: "prime-1" }), &all), "[prime-1] : forwarded");
        assert_eq!(message(json!({ state::PRIME: "prime-2" }), &all), "newer, longer");
        let mut unnamed = claim("Pending", json!({}));
        unnamed.metadata.uid = Some("1".into());
        let changes = annotations_of(&unnamed, &all);
        let of_unnamed = changes.0[state::BOUND_MESSAGE].as_deref();
        assert_eq!(of_unnamed, Some("[prime-1] : forwarded"), "the name is computed");
        assert_eq!(message(json!({}), &[]), "");
    }

    fn annotations_of(claim: &PersistentVolumeClaim, all: &[ObservedEvent]) -> Changes {
        annotations_with(claim, None, all)
    }

    fn annotations_with(
        claim: &PersistentVolumeClaim,
        prime: Option<&PersistentVolumeClaim>,
        all: &[ObservedEvent],
    ) -> Changes {
        let first = annotations(claim, prime, all);
        let mut after = claim.clone();
        after.metadata.annotations = Some(first.applied_to(&claim.metadata));
        assert!(annotations(&after, prime, all).is_empty(), "a second plan changes nothing");
        first
    }

    #[test]
    fn bound_pvc_has_no_reason_annotations() {
        let noted = json!({ state::BOUND: "false", state::BOUND_REASON: "r", state::BOUND_MESSAGE: "m", "a": "b" });
        let changes = annotations_of(&claim("Bound", noted), &[seen(1, "old")]);
        assert_eq!(changes.0.len(), 3);
        assert!(changes.0.values().all(Option::is_none));
    }

    /// A PVC whose worker is blocked.
    fn waiting(name: &str, phase: &str, reason: &str) -> PersistentVolumeClaim {
        let mut claim = claim(phase, json!({ import::SOURCE: "vddk" }));
        claim.metadata.name = Some(name.into());
        let changes = obstructed(&claim, reason, "waits");
        claim.metadata.annotations = Some(changes.applied_to(&claim.metadata));
        claim
    }

    #[test]
    fn blocking_reason_is_kept_until_it_is_cleared() {
        let warnings = [seen(1, "no space")];
        for reason in BLOCKING_REASONS {
            for phase in ["Pending", "Bound"] {
                let mut claim = waiting("disk", phase, reason);
                assert!(annotations_of(&claim, &warnings).is_empty(), "{phase} {reason}");
                for other in BLOCKING_REASONS {
                    assert_eq!(cleared(&claim, other).0.len(), if other == reason { 3 } else { 0 });
                }
                // An earlier version may have left it on a PVC that is filled.
                let full = claim.metadata.annotations.as_mut().unwrap();
                full.insert(state::POD_PHASE.into(), "Succeeded".into());
                assert_eq!(annotations_of(&claim, &[]).0.len(), 3, "{phase} {reason}");
            }
            let noted = json!({ state::BOUND: "false", state::BOUND_REASON: "Pending", state::BOUND_MESSAGE: "m" });
            assert!(cleared(&claim("Pending", noted), reason).is_empty());
        }
    }

    #[test]
    fn target_has_the_blocking_reason_of_its_prime_pvc() {
        let reason = reason::AWAITING_VDDK;
        let prime = waiting("prime-1", "Bound", reason);
        let mut target = claim("Pending", json!({ state::PRIME: "prime-1" }));
        let warnings = [seen(1, "[prime-1] : no space")];
        let changes = annotations_with(&target, Some(&prime), &warnings);
        let values: Vec<_> = KEYS.iter().map(|key| changes.0[*key].as_deref().unwrap()).collect();
        assert_eq!(values, ["false", reason, "[prime-1] : waits"]);
        target.metadata.annotations = Some(changes.applied_to(&target.metadata));
        // The worker has started: the warnings are shown again, or the annotations are removed.
        let begun = claim("Bound", json!({ import::SOURCE: "vddk" }));
        let changes = annotations_with(&target, Some(&begun), &warnings);
        assert_eq!(changes.0[state::BOUND_REASON].as_deref(), Some("Pending"));
        for prime in [Some(&begun), None] {
            let changes = annotations_with(&target, prime, &[]);
            assert_eq!((changes.0.len(), changes.0.values().any(Option::is_some)), (3, false));
        }
    }

    #[test]
    fn only_warnings_are_recorded_on_the_target_too() {
        let all = [Event::normal("Fine", "good"), Event::warning("ErrImportFailed", "404")];
        let (mut prime, target) = (claim("", json!({})), claim("", json!({})));
        prime.metadata.name = Some("prime-1".into());
        let recorded = events_about(components::IMPORT, &prime, Some(&target), &all);
        let of_target = recorded.into_iter().filter(|one| one.about.key.name == "disk");
        let events: Vec<_> = of_target.map(|one| one.event).collect();
        assert_eq!(events, [Event::warning("ErrImportFailed", "[prime-1] : 404")]);
    }

    #[test]
    fn events_are_forwarded_once() {
        let of_target = [seen(1, "[p] : known")];
        let mut misbound = seen(1, "misbound");
        misbound.event.reason = MISBOUND.into();
        let of_prime = [seen(1, "known"), seen(2, "new"), seen(3, "new"), misbound];
        let events = forwarded_events("p", &of_prime, &of_target);
        assert_eq!(events, [Event::warning("ProvisioningFailed", "[p] : new")]);
    }
}
