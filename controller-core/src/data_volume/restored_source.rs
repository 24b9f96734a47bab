//! A clone from a snapshot without a populator: the DataVolume restores the snapshot to a PVC next to it, which pods copy.
//! Nothing of another PVC with that name is read or changed.

use std::ops::ControlFlow;

use api::{ClaimPhase, events};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::clone_pvc;
use super::facts::{DataVolumeFacts, Failure, IsMarked, Lookup, RestoredSourceFacts};
use super::plan::{Planned, looked_up, write_now};
use super::pvc::PvcState;
use crate::clone::{self, Origin, RestoreFacts, RestoreStep, RestoredPvc};
use crate::components::DATA_VOLUME_SNAPSHOT_CLONE as COMPONENT;
use crate::event::Event;
use crate::object::{Key, ObjectRef};
use crate::operation::PopulationMode;
use crate::plan::{ObjectEvent, Plan, Requeue, Write};
use crate::progress::POLL;
use crate::refusal::{Audience, CauseText, OnRefused, PvcNote, RefusalReport, ReportedFailures};
use crate::{bound, config, copy, meta};

/// What is done besides the report of the status.
#[derive(Default)]
pub(super) struct RestoredPlan {
    pub plan: Plan,
    pub failure: Option<Failure>,
    /// The PVC of the DataVolume as it is after the plan, if the plan annotates it.
    pub claim: Option<PersistentVolumeClaim>,
}

/// Brings the PVC of the snapshot one write further, until pods can read it.
pub(super) fn plan_restored_source(
    facts: &DataVolumeFacts,
    population: PopulationMode,
    pvc: &PvcState,
) -> Planned<RestoredPlan> {
    let nothing = ControlFlow::Continue(RestoredPlan::default());
    let is_due =
        facts.is_clone() && population == PopulationMode::Legacy && pvc.blocker().is_none();
    let Some(target) = facts.claim.as_deref().filter(|_| is_due) else { return nothing };
    let Some(origin) = clone::restored_origin(&facts.volume, target) else { return nothing };
    if clone::is_copied(target) || is_passed_to_copy(facts, target) {
        write_now(Write::annotations(target, &clone::restore_finished(target)))?;
        return nothing;
    }
    let is_there = meta::claim_phase(target) == ClaimPhase::Bound
        && target.metadata.deletion_timestamp.is_none();
    if !is_there {
        return nothing;
    }
    // Any user of the namespace may write the annotations of the target, so they are only a request. The token of the
    // DataVolume is the permission: before it is verified, nothing of the snapshot is reported.
    if origin.namespace != meta::namespace(&facts.volume.metadata)
        && let Err(refusal) = clone_pvc::permission(facts, &origin)?
    {
        let event = Event::warning(events::CLONE_VALIDATION_FAILED, &*refusal.message);
        let changes = copy::not_running(&target.metadata, &event.reason, &event.message);
        write_now(Write::annotations(target, &changes))?;
        let failure = Failure::CloneNotAllowed(refusal.clone());
        return ControlFlow::Continue(RestoredPlan {
            plan: Plan { events: events_for(facts, target, &event), ..Plan::default() },
            failure: Some(failure),
            claim: None,
        });
    }
    let step = next_step(facts, target, &origin)?;
    let step = if step.needs_mark {
        let mark = facts.lookups.restored_mark.as_ref();
        looked_up(mark, || Lookup::RestoredMark(origin.clone()))?;
        next_step(facts, target, &origin)?
    } else {
        step
    };
    // The status is reported in the same plan, from the PVC as it is after this patch: another pass would read the snapshot
    // from the API server again.
    let changes = clone::restore_progress(target, &step);
    let mut annotated = target.clone();
    changes.apply_to(&mut annotated.metadata);
    let mut plan = Plan {
        requeue: Requeue::after(step.look_again),
        ..Plan::writes(Write::annotations(target, &changes))
    };
    if let Some(warning) = &step.warning {
        plan.record(COMPONENT, facts.volume.as_ref(), [warning.clone()]);
        plan.record(COMPONENT, target, [warning.clone()]);
    }
    if let Some(write) = step.write {
        plan.on_refused = OnRefused::Report(Box::new(refusal_report(facts, target, &write)));
        // The watch has not reported yet what has the name.
        plan.requeue_if_exists = Some(Requeue::After(POLL));
        plan.writes.push(write);
    }
    ControlFlow::Continue(RestoredPlan { plan, failure: None, claim: Some(annotated) })
}

/// Whether the PVC of the snapshot was passed to the pods that copy, and is still there. They verify its mark.
fn is_passed_to_copy(facts: &DataVolumeFacts, target: &PersistentVolumeClaim) -> bool {
    clone::has_copy_source(target)
        && facts.clone.restored.as_ref().is_some_and(|claim| {
            clone::restored_for(&claim.metadata).is_some()
                && meta::claim_phase(claim) == ClaimPhase::Bound
                && claim.metadata.deletion_timestamp.is_none()
        })
}

fn next_step(
    facts: &DataVolumeFacts,
    target: &PersistentVolumeClaim,
    origin: &Origin,
) -> Planned<RestoreStep> {
    let found = facts.lookups.restored_source.as_ref();
    let found = looked_up(found, || Lookup::RestoredSource(origin.clone()))?;
    let RestoredSourceFacts { claim, pvc_warnings, snapshot, class, profile, .. } = found;
    ControlFlow::Continue(clone::restore(&RestoreFacts {
        volume: &facts.volume.metadata,
        target,
        origin,
        snapshot: snapshot.as_ref(),
        claim: match claim {
            None => RestoredPvc::Absent,
            Some((_, IsMarked::No)) => RestoredPvc::Foreign,
            Some((claim, IsMarked::Yes)) if clone::restored_of(claim).as_ref() == Some(origin) => {
                RestoredPvc::Ours(claim)
            }
            Some((claim, IsMarked::Yes)) => RestoredPvc::Earlier(claim),
        },
        mark: facts.lookups.restored_mark.as_deref(),
        pvc_warnings,
        class: class.as_deref(),
        least: config::minimum_size(profile.as_deref()),
        pod: found.pod.as_deref(),
        image: &found.cloner_image,
        placement: found.placement.as_ref(),
        config: found.config.as_deref(),
        installation: &found.installation,
    }))
}

fn audience(facts: &DataVolumeFacts, target: &PersistentVolumeClaim) -> Vec<Audience> {
    let about = ObjectRef::for_object(facts.volume.as_ref());
    let mut audience = bound::audience(COMPONENT, target, None);
    audience.insert(0, Audience { component: COMPONENT, about, prefix: String::new() });
    audience
}

fn events_for(
    facts: &DataVolumeFacts,
    target: &PersistentVolumeClaim,
    event: &Event,
) -> Vec<ObjectEvent> {
    let record =
        |Audience { component, about, .. }| ObjectEvent { component, about, event: event.clone() };
    audience(facts, target).into_iter().map(record).collect()
}

/// How users learn that the PVC of the snapshot, or the pod that binds it, cannot be created or deleted.
fn refusal_report(
    facts: &DataVolumeFacts,
    target: &PersistentVolumeClaim,
    write: &Write,
) -> RefusalReport {
    let key = Key::new(meta::namespace(&target.metadata), meta::name(&target.metadata));
    RefusalReport {
        which: ReportedFailures::All,
        kind: write.kind(),
        reason: events::CLONE_VALIDATION_FAILED,
        prefix: String::new(),
        cause: CauseText::Chain,
        audience: audience(facts, target),
        note: Some((key, PvcNote::CopyNotRunning)),
    }
}
