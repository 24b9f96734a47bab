//! Whether a PVC gets a worker pod now, whatever the worker does.

use api::ClaimPhase;
use api::annotations::request;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::event::Event;
use crate::meta::{self, Changes};

/// The next step towards a worker pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartDecision {
    /// None: the PVC requests no import, or is populated already.
    Never,
    /// The PVC has to be bound first; a watch reports that.
    Wait,
    /// Another pod has the PVC mounted; to be retried.
    Busy(Event),
    /// The pod's name has to be recorded on the PVC, so that the pod is created only once.
    Note(Changes),
    Create,
}

/// The worker pod that a PVC is to get.
pub struct WorkerStart<'a> {
    pub pod_name: &'a str,
    /// The event's reason where another pod uses the PVC.
    pub in_use: &'static str,
    /// What the PVC has to record before the pod is created.
    pub changes: Changes,
}

/// What has to be done for a PVC that is to be filled by a worker pod and has none. `pods`: all that mount it.
pub fn decide_worker_start(
    claim: &PersistentVolumeClaim,
    pods: &[Pod],
    honors_waiting: bool,
    worker: WorkerStart<'_>,
) -> StartDecision {
    let WorkerStart { pod_name, in_use, changes } = worker;
    let waits = honors_waiting && !meta::has_annotation(&claim.metadata, request::BIND_IMMEDIATE);
    if waits && meta::claim_phase(claim) != ClaimPhase::Bound {
        return StartDecision::Wait;
    }
    if let Some(message) = used_by_another(claim, pods, pod_name) {
        return StartDecision::Busy(Event::warning(in_use, message));
    }
    if changes.is_empty() { StartDecision::Create } else { StartDecision::Note(changes) }
}

/// The pod that keeps the worker of this name from using the PVC: it has the PVC mounted and has not ended.
fn used_by_another(claim: &PersistentVolumeClaim, pods: &[Pod], worker: &str) -> Option<String> {
    let is_finished = |pod: &Pod| {
        let phase = meta::pod_phase(pod);
        phase.has_ended()
    };
    let is_other = |pod: &&Pod| meta::name(&pod.metadata) != worker && !is_finished(pod);
    let other = pods.iter().find(is_other)?;
    let (namespace, pod) = (meta::namespace(&other.metadata), meta::name(&other.metadata));
    let claim = meta::name(&claim.metadata);
    Some(format!("pod {namespace}/{pod} using PersistentVolumeClaim {claim}"))
}

#[cfg(test)]
impl StartDecision {
    /// The name in decision tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Wait => "wait",
            Self::Busy(_) => "busy",
            Self::Note(_) => "note",
            Self::Create => "create",
        }
    }
}
