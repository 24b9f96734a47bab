//! The conditions `Bound`, `Running` and `Ready` of a DataVolume.

use api::ClaimPhase;
use api::Phase;
use api::annotations::state;
use api::conditions::status::{FALSE, TRUE, UNKNOWN};
use api::conditions::{self as wire, reason};
use api::v1beta1::Condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::StatusFacts;
use crate::conditions::{ConditionState, find, set};
use crate::event::Event;
use crate::meta;
use crate::operation::PopulationMode;

/// A worker that needs scratch space has not failed.
const SCRATCH_MESSAGE: &str = "scratch space required and none found";

/// Updates the three conditions, and returns the events about their changes.
pub(super) fn update(
    conditions: &mut Vec<Condition>,
    facts: &StatusFacts,
    phase: Phase,
    now: Timestamp,
) -> Vec<Event> {
    let bound = bound(facts);
    let running = running(facts.claim);
    let ready = ready(facts, &bound, &running, phase);
    let mut events = Vec::new();
    // The blocker's event is recorded already.
    let is_reported = facts.claim.is_none() && facts.blocker.is_some();
    if set(conditions, wire::BOUND, &bound, now) && !is_reported {
        events.push(Event::normal(bound.reason.clone(), bound.message.clone()));
    }
    let text = |condition: Option<&Condition>| {
        condition.and_then(|condition| condition.message.clone()).unwrap_or_default()
    };
    let known = text(find(conditions, wire::RUNNING));
    set(conditions, wire::RUNNING, &running, now);
    set(conditions, wire::READY, &ready, now);

    // Also while scratch space is being created, which may fail.
    let being_filled = facts.population == PopulationMode::Populator && facts.prime.is_some()
        || bound.reason == reason::CREATING_SCRATCH_SPACE;
    let has_failed = ready.status == FALSE
        && running.status == FALSE
        && (bound.status == TRUE || being_filled)
        && !running.message.is_empty()
        && !running.message.contains(SCRATCH_MESSAGE)
        && running.reason != reason::COMPLETED
        && running.reason != reason::QUEUED
        && running.message != known;
    if has_failed {
        events.push(Event::warning(running.reason, running.message));
    }
    events
}

fn bound(facts: &StatusFacts) -> ConditionState {
    let Some(claim) = facts.claim else {
        return match facts.blocker {
            Some(blocker) => {
                ConditionState::new(FALSE, &*blocker.event.reason, &*blocker.event.message)
            }
            None => ConditionState::new(FALSE, reason::NOT_FOUND, "No PVC found"),
        };
    };
    let name = meta::name(&claim.metadata);
    let noted = |key| meta::annotation(&claim.metadata, key).unwrap_or_default();
    let is_noted = noted(state::BOUND) == "false";
    match meta::claim_phase(claim) {
        ClaimPhase::Bound if is_noted => {
            ConditionState::new(FALSE, noted(state::BOUND_REASON), noted(state::BOUND_MESSAGE))
        }
        ClaimPhase::Bound => ConditionState::new(TRUE, reason::BOUND, format!("PVC {name} Bound")),
        ClaimPhase::Lost => ConditionState::new(FALSE, reason::CLAIM_LOST, "Claim Lost"),
        _ if is_noted && !noted(state::BOUND_MESSAGE).is_empty() => {
            let message = format!("target PVC {name} Pending and {}", noted(state::BOUND_MESSAGE));
            ConditionState::new(FALSE, noted(state::BOUND_REASON), message)
        }
        _ => ConditionState::new(FALSE, reason::PENDING, format!("PVC {name} Pending")),
    }
}

/// From the annotations in which the controllers record the states of the worker and of a clone's source pod.
fn running(claim: Option<&PersistentVolumeClaim>) -> ConditionState {
    let noted = |key| claim.and_then(|claim| meta::annotation(&claim.metadata, key));
    let text = |key| noted(key).unwrap_or_default();
    if noted(state::POD_SCHEDULABLE) == Some("false") {
        let mut message = "Importer pod cannot be scheduled".to_owned();
        // The scheduler's message, if it is recorded already.
        let because = text(state::RUNNING_MESSAGE);
        if text(state::RUNNING_REASON) == reason::UNSCHEDULABLE && !because.is_empty() {
            message = format!("{message}: {because}");
        }
        return ConditionState::new(FALSE, reason::UNSCHEDULABLE, message);
    }
    let target = (text(state::RUNNING_REASON), text(state::RUNNING_MESSAGE));
    let source = (text(state::SOURCE_RUNNING_REASON), text(state::SOURCE_RUNNING_MESSAGE));
    match (noted(state::RUNNING), noted(state::SOURCE_RUNNING)) {
        (None, _) => ConditionState::new(FALSE, "", ""),
        (Some("true"), None | Some("true")) => ConditionState::new(TRUE, target.0, target.1),
        (Some("true"), Some("false")) => ConditionState::new(FALSE, source.0, source.1),
        (Some("false"), None | Some("true")) => ConditionState::new(FALSE, target.0, target.1),
        (Some("false"), Some("false")) => {
            ConditionState::new(FALSE, both(target.0, source.0), both(target.1, source.1))
        }
        _ => ConditionState::new(UNKNOWN, target.0, target.1),
    }
}

fn both(target: &str, source: &str) -> String {
    format!("{target} and {source}")
}

/// Upstream reports a running worker before anything else, also while the PVC is not bound, and a DataVolume without a PVC
/// with the reason and message of what is in the way.
fn ready(
    facts: &StatusFacts,
    bound: &ConditionState,
    running: &ConditionState,
    phase: Phase,
) -> ConditionState {
    if running.status == TRUE {
        return ConditionState::new(FALSE, reason::TRANSFER_RUNNING, "");
    }
    let not_ready = || match facts.blocker {
        Some(blocker) => {
            ConditionState::new(FALSE, &*blocker.event.reason, &*blocker.event.message)
        }
        None => ConditionState::new(FALSE, "", ""),
    };
    if bound.status != TRUE {
        return not_ready();
    }
    match phase {
        Phase::Succeeded => ConditionState::new(TRUE, "", ""),
        Phase::Unknown => ConditionState::new(UNKNOWN, "", ""),
        _ => not_ready(),
    }
}
