//! PVCs that are uploaded to: an upload server for each, its Service, and its status.

mod pod;

use std::time::Duration;

use api::PodPhase;
use api::annotations::{import, request, state};
use api::conditions::reason;
use api::{events, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::clone::{self, Origin};
use crate::components::UPLOAD;
use crate::copy;
use crate::event::Event;
use crate::import::{Exit, PodAction, report};
use crate::meta::{self, Changes};
use crate::plan::Write;
use crate::virtual_size;
use crate::worker::{StartDecision, WorkerStart, decide_worker_start};

pub use pod::{Facts, hosts, pod, secret, service};

/// The client that an upload server accepts: the upload proxy.
pub const CLIENT_NAME: &str = contract::upload::PROXY_CLIENT_NAME;

/// Message of an upload server that requests scratch space.
const SCRATCH_MESSAGE: &str = "scratch space required and none found";

/// Name of a PVC's upload server. Always computed: the annotation with the name is for users, and a controller that
/// read it would delete whichever pod a user has named there.
pub fn pod_name(claim: &PersistentVolumeClaim) -> String {
    names::upload_server(meta::name(&claim.metadata))
}

/// Name of the Secret of one server. `suffix` differs for each pod.
pub fn secret_name(claim: &PersistentVolumeClaim, suffix: &str) -> String {
    format!("{}-upload-server-{suffix}", meta::uid(&claim.metadata))
}

/// Name of the Service, by which the proxy finds the server of a PVC.
pub fn service_name(claim: &PersistentVolumeClaim) -> String {
    names::label_value(&names::upload_server(meta::name(&claim.metadata)))
}

/// What to do for a PVC without a server. `pods`: all that mount it.
pub fn decide_start(
    claim: &PersistentVolumeClaim,
    pods: &[Pod],
    honors_waiting: bool,
) -> StartDecision {
    let metadata = &claim.metadata;
    let is_done = meta::worker_phase(metadata) == PodPhase::Succeeded;
    if is_done
        || metadata.deletion_timestamp.is_some()
        || !is_wanted(metadata)
        || meta::has_annotation(metadata, request::EXTERNAL_POPULATION)
    {
        return StartDecision::Never;
    }
    let name = pod_name(claim);
    let mut changes = Changes::default();
    changes.set(metadata, state::UPLOAD_POD_NAME, name.as_str());
    if let Some(source) = Origin::requested(metadata) {
        changes.set(metadata, state::UPLOAD_CLIENT_NAME, copy::client_name(metadata, &source));
    }
    let worker = WorkerStart { pod_name: &name, in_use: events::UPLOAD_TARGET_IN_USE, changes };
    decide_worker_start(claim, pods, honors_waiting, worker)
}

/// What to write to the PVC, and the action on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Annotations to change.
    pub annotations: Changes,
    /// On the PVC.
    pub events: Vec<Event>,
    /// Action on the pod. Its Service is deleted with the PVC, or when the upload is complete.
    pub pod: PodAction,
    /// The upload is complete or no longer requested.
    pub is_over: bool,
}

/// What follows for a PVC from the status of its upload server.
pub fn plan(claim: &PersistentVolumeClaim, pod: &Pod) -> Plan {
    let present = &claim.metadata;
    let mut plan = Plan {
        annotations: Changes::default(),
        events: Vec::new(),
        pod: PodAction::Keep,
        is_over: false,
    };
    if present.deletion_timestamp.is_some() || !is_wanted(present) {
        plan.pod = PodAction::Delete;
        plan.is_over = true;
        return plan;
    }
    let report = report(pod);
    let changes = &mut plan.annotations;
    let noted = meta::annotation(present, state::POD_RESTARTS).and_then(|text| text.parse().ok());
    changes.set(present, state::POD_RESTARTS, report.restarts.max(noted.unwrap_or(0)).to_string());
    match &report.exit {
        // Its certificates have expired: another server with new ones replaces it.
        Some(Exit::Message(message)) if message.deadline_passed == Some(true) => {
            changes.set(present, state::POD_PHASE, "");
            changes.set(present, state::POD_READY, "false");
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) if message.scratch_space_required == Some(true) => {
            changes.set(present, import::REQUIRES_SCRATCH, "true");
            changes.set(present, state::POD_READY, "false");
            changes.set_running(present, false, reason::SCRATCH_SPACE_REQUIRED, SCRATCH_MESSAGE);
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) => {
            if message.preallocation_applied == Some(true) {
                changes.set(present, state::PREALLOCATION, "true");
            }
            virtual_size::record_virtual_size(changes, claim, message);
            let text = message.message.as_deref().unwrap_or_default();
            changes.set_running(present, false, reason::COMPLETED, text);
        }
        Some(Exit::Text { reason, text, .. }) => changes.set_running(present, false, reason, text),
        None => {
            if let Some((running, reason, message)) = &report.running {
                changes.set_running(present, *running, reason, message);
            }
        }
    }
    changes.set(present, state::POD_PHASE, report.phase.as_str());
    changes.set(present, state::POD_READY, is_ready(pod).to_string());
    if report.phase == PodPhase::Succeeded {
        // For a copy, the source pod reports the success.
        let is_copy = meta::has_annotation(present, request::CLONE_REQUEST);
        if meta::worker_phase(present) != PodPhase::Succeeded && !is_copy {
            plan.events.push(Event::normal(events::UPLOAD_SUCCEEDED, "Upload Successful"));
        }
        plan.is_over = true;
        if !meta::is_true(present, request::RETAIN_PODS) {
            plan.pod = PodAction::Delete;
        }
    }
    plan
}

/// What follows from the server's status. Its service is deleted when the upload is over: a server that is kept for the
/// user to look at loses it with the event, which is recorded once. The pod is deleted last, as its status is lost
/// then.
pub fn plan_report(claim: &PersistentVolumeClaim, pod: &Pod, report: Plan) -> crate::plan::Plan {
    let mut plan = crate::plan::Plan::writes(Write::annotations(claim, &report.annotations));
    let is_ending = report.pod == PodAction::Delete;
    if report.is_over && (is_ending || !report.events.is_empty()) {
        let namespace = meta::namespace(&claim.metadata);
        plan.writes.push(Write::delete_named::<Service>(namespace, &service_name(claim)));
    }
    if is_ending {
        plan.writes.extend(Write::delete(pod));
    }
    plan.record(UPLOAD, claim, report.events);
    plan
}

/// When the certificates of a server that starts now are about to expire.
pub fn deadline(now: Timestamp, lifetime: Duration) -> Timestamp {
    let seconds = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
    let deadline = Timestamp::from_second(now.as_second().saturating_add(seconds));
    deadline.unwrap_or(Timestamp::MAX)
}

/// Whether a client or the source pod of a copy is to send the content of the PVC. Temporary PVCs of a clone receive
/// only copies.
fn is_wanted(metadata: &ObjectMeta) -> bool {
    let is_target = meta::has_annotation(metadata, request::UPLOAD_TARGET);
    copy::needs_server(metadata) || is_target && clone::owner_uid(metadata).is_none()
}

/// Whether every container takes requests.
fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    containers.is_some_and(|all| !all.is_empty() && all.iter().all(|container| container.ready))
}

#[cfg(test)]
mod tests;
