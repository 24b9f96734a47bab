//! Forklift's populators: a claim is filled with a disk of oVirt or an image of OpenStack, by a program that copies it as
//! it is to the claim beside it. How the two claims belong together, [`crate::populator`] knows.

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

/// What a claim and a pod say that are made for either kind.
pub const POPULATOR: &str = "forklift";

/// What the programs say last, in a line of their logs, before the reason.
const LAST_WORDS: &str = "cannot populate the volume: ";

/// Which of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A disk of oVirt.
    Ovirt,
    /// An image of OpenStack.
    Openstack,
}

impl Kind {
    /// The kind that a claim refers to. `None`: neither.
    pub fn of(claim: &PersistentVolumeClaim) -> Option<Self> {
        let reference = claim.spec.as_ref()?.data_source_ref.as_ref()?;
        match (reference.api_group.as_deref()?, reference.kind.as_str()) {
            (names::FORKLIFT_GROUP, "OvirtVolumePopulator") => Some(Self::Ovirt),
            (names::FORKLIFT_GROUP, "OpenstackVolumePopulator") => Some(Self::Openstack),
            _ => None,
        }
    }

    /// The program that fills a claim.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Ovirt => "ovirt-populator",
            Self::Openstack => "openstack-populator",
        }
    }

    /// What that program calls its progress.
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Ovirt => "kubevirt_cdi_ovirt_progress_total",
            Self::Openstack => "kubevirt_cdi_openstack_populator_progress_total",
        }
    }
}

/// What is to be copied from where, whichever kind says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Who says it.
    pub kind: Kind,
    /// Of the engine, or of the identity service.
    pub address: String,
    /// Name of the Secret with the credentials.
    pub secret: String,
    /// Of the disk, or of the image.
    pub identifier: String,
    /// The network of the pod, where it is not that of all pods.
    pub network: Option<String>,
}

impl From<&OvirtVolumePopulatorSpec> for Order {
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

impl From<&OpenstackVolumePopulatorSpec> for Order {
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

/// UID of the claim that this one is filled for, by one of these programs. `None`: it is none of those.
pub fn target_uid(prime: &ObjectMeta) -> Option<&str> {
    let owner = meta::controller(prime)?;
    let is_prime = owner.kind == "PersistentVolumeClaim"
        && meta::name(prime) == names::prime_pvc(&owner.uid)
        && meta::annotation(prime, state::POPULATOR_KIND) == Some(POPULATOR);
    is_prime.then_some(owner.uid.as_str())
}

/// Whether a claim that has no pod is to get one.
pub fn needs_pod(prime: &PersistentVolumeClaim) -> bool {
    let metadata = &prime.metadata;
    metadata.deletion_timestamp.is_none() && meta::worker_phase(metadata) != PodPhase::Succeeded
}

/// Whether a pod was made for this very claim, whoever made it. One of an earlier claim is about to be collected, and one
/// of nobody's is none of ours.
pub fn is_of(pod: &Pod, prime: &PersistentVolumeClaim) -> bool {
    meta::controller(&pod.metadata).is_some_and(|owner| owner.uid == meta::uid(&prime.metadata))
}

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of the claim that is filled; its target says the same.
    pub annotations: Changes,
    /// On the target: nobody looks at the other claim.
    pub events: Vec<Event>,
    /// What becomes of the pod.
    pub pod: PodAction,
}

/// What follows for the claim that is filled from its pod. The pod tells by its phase whether it is done: its program leaves
/// no message, and the reason why it failed is in its log, of which the kubelet keeps the end.
pub fn plan(prime: &PersistentVolumeClaim, pod: &Pod) -> Plan {
    let present = &prime.metadata;
    let mut plan =
        Plan { annotations: Changes::default(), events: Vec::new(), pod: PodAction::Keep };
    if present.deletion_timestamp.is_some() {
        // The claim stays until nobody has it mounted, and nobody collects the pod before the claim is gone.
        plan.pod = PodAction::Delete;
        return plan;
    }
    let report = import::report(pod);
    let said = &mut plan.annotations;
    let restarts = import::restarts(present).max(report.restarts).to_string();
    let is_started_again = meta::annotation(present, state::POD_RESTARTS)
        .is_some_and(|noted| noted != restarts.as_str());
    said.set(present, state::POD_RESTARTS, restarts);
    said.set(present, state::POD_SCHEDULABLE, report.unschedulable.is_none().to_string());
    if let Some(because) = &report.unschedulable {
        import::say(said, present, false, reason::UNSCHEDULABLE, because);
    }
    match &report.exit {
        Some(Exit::Message(_)) => import::say(said, present, false, reason::COMPLETED, ""),
        Some(Exit::Text { reason, text, code }) => {
            let text = last_words(text);
            let noted = |key| meta::annotation(present, key);
            // A failure is told once, however often it is looked at.
            let is_known = !is_started_again
                && noted(state::RUNNING_REASON) == Some(reason.as_str())
                && noted(state::RUNNING_MESSAGE) == Some(text);
            if *code != 0 && !is_known {
                plan.events.push(failure(present, text));
            }
            import::say(said, present, false, reason, text);
        }
        None => {
            if let Some((is_running, reason, message)) = &report.running {
                import::say(said, present, *is_running, reason, message);
            }
        }
    }
    said.set(present, state::POD_PHASE, report.phase.as_str());
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

/// The reason at the end of a log, without the time, which would make each failure another one.
fn last_words(log: &str) -> &str {
    let line = log.trim_end().lines().next_back().unwrap_or_default();
    line.split_once(LAST_WORDS).map_or(line, |(_, because)| because).trim()
}

#[cfg(test)]
mod tests;
