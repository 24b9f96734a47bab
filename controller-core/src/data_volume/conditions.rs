//! `Bound`, `Running` and `Ready`: what a person sees who describes a DataVolume.

use api::ClaimPhase;
use api::Phase;
use api::annotations::state;
use api::conditions::status::{FALSE, TRUE, UNKNOWN};
use api::conditions::{self as wire, reason};
use api::v1beta1::Condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::StatusFacts;
use crate::conditions::{Said, find, set};
use crate::event::Event;
use crate::meta;
use crate::operation::PopulationMode;

/// A worker that asks for scratch space has not failed.
const SCRATCH_MESSAGE: &str = "scratch space required and none found";

/// Brings the three up to date, and says what has changed in them.
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
    // The words of a blocker are told already, as what they are.
    let is_told = facts.claim.is_none() && facts.blocker.is_some();
    if set(conditions, wire::BOUND, &bound, now) && !is_told {
        events.push(Event::normal(bound.reason.clone(), bound.message.clone()));
    }
    let text = |condition: Option<&Condition>| {
        condition.and_then(|condition| condition.message.clone()).unwrap_or_default()
    };
    let known = text(find(conditions, wire::RUNNING));
    set(conditions, wire::RUNNING, &running, now);
    set(conditions, wire::READY, &ready, now);

    // While scratch space is being made too: that may be what fails.
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

fn bound(facts: &StatusFacts) -> Said {
    let Some(claim) = facts.claim else {
        return match facts.blocker {
            Some(blocker) => Said::new(FALSE, &*blocker.event.reason, &*blocker.event.message),
            None => Said::new(FALSE, reason::NOT_FOUND, "No PVC found"),
        };
    };
    let name = meta::name(&claim.metadata);
    let noted = |key| meta::annotation(&claim.metadata, key).unwrap_or_default();
    let is_noted = noted(state::BOUND) == "false";
    match meta::claim_phase(claim) {
        ClaimPhase::Bound if is_noted => {
            Said::new(FALSE, noted(state::BOUND_REASON), noted(state::BOUND_MESSAGE))
        }
        ClaimPhase::Bound => Said::new(TRUE, reason::BOUND, format!("PVC {name} Bound")),
        ClaimPhase::Lost => Said::new(FALSE, reason::CLAIM_LOST, "Claim Lost"),
        _ if is_noted && !noted(state::BOUND_MESSAGE).is_empty() => {
            let message = format!("target PVC {name} Pending and {}", noted(state::BOUND_MESSAGE));
            Said::new(FALSE, noted(state::BOUND_REASON), message)
        }
        _ => Said::new(FALSE, reason::PENDING, format!("PVC {name} Pending")),
    }
}

/// From what the workers' controllers have noted on the claim: of the worker itself, and of the one that reads the source
/// of a clone.
fn running(claim: Option<&PersistentVolumeClaim>) -> Said {
    let noted = |key| claim.and_then(|claim| meta::annotation(&claim.metadata, key));
    let text = |key| noted(key).unwrap_or_default();
    if noted(state::POD_SCHEDULABLE) == Some("false") {
        let mut message = "Importer pod cannot be scheduled".to_owned();
        // The scheduler's own words, where they are there already.
        let because = text(state::RUNNING_MESSAGE);
        if text(state::RUNNING_REASON) == reason::UNSCHEDULABLE && !because.is_empty() {
            message = format!("{message}: {because}");
        }
        return Said::new(FALSE, reason::UNSCHEDULABLE, message);
    }
    let target = (text(state::RUNNING_REASON), text(state::RUNNING_MESSAGE));
    let source = (text(state::SOURCE_RUNNING_REASON), text(state::SOURCE_RUNNING_MESSAGE));
    match (noted(state::RUNNING), noted(state::SOURCE_RUNNING)) {
        (None, _) => Said::new(FALSE, "", ""),
        (Some("true"), None | Some("true")) => Said::new(TRUE, target.0, target.1),
        (Some("true"), Some("false")) => Said::new(FALSE, source.0, source.1),
        (Some("false"), None | Some("true")) => Said::new(FALSE, target.0, target.1),
        (Some("false"), Some("false")) => {
            Said::new(FALSE, both(target.0, source.0), both(target.1, source.1))
        }
        _ => Said::new(UNKNOWN, target.0, target.1),
    }
}

fn both(target: &str, source: &str) -> String {
    format!("{target} and {source}")
}

/// Upstream reports a running worker before anything else, also while the PVC is not bound, and a DataVolume without a PVC
/// with the reason and message of what is in the way.
fn ready(facts: &StatusFacts, bound: &Said, running: &Said, phase: Phase) -> Said {
    if running.status == TRUE {
        return Said::new(FALSE, reason::TRANSFER_RUNNING, "");
    }
    let not_ready = || match facts.blocker {
        Some(blocker) => Said::new(FALSE, &*blocker.event.reason, &*blocker.event.message),
        None => Said::new(FALSE, "", ""),
    };
    if bound.status != TRUE {
        return not_ready();
    }
    match phase {
        Phase::Succeeded => Said::new(TRUE, "", ""),
        Phase::Unknown => Said::new(UNKNOWN, "", ""),
        _ => not_ready(),
    }
}
