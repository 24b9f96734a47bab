//! The one decision about a DataVolume: what to look up, or what to write.
//!
//! ```text
//! transfer, deletion, TTL ─► PVC: labels, create or adopt, annotate ─► status, events ─► sources of a filled PVC deleted
//!                              └─ each write that the next decision needs ends the plan with `Requeue::Now`
//! ```

use std::ops::ControlFlow;

use api::{ClaimPhase, Phase, PodPhase};
use jiff::Timestamp;
use serde_json::json;

use super::facts::{DataVolumeFacts, Decision, Failure, Lookup};
use super::pvc::{PvcState, component, plan_pvc};
use super::restored_source::{RestoredPlan, plan_restored_source};
use super::ttl::{TtlDecision, expire, ttl_decision};
use super::{PvcBlocker, StatusFacts, cleanup, labels, progress_poll, status};
use crate::object::ObjectRef;
use crate::operation::{Operation, PopulationMode};
use crate::plan::{Plan, Requeue, StatusPatch, Write};
use crate::refusal::Refusal;
use crate::{classes, components, meta};

/// A value, or the decision that ends the planning.
pub(super) type Planned<T> = ControlFlow<Decision, T>;

/// The next step of one DataVolume.
pub fn plan_data_volume(facts: &DataVolumeFacts, now: Timestamp) -> Decision {
    // The garbage collector deletes what it owns; only clones have objects in other namespaces.
    if facts.volume.metadata.deletion_timestamp.is_some() {
        return Decision::Execute(Plan::writes(cleanup::clone_objects(facts)));
    }
    if facts.operation == Operation::Undecided || facts.is_in_transfer {
        return Decision::Execute(Plan::default());
    }
    let population = match &facts.population {
        Ok(population) => *population,
        Err(invalid) => {
            let failure = Failure::PopulationMode(invalid.clone());
            return Decision::ExecuteAndFail(Plan::default(), failure);
        }
    };
    let ttl_seconds = facts.config.data_volume_ttl_seconds;
    let ttl = ttl_decision(&facts.volume, facts.claim.as_deref(), ttl_seconds, now);
    if ttl == TtlDecision::Expired {
        return Decision::Execute(expire(facts));
    }
    let (ControlFlow::Break(decision) | ControlFlow::Continue(decision)) =
        plan_pvc_and_report(facts, population, ttl, now);
    decision
}

/// The status after the API server has refused a write. `None`: the status does not change.
pub fn plan_after_refusal(
    facts: &DataVolumeFacts,
    refusal: Option<&Refusal>,
    now: Timestamp,
) -> Option<Decision> {
    let population = facts.population.clone().ok()?;
    let pvc = match facts.claim {
        // The refused write is on the way to a PVC of a snapshot, and the annotations of `claim` report the failure.
        Some(_) => PvcState::Settled,
        None => PvcState::blocked(PvcBlocker::refused(refusal?)?),
    };
    let restored = RestoredPlan::default();
    let planned = plan_report(facts, population, &pvc, restored, TtlDecision::Keep, now);
    let (ControlFlow::Break(decision) | ControlFlow::Continue(decision)) = planned;
    Some(decision)
}

fn plan_pvc_and_report(
    facts: &DataVolumeFacts,
    population: PopulationMode,
    ttl: TtlDecision,
    now: Timestamp,
) -> Planned<Decision> {
    let pvc = plan_pvc(facts, population)?;
    let restored = plan_restored_source(facts, population, &pvc)?;
    plan_report(facts, population, &pvc, restored, ttl, now)
}

/// Reports the status; once it reports that the PVC is filled, deletes what the PVC was filled from.
fn plan_report(
    facts: &DataVolumeFacts,
    population: PopulationMode,
    pvc: &PvcState,
    restored: RestoredPlan,
    ttl: TtlDecision,
    now: Timestamp,
) -> Planned<Decision> {
    let measured = measured_progress(facts, population)?;
    let claim = restored.claim.as_ref().or(facts.claim.as_deref());
    let claim_spec = claim.and_then(|claim| claim.spec.as_ref());
    let class = claim_spec
        .and_then(|spec| classes::of_claim(&facts.classes, spec.storage_class_name.as_deref()));
    let desired = status(
        &StatusFacts {
            claim,
            class,
            waits_for_static_volume: matches!(pvc, PvcState::WaitsForStaticVolume),
            measured,
            blocker: pvc.blocker(),
            ..status_facts(facts, population)
        },
        now,
    );
    let phase = desired.status.phase.as_deref().unwrap_or_default();
    let phase = phase.parse().unwrap_or(Phase::Unknown);

    let volume = facts.volume.as_ref();
    let RestoredPlan { mut plan, mut failure, .. } = restored;
    plan.writes.extend(labels::metadata_write(facts, population)?);
    plan.requeue = match plan.requeue {
        Requeue::OnChange if population == PopulationMode::Legacy => {
            progress_poll(volume, measured, phase)
        }
        requeue => requeue,
    };
    if let (Requeue::OnChange, TtlDecision::ExpiresIn(rest)) = (plan.requeue, ttl) {
        plan.requeue = Requeue::After(rest);
    }
    match pvc {
        PvcState::Settled | PvcState::WaitsForStaticVolume => {}
        PvcState::Blocked { failure: of_pvc, .. } => failure = failure.or(of_pvc.clone()),
        // It changes nothing in the status, so the status gives no reason to record it.
        PvcState::Unpopulated(blocker) => {
            let event = || [blocker.event.clone()];
            plan.record(components::DATA_VOLUME_EXTERNAL, volume, event());
            if let Some(claim) = facts.claim.as_deref() {
                plan.record(components::DATA_VOLUME_EXTERNAL, claim, event());
            }
        }
    }
    let has_new_status = volume.status.as_ref() != Some(&desired.status);
    if phase == Phase::Succeeded {
        let deletions = cleanup::sources(facts);
        if !has_new_status && plan.writes.is_empty() {
            plan.writes = deletions;
        } else if !deletions.is_empty() {
            // The status comes first: a client that sees a source disappear finds that the PVC is filled.
            plan.requeue = Requeue::Now;
        }
    }
    if has_new_status {
        let target = ObjectRef::for_object(volume);
        plan.status = Some(StatusPatch { target, status: json!(desired.status) });
        plan.record(component(facts), volume, desired.events);
    }
    ControlFlow::Continue(match failure {
        Some(failure) => Decision::ExecuteAndFail(plan, failure),
        None => Decision::Execute(plan),
    })
}

/// The facts of the status, except those that are known only after the PVC has been planned.
pub(super) fn status_facts(facts: &DataVolumeFacts, population: PopulationMode) -> StatusFacts<'_> {
    StatusFacts {
        volume: &facts.volume,
        operation: &facts.operation,
        population,
        claim: facts.claim.as_deref(),
        prime: facts.prime.as_deref(),
        origin: facts.clone.origin.as_ref(),
        class: None,
        config: &facts.config,
        waits_for_static_volume: false,
        measured: None,
        blocker: None,
    }
}

/// The progress of the worker that fills the PVC itself. A populator records it on the PVC.
fn measured_progress(facts: &DataVolumeFacts, population: PopulationMode) -> Planned<Option<f64>> {
    let is_running = facts
        .claim
        .as_ref()
        .is_some_and(|claim| meta::worker_phase(&claim.metadata) == PodPhase::Running);
    if population == PopulationMode::Populator || !is_running {
        return ControlFlow::Continue(None);
    }
    looked_up(facts.lookups.progress, || Lookup::Progress)
}

/// The result of a lookup, or the decision to make it.
pub(super) fn looked_up<T>(result: Option<T>, lookup: impl FnOnce() -> Lookup) -> Planned<T> {
    match result {
        Some(result) => ControlFlow::Continue(result),
        None => ControlFlow::Break(Decision::LookUp(lookup())),
    }
}

/// Ends the planning with these writes, if there are any: the next decision needs their results.
pub(super) fn write_now(writes: impl IntoIterator<Item = Write>) -> Planned<()> {
    let plan = Plan { requeue: Requeue::Now, ..Plan::writes(writes) };
    if plan.writes.is_empty() {
        return ControlFlow::Continue(());
    }
    ControlFlow::Break(Decision::Execute(plan))
}

pub(super) fn is_bound(facts: &DataVolumeFacts) -> bool {
    let claim = facts.claim.as_ref();
    claim.is_some_and(|claim| meta::claim_phase(claim) == ClaimPhase::Bound)
}
