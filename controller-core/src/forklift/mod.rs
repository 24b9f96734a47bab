//! Forklift's populators: a PVC is filled with a disk of oVirt or an image of OpenStack, by a program that copies it
//! unchanged to the prime PVC. [`crate::populator`] creates the prime PVC and rebinds its volume.

mod pod;

use api::PodPhase;
use api::annotations::{request, state};
use api::conditions::reason;
use api::v1beta1::{OpenstackVolumePopulatorSpec, OvirtVolumePopulatorSpec};
use api::{events, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::components::FORKLIFT;
use crate::event::Event;
use crate::import::{self, Exit, PodAction};
use crate::meta::{self, Changes};
use crate::plan::Write;

pub use pod::{Facts, pod, pod_name};

/// Marks the prime PVCs and the pods of either kind.
pub const POPULATOR: &str = "forklift";

/// Before the reason of a failure, in the last line of the log of a populator.
const ERROR_PREFIX: &str = "cannot populate the volume: ";

/// Which of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A disk of oVirt.
    Ovirt,
    /// An image of OpenStack.
    Openstack,
}

impl Kind {
    /// The kind that a PVC refers to. `None`: neither.
    pub fn from_claim(claim: &PersistentVolumeClaim) -> Option<Self> {
        let reference = claim.spec.as_ref()?.data_source_ref.as_ref()?;
        match (reference.api_group.as_deref()?, reference.kind.as_str()) {
            (names::FORKLIFT_GROUP, "OvirtVolumePopulator") => Some(Self::Ovirt),
            (names::FORKLIFT_GROUP, "OpenstackVolumePopulator") => Some(Self::Openstack),
            _ => None,
        }
    }

    /// The program that fills a PVC.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Ovirt => "ovirt-populator",
            Self::Openstack => "openstack-populator",
        }
    }

    /// Name of the metric with the progress of that program.
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Ovirt => "kubevirt_cdi_ovirt_progress_total",
            Self::Openstack => "kubevirt_cdi_openstack_populator_progress_total",
        }
    }
}

/// What is to be copied from where, of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulatorSpec {
    pub kind: Kind,
    /// Of the engine, or of the identity service.
    pub address: String,
    /// Name of the Secret with the credentials.
    pub secret: String,
    /// Of the disk, or of the image.
    pub identifier: String,
    /// The network of the pod, if it is not the default.
    pub network: Option<String>,
}

impl From<&OvirtVolumePopulatorSpec> for PopulatorSpec {
    fn from(spec: &OvirtVolumePopulatorSpec) -> Self {
        let OvirtVolumePopulatorSpec { engine_url, secret_ref, disk_id, transfer_network } =
            spec.clone();
        Self {
            kind: Kind::Ovirt,
            address: engine_url,
            secret: secret_ref,
            identifier: disk_id,
            network: transfer_network,
        }
    }
}

impl From<&OpenstackVolumePopulatorSpec> for PopulatorSpec {
    fn from(spec: &OpenstackVolumePopulatorSpec) -> Self {
        let OpenstackVolumePopulatorSpec { identity_url, secret_ref, image_id, transfer_network } =
            spec.clone();
        Self {
            kind: Kind::Openstack,
            address: identity_url,
            secret: secret_ref,
            identifier: image_id,
            network: transfer_network,
        }
    }
}

/// UID of the target of a prime PVC that one of these programs fills. `None`: it is none of those.
pub fn target_uid(prime: &ObjectMeta) -> Option<&str> {
    let owner = meta::controller(prime)?;
    let is_prime = owner.kind == "PersistentVolumeClaim"
        && meta::name(prime) == names::prime_pvc(&owner.uid)
        && meta::annotation(prime, state::POPULATOR_KIND) == Some(POPULATOR);
    is_prime.then_some(owner.uid.as_str())
}

/// Whether a prime PVC without a pod is to get one.
pub fn needs_pod(prime: &PersistentVolumeClaim) -> bool {
    let metadata = &prime.metadata;
    metadata.deletion_timestamp.is_none() && meta::worker_phase(metadata) != PodPhase::Succeeded
}

/// Whether a pod was created for this very PVC. One of an earlier PVC will be garbage-collected, and one without an
/// owner belongs to another client.
pub fn is_of(pod: &Pod, prime: &PersistentVolumeClaim) -> bool {
    meta::controller(&pod.metadata).is_some_and(|owner| owner.uid == meta::uid(&prime.metadata))
}

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of the prime PVC; its target gets the same.
    pub annotations: Changes,
    /// On the target: users do not look at the prime PVC.
    pub events: Vec<Event>,
    pub pod: PodAction,
}

/// What follows for a prime PVC from its pod. The phase of the pod shows whether it is complete: its program writes no
/// termination message. The reason of a failure is in its log, of which the kubelet keeps the end.
pub fn plan(prime: &PersistentVolumeClaim, pod: &Pod) -> Plan {
    let present = &prime.metadata;
    let mut plan =
        Plan { annotations: Changes::default(), events: Vec::new(), pod: PodAction::Keep };
    if present.deletion_timestamp.is_some() {
        // The PVC stays until no pod has it mounted, and the pod is not garbage-collected before the PVC is gone.
        plan.pod = PodAction::Delete;
        return plan;
    }
    let report = import::report(pod);
    let changes = &mut plan.annotations;
    let restarts = import::restarts(present).max(report.restarts).to_string();
    let is_started_again = meta::annotation(present, state::POD_RESTARTS)
        .is_some_and(|noted| noted != restarts.as_str());
    changes.set(present, state::POD_RESTARTS, restarts);
    changes.set(present, state::POD_SCHEDULABLE, report.unschedulable.is_none().to_string());
    if let Some(because) = &report.unschedulable {
        changes.set_running(present, false, reason::UNSCHEDULABLE, because);
    }
    match &report.exit {
        Some(Exit::Message(_)) => changes.set_running(present, false, reason::COMPLETED, ""),
        Some(Exit::Text { reason, text, code }) => {
            let text = failure_reason(text);
            let noted = |key| meta::annotation(present, key);
            // A failure is reported once, however often the pod is reconciled.
            let is_known = !is_started_again
                && noted(state::RUNNING_REASON) == Some(reason.as_str())
                && noted(state::RUNNING_MESSAGE) == Some(text);
            if *code != 0 && !is_known {
                plan.events.push(failure(present, text));
            }
            changes.set_running(present, false, reason, text);
        }
        None => {
            if let Some((is_running, reason, message)) = &report.running {
                changes.set_running(present, *is_running, reason, message);
            }
        }
    }
    changes.set(present, state::POD_PHASE, report.phase.as_str());
    if report.phase == PodPhase::Succeeded && !meta::is_true(present, request::RETAIN_PODS) {
        plan.pod = PodAction::Delete;
    }
    plan
}

/// The status is written before the pod is deleted, which loses it. Events are about the target, which users see.
pub fn plan_report(
    prime: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
    pod: &Pod,
    report: Plan,
) -> crate::plan::Plan {
    let noted = Write::annotations(prime, &report.annotations);
    let deleted = if report.pod == PodAction::Delete { Write::delete(pod) } else { None };
    let mut plan = crate::plan::Plan::writes(noted.into_iter().chain(deleted));
    if let Some(target) = target {
        plan.record(FORKLIFT, target, report.events);
    }
    plan
}

fn failure(prime: &ObjectMeta, text: &str) -> Event {
    let target = meta::controller(prime).map(|owner| owner.name.as_str()).unwrap_or_default();
    let message = format!("import into {target} failed: {text}");
    Event::warning(events::POPULATOR_IMPORT_FAILED, message)
}

/// The reason at the end of a log, without the time, so that the event of the same failure is the same.
fn failure_reason(log: &str) -> &str {
    let line = log.trim_end().lines().next_back().unwrap_or_default();
    line.split_once(ERROR_PREFIX).map_or(line, |(_, because)| because).trim()
}

#[cfg(test)]
mod tests;
