//! Claims that are uploaded to: a server for each, a name for it, and what it tells.

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
use crate::import::{Exit, PodAction, StartDecision, WorkerStart, decide_worker_start, report};
use crate::meta::{self, Changes};
use crate::plan::Write;
use crate::virtual_size;

pub use pod::{Facts, hosts, pod, secret, service};

/// The client that an upload server believes: the upload proxy.
pub const CLIENT_NAME: &str = contract::upload::PROXY_CLIENT_NAME;

/// What people are told of a server that asks for scratch space.
const SCRATCH_MESSAGE: &str = "scratch space required and none found";

/// Name of a claim's upload server, and of the service before that is made fit for one. It is noted on the claim for others
/// to see; who reads it there would follow, and delete, whatever pod somebody has named.
pub fn pod_name(claim: &PersistentVolumeClaim) -> String {
    names::upload_server(meta::name(&claim.metadata))
}

/// Name of the Secret of one server. `suffix` differs for each pod.
pub fn secret_name(claim: &PersistentVolumeClaim, suffix: &str) -> String {
    format!("{}-upload-server-{suffix}", meta::uid(&claim.metadata))
}

/// Name of the service, by which the proxy finds the server of a claim.
pub fn service_name(claim: &PersistentVolumeClaim) -> String {
    names::label_value(&names::upload_server(meta::name(&claim.metadata)))
}

/// What has to be done for a claim that has no server. `pods`: all that mount it.
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

/// What to write on the claim, and what becomes of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Annotations to change.
    pub annotations: Changes,
    /// On the claim.
    pub events: Vec<Event>,
    /// What becomes of the pod. Its service goes with the claim, or when the upload is complete.
    pub pod: PodAction,
    /// Nobody uploads any more.
    pub is_over: bool,
}

/// What follows for a claim from its upload server.
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
    let said = &mut plan.annotations;
    let noted = meta::annotation(present, state::POD_RESTARTS).and_then(|text| text.parse().ok());
    said.set(present, state::POD_RESTARTS, report.restarts.max(noted.unwrap_or(0)).to_string());
    match &report.exit {
        // Its certificates have had their time: another one takes its place, with new ones.
        Some(Exit::Message(message)) if message.deadline_passed == Some(true) => {
            said.set(present, state::POD_PHASE, "");
            said.set(present, state::POD_READY, "false");
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) if message.scratch_space_required == Some(true) => {
            said.set(present, import::REQUIRES_SCRATCH, "true");
            said.set(present, state::POD_READY, "false");
            say(said, present, false, reason::SCRATCH_SPACE_REQUIRED, SCRATCH_MESSAGE);
            plan.pod = PodAction::Delete;
            return plan;
        }
        Some(Exit::Message(message)) => {
            if message.preallocation_applied == Some(true) {
                said.set(present, state::PREALLOCATION, "true");
            }
            virtual_size::note(said, claim, message);
            let text = message.message.as_deref().unwrap_or_default();
            say(said, present, false, reason::COMPLETED, text);
        }
        Some(Exit::Text { reason, text, .. }) => say(said, present, false, reason, text),
        None => {
            if let Some((running, reason, message)) = &report.running {
                say(said, present, *running, reason, message);
            }
        }
    }
    said.set(present, state::POD_PHASE, report.phase.as_str());
    said.set(present, state::POD_READY, is_ready(pod).to_string());
    if report.phase == PodPhase::Succeeded {
        // Of a copy the pod that reads tells.
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

/// What follows from the server's status. Its service is deleted when the upload is over: a server that is kept for the user
/// to look at loses it with the event, which is recorded once. The pod is deleted last, as its status is lost then.
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

/// Whether somebody is to send what the claim holds: a client, or the pod that reads the source of a copy. Nobody sends
/// anything else to a helper of a clone.
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

fn say(said: &mut Changes, present: &ObjectMeta, running: bool, reason: &str, message: &str) {
    said.set(present, state::RUNNING, running.to_string());
    said.set(present, state::RUNNING_REASON, reason);
    said.set(present, state::RUNNING_MESSAGE, message);
}

#[cfg(test)]
mod tests;
