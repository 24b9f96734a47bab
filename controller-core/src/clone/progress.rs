//! The plans of a clone: the writes to its target, and those of a step.

use api::annotations::state;
use api::events;
use api::labels::finalizer;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use std::time::Duration;

use super::driver::ChosenClass;
use super::origin::Origin;
use super::phase::{OrphanedObject, Phase, Step, delete_orphans};
use super::plan::ClonePlan;
use super::reason::Refusal;
use super::target::{self, Progress};
use crate::bound;
use crate::components::CLONE_POPULATOR as COMPONENT;
use crate::event::Event;
use crate::meta::{self, Changes};
use crate::object::Key;
use crate::plan::{Plan, Requeue, Write, metadata_patch};
use crate::refusal::{CauseText, OnRefused, PvcNote, RefusalReport, ReportedFailures};

/// How soon a queued clone checks again whether there is capacity: a clone that ends wakes no other one.
const QUEUED_POLL: Duration = Duration::from_secs(5);

/// What is known about the PVC that is populated for the target.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepProgress<'a> {
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// Of the pods that copy, in percent.
    pub measured: Option<f64>,
}

/// The strategy is written together with the finalizer, in one write: a client that sees the decision sees that the
/// intermediate objects will be deleted. The first step needs both, and is planned once they are written.
pub fn plan_decision(
    target: &PersistentVolumeClaim,
    plan: &ClonePlan,
    class: Option<&ChosenClass>,
) -> Plan {
    let mut changes = target::decided(&target.metadata, plan);
    changes.set(&target.metadata, state::CLONE_PHASE, Phase::Pending.as_str());
    let mut finalizers = target.metadata.finalizers.clone().unwrap_or_default();
    if !target::has_finalizer(&target.metadata) {
        finalizers.push(finalizer::CLONE_POPULATOR.to_owned());
    }
    let patch = metadata_patch(&target::target_labels(target), &changes);
    let mut patch = patch.unwrap_or_else(|| json!({ "metadata": {} }));
    patch["metadata"]["finalizers"] = json!(finalizers);
    let fallback = plan.fallback().map(|why| Event::warning(why.reason(), why.to_string()));
    let chosen = class.filter(|_| matches!(plan, ClonePlan::Snapshot { .. }));
    let mut decided = Plan::writes([Write::guarded_patch(target, patch)]);
    decided.record(COMPONENT, target, fallback.into_iter().chain(chosen.map(ChosenClass::event)));
    decided.requeue = Requeue::Now;
    decided
}

/// Reports why the clone cannot be done, where the user can change the target.
pub fn plan_refusal(target: &PersistentVolumeClaim, refusal: &Refusal) -> Plan {
    let mut plan = Plan::default();
    if let Refusal::TooSmall { .. } | Refusal::ModeOfFiles = refusal {
        let message = refusal.to_string();
        let events = [
            Event::warning(events::INCOMPATIBLE_PVC, message.as_str()),
            Event::warning(events::CLONE_VALIDATION_FAILED, message),
        ];
        plan.record(COMPONENT, target, events);
    }
    plan
}

pub fn plan_without_source(target: &PersistentVolumeClaim, origin: &Origin) -> Plan {
    let mut plan = plan_progress(target, Phase::Pending, &format!("the {origin}"));
    let message = format!("The source {} doesn't exist", origin.named());
    plan.record(COMPONENT, target, [Event::warning(events::CLONE_WITHOUT_SOURCE, message)]);
    plan
}

/// The limit of running clones to the storage class is reached.
pub fn plan_queued(target: &PersistentVolumeClaim, limit: usize) -> Plan {
    let waits_for = format!("one of {limit} clones to its storage class to be done");
    let progress = Progress { is_queued: true, ..waiting(Phase::Pending, &waits_for) };
    let mut plan = written(target, &target::progressed(&target.metadata, &progress));
    plan.requeue = Requeue::After(QUEUED_POLL);
    plan
}

pub fn plan_progress(target: &PersistentVolumeClaim, phase: Phase, waits_for: &str) -> Plan {
    written(target, &target::progressed(&target.metadata, &waiting(phase, waits_for)))
}

/// The fallback is written before its consequences: a controller that is killed in between must not retry the abandoned
/// strategy. An exceeded quota is reported on the target.
pub fn plan_step(target: &PersistentVolumeClaim, step: Step, known: StepProgress) -> Plan {
    let Step { phase, writes, events, waits_for, look_again, fallback } = step;
    let fallback = fallback.map(|because| {
        target::decided(&target.metadata, &ClonePlan::Copy { because: Some(because) })
    });
    let StepProgress { claim, measured } = known;
    let progress = Progress { claim, measured, ..waiting(phase, &waits_for) };
    let progress = target::progressed(&target.metadata, &progress);
    let notes = fallback.iter().chain([&progress]);
    let mut plan = Plan::writes(notes.filter_map(|changes| Write::annotations(target, changes)));
    plan.on_refused = on_refused(target, &writes);
    plan.writes.extend(writes);
    plan.requeue = Requeue::after(look_again);
    plan.record(COMPONENT, target, events);
    plan
}

/// An error that lasts until another client changes something.
pub fn plan_stuck(target: &PersistentVolumeClaim, why: &str) -> Plan {
    written(target, &target::stuck(&target.metadata, why))
}

/// The target has its volume. `warnings`: the annotations with the reason why a PVC is not bound.
pub fn plan_bound(
    target: &PersistentVolumeClaim,
    warnings: &Changes,
    helper: Option<&PersistentVolumeClaim>,
    orphans: &[OrphanedObject],
) -> Plan {
    let progress = Progress { claim: helper, ..waiting(Phase::Succeeded, "") };
    let progress = target::progressed(&target.metadata, &progress);
    let notes = [warnings, &progress];
    Plan::writes(notes.into_iter().filter_map(|changes| Write::annotations(target, changes)))
        .then(plan_release(target, helper, orphans))
}

/// Deletes the intermediate objects, then removes the finalizer. If the user requests to retain the pods of a copy,
/// they are kept, and an event names the PVC.
pub fn plan_release(
    target: &PersistentVolumeClaim,
    helper: Option<&PersistentVolumeClaim>,
    orphans: &[OrphanedObject],
) -> Plan {
    let release = Write::remove_finalizer(target, finalizer::CLONE_POPULATOR);
    if !is_kept(target) {
        return Plan::writes(delete_orphans(orphans).into_iter().chain(release));
    }
    let name = helper.map_or("", |helper| meta::name(&helper.metadata));
    let mut plan = Plan::writes(release);
    let message = format!("PVC Prime {name} retained");
    plan.record(COMPONENT, target, [Event::warning(events::PRIME_RETAINED, message)]);
    plan
}

fn is_kept(target: &PersistentVolumeClaim) -> bool {
    target::is_retained(&target.metadata) && target.metadata.deletion_timestamp.is_none()
}

fn waiting(phase: Phase, waits_for: &str) -> Progress<'_> {
    Progress { phase, waits_for, is_queued: false, claim: None, measured: None }
}

fn written(target: &PersistentVolumeClaim, changes: &Changes) -> Plan {
    Plan::writes(Write::annotations(target, changes))
}

fn on_refused(target: &PersistentVolumeClaim, writes: &[Write]) -> OnRefused {
    let mut created = writes.iter().filter(|write| matches!(write, Write::Create(_)));
    let Some(kind) = created.next_back().map(Write::kind) else { return OnRefused::Retry };
    let metadata = &target.metadata;
    OnRefused::Report(Box::new(RefusalReport {
        which: ReportedFailures::Quota,
        kind,
        reason: events::EXCEEDED_QUOTA,
        prefix: String::new(),
        cause: CauseText::Message,
        audience: bound::audience(COMPONENT, target, None),
        // The DataVolume's condition reports it too.
        note: Some((Key::new(meta::namespace(metadata), meta::name(metadata)), PvcNote::NotBound)),
    }))
}
