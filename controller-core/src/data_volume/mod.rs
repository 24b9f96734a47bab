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
    /// The DataVolume, with its status as it is.
    pub volume: &'a DataVolume,
    /// What it asks for.
    pub operation: &'a Operation,
    /// Who fills its claim.
    pub population: PopulationMode,
    /// The claim of its name.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The claim that is filled in its stead.
    pub prime: Option<&'a PersistentVolumeClaim>,
    /// What it is cloned from.
    pub origin: Option<&'a Origin>,
    /// The class of the claim.
    pub class: Option<&'a StorageClass>,
    /// Features that were turned on.
    pub config: &'a CdiConfigSpec,
    /// The claim waits for a volume that somebody made by hand.
    pub waits_for_static_volume: bool,
    /// How far the worker is, in percent, where nobody else notes it.
    pub measured: Option<f64>,
    /// What stood in the way when the claim was to be made or taken over.
    pub blocker: Option<&'a PvcBlocker>,
}

/// What stood in the way, which outweighs what the claim would tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvcBlocker {
    /// The phase; `None` leaves it as it is.
    pub phase: Option<Phase>,
    /// What people are told. Its words are those of the condition `Bound` where there is no claim.
    pub event: Event,
}

impl PvcBlocker {
    /// No claim can be made of the DataVolume.
    pub fn invalid(error: &crate::claim::Error) -> Self {
        Self {
            phase: Some(Phase::Unset),
            event: Event::warning(events::CLAIM_NOT_VALID, error.to_string()),
        }
    }

    /// The API server refused the claim, for want of quota or for ever. `None`, where trying again is all there is to do.
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

    /// What is to be cloned is not there, or does not fit. A watch tells when that changes.
    pub fn of_source(event: Event) -> Self {
        Self { phase: None, event }
    }

    /// The claim of its name is not the DataVolume's.
    pub fn foreign_claim(refusal: Event) -> Self {
        Self { phase: None, event: refusal }
    }
}

/// What to write, and what to tell if that was necessary.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPlan {
    /// All of it.
    pub status: DataVolumeStatus,
    /// On the DataVolume. Empty where the status is as it was.
    pub events: Vec<Event>,
}

/// The status that a DataVolume should have.
pub fn status(facts: &StatusFacts, now: Timestamp) -> StatusPlan {
    let old = facts.volume.status.clone().unwrap_or_default();
    let step = phase::next(facts);
    let mut told = step.event.into_iter().collect::<Vec<_>>();

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
    told.extend(conditions::update(&mut conditions, facts, step.phase, now));
    status.conditions = Some(conditions);
    // Whoever reads an event finds the status that it tells of; nothing is told of nothing new.
    let events = if status == old { Vec::new() } else { told };
    StatusPlan { status, events }
}

/// When to look again at a worker that fills the claim itself: no watch reports its progress.
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
        // A server that was lost has lost what it had.
        Phase::UploadScheduled => progress::UNKNOWN.to_owned(),
        // A scrape that failed takes nothing back.
        _ => progress::while_running(measured.as_deref().or(old)).to_owned(),
    }
}

/// Whether the PVC had its content before the DataVolume: adopted, restored, or bound to a static volume.
fn was_full(facts: &StatusFacts) -> bool {
    facts
        .claim
        .is_some_and(|claim| !ownership::requires_work(facts.volume, Some(claim), facts.config))
}

/// The annotations that the DataVolume itself should have: which way it goes, whether its claim was there before, what
/// VMware said of itself, and whether it goes when it has had its time.
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
    let way = facts.claim.and_then(|claim| meta::annotation(&claim.metadata, state::CLONE_TYPE));
    if let (Operation::Clone, Some(way)) = (facts.operation, way) {
        changes.set(metadata, state::CLONE_TYPE, way);
    }
    // Where a populator fills the claim, it is on that.
    if let (PopulationMode::Legacy, Some(claim)) = (facts.population, facts.claim) {
        for key in [state::VDDK_HOST, state::VDDK_VERSION] {
            if let Some(said) = meta::annotation(&claim.metadata, key) {
                changes.set(metadata, key, said);
            }
        }
    }
    if ttl::is_to_be_marked(facts.volume, facts.config.data_volume_ttl_seconds) {
        changes.set(metadata, request::DELETE_AFTER_COMPLETION, "true");
    }
    changes
}

/// Whether a DataVolume may be used, as everybody else sees it.
pub fn is_ready(status: &DataVolumeStatus) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    crate::conditions::find(conditions, wire::READY)
        .is_some_and(|condition| condition.status == wire::status::TRUE)
}

#[cfg(test)]
mod tests;
