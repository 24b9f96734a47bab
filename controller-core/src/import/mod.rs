//! What a worker's pod tells about the claim that it fills.

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

pub use report::{Exit, Report, is_on_its_way, report};
pub use start::{StartDecision, WorkerStart, decide_start, decide_worker_start, queued};
pub use writes::{
    ProxyAuthority, creation_writes, plan_proxy_copy, plan_report, plan_scratch, vddk_image_missing,
};

/// What people are told of a worker that asks for scratch space.
const SCRATCH_MESSAGE: &str = "scratch space required and none found";
const CHECKSUM_MISMATCH: &str = "checksum mismatch";

/// What to do with the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodAction {
    /// It runs, or the user wants to look at it.
    Keep,
    /// It has ended, or another one has to take its place.
    Delete,
}

/// What to write on the claim, in this order: labels, annotations, and then the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Labels to add.
    pub labels: Pairs,
    /// Annotations to change.
    pub annotations: Changes,
    /// On the claim.
    pub events: Vec<Event>,
    /// What becomes of the pod.
    pub pod: PodAction,
}

/// What follows for a claim from its worker's pod, and from the worker's scratch space where it has asked for some.
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
    let said = &mut plan.annotations;
    let restarts = restarts(present).max(report.restarts);
    said.set(present, state::POD_RESTARTS, restarts.to_string());
    said.set(present, state::POD_SCHEDULABLE, report.unschedulable.is_none().to_string());
    if let Some(because) = &report.unschedulable {
        // The scheduler knows of claims without volumes, and not whose they are.
        let lack = scratch.and_then(scratch::lack).map(|lack| format!(" {lack}"));
        let because = format!("{because}{}", lack.unwrap_or_default());
        say(said, present, false, reason::UNSCHEDULABLE, because.trim_start());
    }

    if !report.phase.is_waiting() {
        // It has begun, and so has its scratch space.
        said.0.extend(bound::cleared(claim, reason::CREATING_SCRATCH_SPACE).0);
    }

    // One that got to its end after all, by the kubelet's help, has done its work.
    if report.is_out_of_memory && report.phase != PodPhase::Succeeded {
        said.set(present, import::REQUIRES_DIRECT_IO, "true");
        say(said, present, false, reason::OOM_KILLED, "the importer ran out of memory");
        plan.pod = PodAction::Delete;
        return plan;
    }
    if meta::is_true(present, import::REQUIRES_DIRECT_IO) && goes_past_cache(pod) {
        // Applied: whoever asks for it again has run out of memory once more.
        said.set(present, import::REQUIRES_DIRECT_IO, "false");
    }
    match &report.exit {
        Some(Exit::Message(message)) if message.scratch_space_required == Some(true) => {
            said.set(present, import::REQUIRES_SCRATCH, "true");
            say(said, present, false, reason::SCRATCH_SPACE_REQUIRED, SCRATCH_MESSAGE);
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) if is_mismatch(message) => {
            let text = message.message.as_deref().unwrap_or_default();
            tell_failure(&mut plan, present, reason::CHECKSUM_ERROR, text);
            let said = &mut plan.annotations;
            said.set(present, import::FATAL_ERROR, "true");
            said.set(present, state::POD_PHASE, "Failed");
            say(said, present, false, reason::CHECKSUM_ERROR, text);
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) => {
            note(&mut plan, claim, message);
            let text = message.message.as_deref().unwrap_or_default();
            say(&mut plan.annotations, present, false, reason::COMPLETED, text);
        }
        Some(Exit::Text { reason, text, code }) => {
            if *code != 0 {
                tell_failure(&mut plan, present, reason, text);
            } else if text.contains("Preallocation applied") {
                plan.annotations.set(present, state::PREALLOCATION, "true");
            }
            say(&mut plan.annotations, present, false, reason, text);
        }
        None => {
            if let Some((running, reason, message)) = &report.running {
                say(said, present, *running, reason, message);
            }
        }
    }
    let said = &mut plan.annotations;
    said.set(present, state::POD_PHASE, report.phase.as_str());
    if report.phase == PodPhase::Succeeded {
        // A claim that is filled for another one is gone in a moment, and that other one is told of.
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

/// Whether a pod was made after another had run out of memory.
fn goes_past_cache(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    variables.any(|one| one.name == name::CACHE_MODE && one.value.as_deref() == Some("TRYNONE"))
}

/// How often it was started again, as noted; the number never falls, though pods come and go.
pub fn restarts(claim: &ObjectMeta) -> i32 {
    let noted = meta::annotation(claim, state::POD_RESTARTS);
    noted.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn is_mismatch(message: &ExitMessage) -> bool {
    message.message.as_deref().is_some_and(|text| text.contains(CHECKSUM_MISMATCH))
}

/// Notes the condition `Running`.
pub fn say(said: &mut Changes, present: &ObjectMeta, running: bool, reason: &str, message: &str) {
    said.set(present, state::RUNNING, running.to_string());
    said.set(present, state::RUNNING_REASON, reason);
    said.set(present, state::RUNNING_MESSAGE, message);
}

/// A failure is told once, however often it is looked at, and again when the worker fails again.
fn tell_failure(plan: &mut Plan, present: &ObjectMeta, reason: &str, text: &str) {
    let noted = |key| meta::annotation(present, key);
    let is_known = noted(state::RUNNING_REASON) == Some(reason)
        && noted(state::RUNNING_MESSAGE) == Some(text)
        && !plan.annotations.0.contains_key(state::POD_RESTARTS);
    if !is_known {
        plan.events.push(Event::warning(events::IMPORT_ERROR, text));
    }
}

/// What a worker that is done has learnt of the disk.
fn note(plan: &mut Plan, claim: &PersistentVolumeClaim, message: &ExitMessage) {
    let present = &claim.metadata;
    virtual_size::note(&mut plan.annotations, claim, message);
    if message.preallocation_applied == Some(true) {
        plan.annotations.set(present, state::PREALLOCATION, "true");
    }
    if let Some(info) = &message.vddk_info {
        plan.annotations.set(present, state::VDDK_HOST, info.host.as_str());
        plan.annotations.set(present, state::VDDK_VERSION, info.version.as_str());
    }
    plan.labels = added_labels(present, &message.labels);
}

/// Those of an image's labels that a claim takes: what it has already stays, and what nobody could use is left out.
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
