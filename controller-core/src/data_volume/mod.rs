//! DataVolumes: their PVC, phase, conditions and events. [`plan_data_volume`] decides; this file has the status.

mod cleanup;
mod clone;
mod clone_pvc;
mod clone_size;
mod conditions;
mod external;
mod facts;
mod labels;
mod phase;
mod plan;
mod pvc;
mod restored_source;
mod static_volume;
mod ttl;

use api::ClaimPhase;
use api::annotations::{request, state};
use api::events;
use api::v1beta1::{CdiConfigSpec, DataVolume, DataVolumeStatus};
use api::{Phase, conditions as wire};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::clone::Origin;
use crate::event::Event;
use crate::operation::{Operation, PopulationMode};
use crate::plan::Requeue;
use crate::refusal::Refusal;
use crate::{meta, ownership, progress};

pub use facts::{
    CloneNotAllowed, CloneRequestFacts, CloneSourceObject, DataVolumeFacts, Decision, Failure,
    IsMarked, Lookup, LookupResults, PvcSettings, RestoredSourceFacts,
};
pub use plan::{plan_after_refusal, plan_data_volume};
pub use static_volume::is_reserved_for;

/// What the status depends on.
pub struct StatusFacts<'a> {
    /// The DataVolume, with its current status.
    pub volume: &'a DataVolume,
    pub operation: &'a Operation,
    pub population: PopulationMode,
    /// The PVC of its name.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The prime PVC, which is filled first and then bound to its place.
    pub prime: Option<&'a PersistentVolumeClaim>,
    /// The source of a clone.
    pub origin: Option<&'a Origin>,
    /// The storage class of the PVC.
    pub class: Option<&'a StorageClass>,
    pub config: &'a CdiConfigSpec,
    /// The PVC waits for a PersistentVolume that a user has reserved for it.
    pub waits_for_static_volume: bool,
    /// The worker's progress in percent, where no other controller records it.
    pub measured: Option<f64>,
    /// Why the PVC could not be created or adopted.
    pub blocker: Option<&'a PvcBlocker>,
}

/// Why a PVC cannot be created or adopted. Takes precedence over the status of the PVC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvcBlocker {
    /// `None`: the phase is unchanged.
    pub phase: Option<Phase>,
    /// Without a PVC, its reason and message are also those of the condition `Bound`.
    pub event: Event,
}

impl PvcBlocker {
    /// The DataVolume describes no valid PVC.
    pub fn invalid(error: &crate::claim::Error) -> Self {
        Self {
            phase: Some(Phase::Unset),
            event: Event::warning(events::CLAIM_NOT_VALID, error.to_string()),
        }
    }

    /// The API server refused the PVC, for lack of quota or as invalid. `None` for other failures, which are retried.
    pub fn refused(refusal: &Refusal) -> Option<Self> {
        let (phase, reason) = match refusal {
            refusal if refusal.namespace_is_terminating => return None,
            refusal if refusal.is_quota() => (Phase::Pending, events::EXCEEDED_QUOTA),
            refusal if refusal.is_final() => (Phase::Unset, events::CLAIM_NOT_VALID),
            _ => return None,
        };
        let event = Event::warning(reason, refusal.message.as_str());
        Some(Self { phase: Some(phase), event })
    }

    /// The source of a clone does not exist, or does not fit. A watch reports when that changes.
    pub fn of_source(event: Event) -> Self {
        Self { phase: None, event }
    }

    /// The PVC of its name belongs to another owner.
    pub fn foreign_claim(refusal: Event) -> Self {
        Self { phase: None, event: refusal }
    }
}

/// The status to write, and the events to record with it.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPlan {
    pub status: DataVolumeStatus,
    /// About the DataVolume. Empty if the status is unchanged.
    pub events: Vec<Event>,
}

/// The status that a DataVolume should have.
pub fn status(facts: &StatusFacts, now: Timestamp) -> StatusPlan {
    let old = facts.volume.status.clone().unwrap_or_default();
    let step = phase::next(facts);
    let mut events = step.event.into_iter().collect::<Vec<_>>();

    let mut status = old.clone();
    status.phase = Some(step.phase.as_str().to_owned());
    if let Some(claim) = facts.claim {
        status.claim_name = claim.metadata.name.clone();
        let restarts = meta::annotation(&claim.metadata, state::POD_RESTARTS);
        if let Some(restarts) = restarts.and_then(|text| text.parse().ok()) {
            status.restart_count = Some(restarts);
        }
    }
    status.progress = Some(shown_progress(facts, step.phase, old.progress.as_deref()));
    let mut conditions = status.conditions.take().unwrap_or_default();
    events.extend(conditions::update(&mut conditions, facts, step.phase, now));
    status.conditions = Some(conditions);
    // A client that reads an event finds the status that the event describes. No change, no event.
    let events = if status == old { Vec::new() } else { events };
    StatusPlan { status, events }
}

/// When to poll the progress of a worker that fills the PVC itself: no watch reports it.
fn progress_poll(volume: &DataVolume, measured: Option<f64>, phase: Phase) -> Requeue {
    let shown = volume.status.as_ref().and_then(|status| status.progress.as_deref());
    match phase {
        Phase::ImportInProgress | Phase::CloneInProgress => Requeue::After(progress::POLL),
        Phase::UploadReady => Requeue::After(progress::upload_poll(measured, shown)),
        _ => Requeue::OnChange,
    }
}

/// `N/A`, a percentage, or all of it.
fn shown_progress(facts: &StatusFacts, phase: Phase, old: Option<&str>) -> String {
    let noted =
        facts.claim.and_then(|claim| meta::annotation(&claim.metadata, state::POPULATOR_PROGRESS));
    let measured = facts.measured.map(progress::percent);
    match phase {
        // No worker has filled it for this DataVolume, so that there is no progress to report.
        Phase::Succeeded if was_full(facts) && ![noted, old].contains(&Some(progress::ALL)) => {
            progress::UNKNOWN.to_owned()
        }
        Phase::Succeeded => progress::ALL.to_owned(),
        _ if facts.population == PopulationMode::Populator => {
            progress::while_running(noted).to_owned()
        }
        // A lost upload server has lost its data.
        Phase::UploadScheduled => progress::UNKNOWN.to_owned(),
        // A failed scrape keeps the last value.
        _ => progress::while_running(measured.as_deref().or(old)).to_owned(),
    }
}

/// Whether the PVC had its content before the DataVolume: adopted, restored, or bound to a static volume.
fn was_full(facts: &StatusFacts) -> bool {
    facts
        .claim
        .is_some_and(|claim| !ownership::requires_work(facts.volume, Some(claim), facts.config))
}

/// The annotations that the DataVolume itself should have: how it is populated, whether its PVC existed before, the
/// host and version of VMware's VDDK, and whether it is deleted when its TTL has expired.
fn annotations(facts: &StatusFacts) -> meta::Changes {
    let mut changes = meta::Changes::default();
    let metadata = &facts.volume.metadata;
    changes.set(metadata, request::USE_POPULATOR, facts.population.annotation());
    let filled_before = facts.claim.filter(|claim| {
        meta::claim_phase(claim) == ClaimPhase::Bound
            && ownership::is_populated_for(facts.volume, claim)
    });
    if let Some(claim) = filled_before {
        changes.set(metadata, request::PRE_POPULATED, meta::name(&claim.metadata));
    }
    let clone_type =
        facts.claim.and_then(|claim| meta::annotation(&claim.metadata, state::CLONE_TYPE));
    if let (Operation::Clone, Some(clone_type)) = (facts.operation, clone_type) {
        changes.set(metadata, state::CLONE_TYPE, clone_type);
    }
    // With a populator, these annotations are on the PVC only.
    if let (PopulationMode::Legacy, Some(claim)) = (facts.population, facts.claim) {
        for key in [state::VDDK_HOST, state::VDDK_VERSION] {
            if let Some(value) = meta::annotation(&claim.metadata, key) {
                changes.set(metadata, key, value);
            }
        }
    }
    if ttl::is_to_be_marked(facts.volume, facts.config.data_volume_ttl_seconds) {
        changes.set(metadata, request::DELETE_AFTER_COMPLETION, "true");
    }
    changes
}

/// Whether the condition `Ready` is true: clients may use the PVC.
pub fn is_ready(status: &DataVolumeStatus) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    crate::conditions::find(conditions, wire::READY)
        .is_some_and(|condition| condition.status == wire::status::TRUE)
}

#[cfg(test)]
mod tests;
