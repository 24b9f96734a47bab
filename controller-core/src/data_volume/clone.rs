//! Phases and events of DataVolumes that are cloned.

use api::annotations::state;
use api::{ClaimPhase, PodPhase};
use api::{Phase, events};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::StatusFacts;
use super::phase::Step;
use crate::clone::Phase as ClonePhase;
use crate::event::Event;
use crate::meta;

/// From the clone phase that the clone controller has recorded on the PVC.
pub(super) fn of_populator(facts: &StatusFacts, claim: &PersistentVolumeClaim, old: Phase) -> Step {
    let noted = meta::annotation(&claim.metadata, state::CLONE_PHASE).unwrap_or_default();
    let is = |phase: ClonePhase| noted == phase.as_str();
    let phase = if noted.is_empty() || is(ClonePhase::Pending) {
        Phase::CloneScheduled
    } else if is(ClonePhase::CsiClone) {
        Phase::CsiCloneInProgress
    } else if is(ClonePhase::Snapshot) {
        Phase::SnapshotForSmartCloneInProgress
    } else if is(ClonePhase::SnapshotClone) {
        Phase::CloneFromSnapshotSourceInProgress
    } else if is(ClonePhase::HostClone) {
        Phase::CloneInProgress
    } else if is(ClonePhase::PrepClaim) {
        Phase::PrepClaimInProgress
    } else if is(ClonePhase::Rebind) {
        Phase::RebindInProgress
    } else if is(ClonePhase::Succeeded) && meta::claim_phase(claim) == ClaimPhase::Bound {
        Phase::Succeeded
    } else {
        // A failed step is retried; the phase stays visible.
        return old.into();
    };
    Step { phase, event: phase_event(facts, phase) }
}

/// From the pods that copy into the PVC itself. For a snapshot, the phases before the copy restore it to a PVC.
pub(super) fn of_copy(
    facts: &StatusFacts,
    claim: &PersistentVolumeClaim,
    pod_phase: PodPhase,
) -> Step {
    let is_of_snapshot = meta::has_annotation(&claim.metadata, state::CLONE_SOURCE_SNAPSHOT);
    let noted = meta::annotation(&claim.metadata, state::CLONE_PHASE).filter(|_| is_of_snapshot);
    let is = |phase: ClonePhase| noted == Some(phase.as_str());
    let phase = match pod_phase {
        PodPhase::Succeeded => Phase::Succeeded,
        _ if is(ClonePhase::SnapshotClone) => Phase::CloneFromSnapshotSourceInProgress,
        _ if is(ClonePhase::PrepClaim) => Phase::PrepClaimInProgress,
        _ if is(ClonePhase::Pending) => Phase::CloneScheduled,
        PodPhase::Running => Phase::CloneInProgress,
        _ => Phase::CloneScheduled,
    };
    let event = match pod_phase {
        PodPhase::Failed => {
            Some(Event::warning(events::CLONE_FAILED, format!("{} failed", cloning(facts))))
        }
        _ => phase_event(facts, phase),
    };
    Step { phase, event }
}

fn phase_event(facts: &StatusFacts, phase: Phase) -> Option<Event> {
    let origin = facts.origin.map(ToString::to_string).unwrap_or_else(|| "its source".to_owned());
    let message = match phase {
        Phase::CloneScheduled => format!("{} scheduled", cloning(facts)),
        Phase::CloneInProgress => format!("{} in progress", cloning(facts)),
        Phase::SnapshotForSmartCloneInProgress => {
            format!("Creating snapshot for smart-clone is in progress (for {origin})")
        }
        Phase::CloneFromSnapshotSourceInProgress => {
            format!("Creating PVC from snapshot source is in progress (for {origin})")
        }
        Phase::CsiCloneInProgress => format!("CSI Volume clone in progress (for {origin})"),
        Phase::PrepClaimInProgress => {
            format!("Prepping PersistentVolumeClaim for DataVolume {}", own(facts))
        }
        Phase::RebindInProgress => {
            format!("Rebinding PersistentVolumeClaim for DataVolume {}", own(facts))
        }
        Phase::Succeeded => {
            let message = format!("Successfully cloned from {} into {}", from(facts), own(facts));
            return Some(Event::normal(events::CLONE_SUCCEEDED, message));
        }
        _ => return None,
    };
    Some(Event::normal(phase.as_str(), message))
}

fn cloning(facts: &StatusFacts) -> String {
    format!("Cloning from {} into {}", from(facts), own(facts))
}

fn from(facts: &StatusFacts) -> String {
    let origin = facts.origin.map(|origin| format!("{}/{}", origin.namespace, origin.name));
    origin.unwrap_or_else(|| "its source".to_owned())
}

fn own(facts: &StatusFacts) -> String {
    let metadata = &facts.volume.metadata;
    format!("{}/{}", meta::namespace(metadata), meta::name(metadata))
}
