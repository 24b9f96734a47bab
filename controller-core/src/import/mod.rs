//! The status of a worker pod, and what it means for the PVC that the pod fills.

mod report;
pub mod stages;
mod start;
mod writes;

use api::PodPhase;
use api::annotations::{import, request, state};
use api::conditions::reason;
use api::{events, labels};
use contract::import::name;
use contract::termination::{ExitMessage, is_label_value};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::event::Event;
use crate::meta::{self, Changes, Pairs};
use crate::{bound, scratch, virtual_size};

pub use report::{Exit, Report, is_starting, report};
pub use start::{decide_start, queued};
pub use writes::{
    ProxyAuthority, creation_writes, plan_proxy_copy, plan_report, plan_scratch, vddk_image_missing,
};

/// The message of the condition `Running` while a worker needs scratch space.
const SCRATCH_MESSAGE: &str = "scratch space required and none found";
const CHECKSUM_MISMATCH: &str = "checksum mismatch";

/// What to do with the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodAction {
    /// It runs, or the user has requested that completed pods are retained.
    Keep,
    /// It has ended, or another pod has to replace it.
    Delete,
}

/// What to write to the PVC, in this order: labels, annotations, and then the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Labels to add.
    pub labels: Pairs,
    /// Annotations to change.
    pub annotations: Changes,
    /// About the PVC.
    pub events: Vec<Event>,
    pub pod: PodAction,
}

/// What follows for a PVC from the status of its worker pod. `scratch`: the worker's scratch space, if it needs any.
pub fn plan(
    claim: &PersistentVolumeClaim,
    pod: &Pod,
    scratch: Option<&PersistentVolumeClaim>,
) -> Plan {
    let present = &claim.metadata;
    let mut plan = Plan {
        labels: Pairs::new(),
        annotations: Changes::default(),
        events: Vec::new(),
        pod: PodAction::Keep,
    };
    if present.deletion_timestamp.is_some() {
        plan.pod = PodAction::Delete;
        return plan;
    }
    let report = report(pod);
    let annotations = &mut plan.annotations;
    let restarts = restarts(present).max(report.restarts);
    annotations.set(present, state::POD_RESTARTS, restarts.to_string());
    annotations.set(present, state::POD_SCHEDULABLE, report.unschedulable.is_none().to_string());
    if let Some(because) = &report.unschedulable {
        // The scheduler reports that PVCs have no volumes, but not which PVCs.
        let lack = scratch.and_then(scratch::lack).map(|lack| format!(" {lack}"));
        let because = format!("{because}{}", lack.unwrap_or_default());
        annotations.set_running(present, false, reason::UNSCHEDULABLE, because.trim_start());
    }

    if !report.phase.is_waiting() {
        // The pod has started, so its scratch space is bound.
        annotations.0.extend(bound::cleared(claim, reason::CREATING_SCRATCH_SPACE).0);
    }

    // A pod that was restarted by the kubelet and then succeeded needs no replacement.
    if report.is_out_of_memory && report.phase != PodPhase::Succeeded {
        annotations.set(present, import::REQUIRES_DIRECT_IO, "true");
        annotations.set_running(
            present,
            false,
            reason::OOM_KILLED,
            "the importer ran out of memory",
        );
        plan.pod = PodAction::Delete;
        return plan;
    }
    if meta::is_true(present, import::REQUIRES_DIRECT_IO) && bypasses_cache(pod) {
        // Applied: if this is set again, this pod has run out of memory too.
        annotations.set(present, import::REQUIRES_DIRECT_IO, "false");
    }
    match &report.exit {
        Some(Exit::Message(message)) if message.scratch_space_required == Some(true) => {
            annotations.set(present, import::REQUIRES_SCRATCH, "true");
            annotations.set_running(
                present,
                false,
                reason::SCRATCH_SPACE_REQUIRED,
                SCRATCH_MESSAGE,
            );
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) if is_mismatch(message) => {
            let text = message.message.as_deref().unwrap_or_default();
            report_failure(&mut plan, present, reason::CHECKSUM_ERROR, text);
            let annotations = &mut plan.annotations;
            annotations.set(present, import::FATAL_ERROR, "true");
            annotations.set(present, state::POD_PHASE, "Failed");
            annotations.set_running(present, false, reason::CHECKSUM_ERROR, text);
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) => {
            record_exit_message(&mut plan, claim, message);
            let text = message.message.as_deref().unwrap_or_default();
            plan.annotations.set_running(present, false, reason::COMPLETED, text);
        }
        Some(Exit::Text { reason, text, code }) => {
            if *code != 0 {
                report_failure(&mut plan, present, reason, text);
            } else if text.contains("Preallocation applied") {
                plan.annotations.set(present, state::PREALLOCATION, "true");
            }
            plan.annotations.set_running(present, false, reason, text);
        }
        None => {
            if let Some((running, reason, message)) = &report.running {
                annotations.set_running(present, *running, reason, message);
            }
        }
    }
    let annotations = &mut plan.annotations;
    annotations.set(present, state::POD_PHASE, report.phase.as_str());
    if report.phase == PodPhase::Succeeded {
        // A prime PVC is deleted soon; the event is about its target PVC.
        let is_filled_for_another =
            meta::controller(present).is_some_and(|owner| owner.kind == "PersistentVolumeClaim");
        let is_known = meta::worker_phase(present) == PodPhase::Succeeded;
        if !is_known && !is_filled_for_another {
            plan.events.push(Event::normal(events::IMPORT_SUCCEEDED, "Import Successful"));
        }
        if !meta::is_true(present, request::RETAIN_PODS) {
            plan.pod = PodAction::Delete;
        }
    }
    plan
}

/// Whether a pod bypasses the page cache, as another pod had run out of memory before.
fn bypasses_cache(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    variables.any(|one| one.name == name::CACHE_MODE && one.value.as_deref() == Some("TRYNONE"))
}

/// The recorded number of restarts. It never decreases, even if a new pod starts at zero.
pub fn restarts(claim: &ObjectMeta) -> i32 {
    let noted = meta::annotation(claim, state::POD_RESTARTS);
    noted.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_mismatch(message: &ExitMessage) -> bool {
    message.message.as_deref().is_some_and(|text| text.contains(CHECKSUM_MISMATCH))
}

/// A failure is reported in one event, and in another one each time the worker fails again.
fn report_failure(plan: &mut Plan, present: &ObjectMeta, reason: &str, text: &str) {
    let noted = |key| meta::annotation(present, key);
    let is_known = noted(state::RUNNING_REASON) == Some(reason)
        && noted(state::RUNNING_MESSAGE) == Some(text)
        && !plan.annotations.0.contains_key(state::POD_RESTARTS);
    if !is_known {
        plan.events.push(Event::warning(events::IMPORT_ERROR, text));
    }
}

/// Records what the worker reports about the disk in its termination message.
fn record_exit_message(plan: &mut Plan, claim: &PersistentVolumeClaim, message: &ExitMessage) {
    let present = &claim.metadata;
    virtual_size::record_virtual_size(&mut plan.annotations, claim, message);
    if message.preallocation_applied == Some(true) {
        plan.annotations.set(present, state::PREALLOCATION, "true");
    }
    if let Some(info) = &message.vddk_info {
        plan.annotations.set(present, state::VDDK_HOST, info.host.as_str());
        plan.annotations.set(present, state::VDDK_VERSION, info.version.as_str());
    }
    plan.labels = added_labels(present, &message.labels);
}

/// The labels of an image that are copied to the PVC. Labels of the PVC are never replaced; invalid ones are left out.
fn added_labels(present: &ObjectMeta, offered: &Pairs) -> Pairs {
    offered
        .iter()
        .filter(|(key, value)| {
            meta::label(present, key).is_none() && labels::is_copied(key) && is_label_value(value)
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests;
