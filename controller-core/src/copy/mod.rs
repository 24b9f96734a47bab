//! Host-assisted copies. Where one node has both volumes, one pod reads the one and writes the other; elsewhere an
//! upload server mounts the target, and a pod reads the source and sends it.
//!
//! ```text
//! 1 pod:  CloneRequest ────────────────────────► source pod, with both ──► ended: CloneOf
//!                                                    │ no node has both     source pod and finalizer go
//!                                                    ▼
//! 2 pods: CloneRequest ──► upload server ready ──► source pod ──► ended: CloneOf ──► server ended: pod, finalizer go
//!            (upload)          (upload)        ▲    finalizer           │
//!                                              └────────────────────────┘ server replaced before it reported its end
//! ```

mod pod;
mod repeat;
mod writes;

use api::annotations::{request, state};
use api::conditions::reason;
use api::events;
use api::labels::finalizer;
use api::{ClaimPhase, PodPhase};
use contract::ByteCount;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::clone::Origin;
use crate::event::Event;
use crate::import::{Exit, report};
use crate::meta::{self, Changes};

pub use pod::{Facts, has_both, pod, secret};
pub use repeat::plan_after_read;
pub use writes::{CopyTarget, plan_end, plan_replacement, plan_report};

/// In the termination message of the source pod, if the target was preallocated.
const PREALLOCATED: &str = "Preallocation applied";
/// Message of a complete copy.
const COMPLETE: &str = "Clone Complete";

/// Name of the source pod for a PVC, in the namespace of the source.
pub fn pod_name(claim: &ObjectMeta) -> String {
    format!("{}-source-pod", meta::uid(claim))
}

/// Name of the Secret of one reader. `suffix` differs for each pod.
pub fn secret_name(claim: &ObjectMeta, suffix: &str) -> String {
    format!("{}-{suffix}", pod_name(claim))
}

/// The only client that the target's upload server accepts: the pod that reads the source.
pub fn client_name(claim: &ObjectMeta, source: &Origin) -> String {
    let (namespace, name) = (meta::namespace(claim), meta::name(claim));
    format!("{}/{}-{namespace}/{name}", source.namespace, source.name)
}

/// How long a pod with both volumes may wait for a node that has both, and for the volumes on that node.
const NODE_PATIENCE: SignedDuration = SignedDuration::from_mins(1);
const VOLUMES_PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// Whether one pod is to mount both volumes. Never across namespaces, whatever the annotation: a pod mounts PVCs of its
/// own namespace, so it would write to a PVC of the target's name in the namespace of the source.
pub fn uses_one_pod(claim: &ObjectMeta) -> bool {
    meta::is_true(claim, state::CLONE_ON_ONE_NODE)
        && Origin::requested(claim).is_some_and(|source| source.namespace == meta::namespace(claim))
}

/// Whether the copy goes through an upload server.
pub fn needs_server(claim: &ObjectMeta) -> bool {
    meta::has_annotation(claim, request::CLONE_REQUEST) && !uses_one_pod(claim)
}

/// Whether a pod that is to mount both volumes has waited too long for them.
pub fn is_hopeless(pod: &Pod, now: Timestamp) -> bool {
    let report = report(pod);
    let is_waiting = report.phase.is_waiting();
    let since = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let patience = if report.unschedulable.is_some() { NODE_PATIENCE } else { VOLUMES_PATIENCE };
    let is_pulled =
        report.running.as_ref().is_none_or(|(_, reason, _)| reason != reason::IMAGE_PULL_FAILED);
    is_waiting && is_pulled && since.is_some_and(|since| now.duration_since(since) >= patience)
}

/// The state of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// The upload server is not ready; a watch reports when it is.
    Waiting,
    /// The source may be read.
    Ready,
    /// The source pod has sent everything, and the upload server has not reported its end.
    Read,
    /// The copy is complete or no longer requested: its objects are deleted.
    Over,
}

/// The state of the copy to a PVC.
pub fn copy_state(claim: &PersistentVolumeClaim) -> CopyState {
    let metadata = &claim.metadata;
    let is_wanted = meta::has_annotation(metadata, request::CLONE_REQUEST);
    if metadata.deletion_timestamp.is_some() || !is_wanted {
        return CopyState::Over;
    }
    let is_done = meta::worker_phase(metadata) == PodPhase::Succeeded;
    if meta::is_true(metadata, state::CLONE_OF) {
        // Without the finalizer the copy is older, perhaps of upstream CDI, and was complete.
        let has_server = !uses_one_pod(metadata) && has_finalizer(metadata);
        return if has_server && !is_done { CopyState::Read } else { CopyState::Over };
    }
    if uses_one_pod(metadata) {
        return CopyState::Ready;
    }
    let has_server = is_done || meta::is_true(metadata, state::POD_READY);
    if meta::claim_phase(claim) == ClaimPhase::Bound && has_server {
        CopyState::Ready
    } else {
        CopyState::Waiting
    }
}

/// Whether the name of the source pod has been recorded, with the finalizer that stays until the pod is deleted.
pub fn has_finalizer(claim: &ObjectMeta) -> bool {
    claim.finalizers.iter().flatten().any(|name| name == finalizer::CLONE_SOURCE)
}

/// What follows for a PVC from the status of its source pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Annotations to change.
    pub annotations: Changes,
    /// On the PVC.
    pub events: Vec<Event>,
}

/// The annotations with the state of the source pod. A pod with both volumes reports as the worker of the PVC.
fn keys(claim: &ObjectMeta) -> [&'static str; 3] {
    if uses_one_pod(claim) {
        [state::RUNNING, state::RUNNING_REASON, state::RUNNING_MESSAGE]
    } else {
        [state::SOURCE_RUNNING, state::SOURCE_RUNNING_REASON, state::SOURCE_RUNNING_MESSAGE]
    }
}

/// The annotations of a PVC while it has no source pod.
pub fn not_running(claim: &ObjectMeta, reason: &str, message: &str) -> Changes {
    let mut changes = Changes::default();
    for (key, value) in keys(claim).into_iter().zip(["false", reason, message]) {
        changes.set(claim, key, value);
    }
    changes
}

/// What follows for a PVC from the status of its source pod.
pub fn plan(claim: &ObjectMeta, pod: &Pod) -> Plan {
    let mut changes = Changes::default();
    let mut events = Vec::new();
    let report = report(pod);
    let noted = meta::annotation(claim, state::POD_RESTARTS).and_then(|text| text.parse().ok());
    changes.set(claim, state::POD_RESTARTS, report.restarts.max(noted.unwrap_or(0)).to_string());
    if uses_one_pod(claim) && report.phase != PodPhase::Unset {
        changes.set(claim, state::POD_PHASE, report.phase.as_str());
    }
    let mut run = |running: bool, reason: &str, message: &str| {
        for (key, value) in keys(claim).into_iter().zip([&*running.to_string(), reason, message]) {
            changes.set(claim, key, value);
        }
    };
    match (&report.exit, &report.running) {
        _ if report.phase == PodPhase::Succeeded => run(false, reason::COMPLETED, COMPLETE),
        (Some(Exit::Text { reason, text, .. }), _) => run(false, reason, text),
        (Some(Exit::Message(_)), _) => {}
        (None, Some((running, reason, message))) => run(*running, reason, message),
        (None, None) => {}
    }
    if report.phase == PodPhase::Succeeded {
        if let Some(Exit::Text { text, .. }) = &report.exit
            && text.contains(PREALLOCATED)
        {
            changes.set(claim, state::PREALLOCATION, "true");
        }
        changes.set(claim, state::CLONE_OF, "true");
        events.push(Event::normal(events::CLONE_SUCCEEDED, COMPLETE));
    }
    Plan { annotations: changes, events }
}

/// Why a source and a target are incompatible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// One holds a disk, the other files.
    #[error("source contentType ({source_has}) and target contentType ({target_has}) do not match")]
    Content {
        /// What the source holds.
        source_has: String,
        /// What the target is to hold.
        target_has: String,
    },
    /// Files go to a file system, and come from one.
    #[error("source volumeMode and target volumeMode do not match, contentType (archive)")]
    Mode,
    /// The disk does not fit.
    #[error("target is too small for a disk of its source: {offered} < {needed}")]
    TooSmall {
        /// What the source may hold.
        needed: ByteCount,
        /// What fits into the target.
        offered: ByteCount,
    },
}

impl Mismatch {
    pub fn event(&self) -> Event {
        Event::warning(events::INCOMPATIBLE_PVC, self.to_string())
    }
}

/// The content type of a PVC; a disk by default.
pub fn content_of(claim: &ObjectMeta) -> &str {
    let content = meta::annotation(claim, request::CONTENT_TYPE).filter(|text| !text.is_empty());
    content.unwrap_or(api::v1beta1::ContentType::Kubevirt.as_str())
}

/// Whether the source can be copied to the PVC. `capacities`: bytes of a disk that fit into the source and the target,
/// where both are known.
///
/// # Errors
/// [`Mismatch`].
pub fn check(
    source: &PersistentVolumeClaim,
    claim: &PersistentVolumeClaim,
    capacities: Option<(ByteCount, ByteCount)>,
) -> Result<(), Mismatch> {
    let (source_has, target_has) = (content_of(&source.metadata), content_of(&claim.metadata));
    if source_has != target_has {
        let (source_has, target_has) = (source_has.to_owned(), target_has.to_owned());
        return Err(Mismatch::Content { source_has, target_has });
    }
    let is_disk = source_has == api::v1beta1::ContentType::Kubevirt.as_str();
    if !is_disk && meta::is_block(source) != meta::is_block(claim) {
        return Err(Mismatch::Mode);
    }
    let is_permissive = meta::has_annotation(&claim.metadata, request::PERMISSIVE_CLONE);
    match capacities.filter(|(needed, offered)| needed > offered && !is_permissive) {
        Some((needed, offered)) => Err(Mismatch::TooSmall { needed, offered }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
