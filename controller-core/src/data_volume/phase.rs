//! The next phase of a DataVolume.
//!
//! ```text
//! (unset) ─► Pending ─► PendingPopulation ─┐               ┌─► ImportScheduled ─► ImportInProgress ─┐
//!    │          │  └──► WaitForFirstConsumer │               │                    └─► Paused ──┘    ├─► Succeeded
//!    │          └─────────────► PVCBound ────┼──────────────┼─► UploadScheduled ─► UploadReady ─────┤       │
//!    │                                       └──────────────┴─► CloneScheduled ─► …InProgress ──────┘       │
//!    └── no valid PVC                                                                 PVC lost ─► Failed ◄──┘
//! ```
//!
//! `Succeeded` lasts as long as the PVC exists and is complete. When the PVC is deleted, the DataVolume is `Pending`
//! again until its next PVC is populated.

use api::annotations::{import, request, state};
use api::{ClaimPhase, PodPhase};
use api::{Phase, events};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{StatusFacts, clone};
use crate::event::Event;
use crate::operation::{Operation, PopulationMode};
use crate::{claim, config, meta, ownership};

/// A phase, and the event when it is reached.
pub(super) struct Step {
    pub phase: Phase,
    pub event: Option<Event>,
}

impl From<Phase> for Step {
    fn from(phase: Phase) -> Self {
        Self { phase, event: None }
    }
}

pub(super) fn next(facts: &StatusFacts) -> Step {
    let old = match present(facts) {
        Phase::Succeeded if begins_again(facts) => Phase::Pending,
        old => old,
    };
    let mut step = match facts.blocker {
        Some(blocker) => {
            Step { phase: blocker.phase.unwrap_or(old), event: Some(blocker.event.clone()) }
        }
        None => of_claim(facts, old),
    };
    // A complete DataVolume stays `Succeeded`, unless its PVC is `Lost`.
    if old == Phase::Succeeded && step.phase != Phase::Failed {
        step = Step::from(Phase::Succeeded);
    }
    // The event of a blocker is repeated when its message changes, which changes the condition; that of a phase is not.
    if facts.blocker.is_none() && step.phase == old {
        step.event = None;
    }
    step
}

/// Whether a succeeded DataVolume has lost its PVC, or has a new one that is not complete. A terminating PVC still has
/// its content, and a PVC of another owner (a blocker) proves nothing.
fn begins_again(facts: &StatusFacts) -> bool {
    let Some(claim) = facts.claim else { return true };
    let is_exempt = facts.blocker.is_some()
        || claim.metadata.deletion_timestamp.is_some()
        || meta::claim_phase(claim) == ClaimPhase::Lost;
    let way = (facts.operation, facts.population);
    !is_exempt && !ownership::is_complete(facts.volume, claim, way, facts.config)
}

/// The current phase. A phase that this version does not know is `Unknown`.
fn present(facts: &StatusFacts) -> Phase {
    let phase = facts.volume.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default().parse().unwrap_or(Phase::Unknown)
}

fn of_claim(facts: &StatusFacts, old: Phase) -> Step {
    if facts.waits_for_static_volume {
        return Phase::Pending.into();
    }
    let Some(claim) = facts.claim else {
        let filled = meta::has_annotation(&facts.volume.metadata, request::PRE_POPULATED);
        return if filled || old == Phase::Unset { Phase::Pending } else { old }.into();
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return old.into();
    }
    let requires_work = ownership::requires_work(facts.volume, Some(claim), facts.config);
    match meta::claim_phase(claim) {
        ClaimPhase::Unset => if old == Phase::Unset { Phase::Pending } else { old }.into(),
        ClaimPhase::Lost => {
            let message = format!("PVC {} lost", meta::name(&claim.metadata));
            Step { phase: Phase::Failed, event: Some(Event::warning(events::CLAIM_LOST, message)) }
        }
        ClaimPhase::Pending | ClaimPhase::Bound if !requires_work => Phase::Succeeded.into(),
        ClaimPhase::Pending => of_pending(facts, claim, old),
        ClaimPhase::Bound => {
            let waited = matches!(
                old,
                Phase::Unset
                    | Phase::Pending
                    | Phase::WaitForFirstConsumer
                    | Phase::PendingPopulation
                    | Phase::Unknown
            );
            of_operation(facts, claim, if waited { Phase::PvcBound } else { old })
        }
        _ => Phase::Unknown.into(),
    }
}

fn of_pending(facts: &StatusFacts, claim: &PersistentVolumeClaim, old: Phase) -> Step {
    let waits = claim::waits_for_consumer(claim, facts.class);
    match facts.population {
        PopulationMode::Populator if waits => Phase::PendingPopulation.into(),
        PopulationMode::Populator => {
            let old = if old == Phase::Unset { Phase::Pending } else { old };
            of_operation(facts, claim, old)
        }
        PopulationMode::Legacy if waits && config::honors_waiting(facts.config) => {
            Phase::WaitForFirstConsumer.into()
        }
        PopulationMode::Legacy => Phase::Pending.into(),
    }
}

/// The phase that follows from the worker's phase. `old` if there is no worker.
fn of_operation(facts: &StatusFacts, claim: &PersistentVolumeClaim, old: Phase) -> Step {
    let pod_phase = meta::worker_phase(&claim.metadata);
    // The PVC that the worker mounts: nothing starts before it is bound.
    let (worked_on, worked_on_is_bound) = match facts.population {
        PopulationMode::Legacy => (Some(claim), meta::claim_phase(claim) == ClaimPhase::Bound),
        PopulationMode::Populator => (
            facts.prime,
            facts.prime.is_some_and(|prime| meta::claim_phase(prime) == ClaimPhase::Bound),
        ),
    };
    let has_annotation =
        |key| worked_on.is_some_and(|worked_on| meta::has_annotation(&worked_on.metadata, key));
    let is_done = pod_phase == PodPhase::Succeeded;
    let name = meta::name(&claim.metadata);
    match facts.operation {
        Operation::Import(_)
            if is_done || worked_on_is_bound && has_annotation(import::POD_NAME) =>
        {
            let is_fatal = meta::is_true(&claim.metadata, import::FATAL_ERROR);
            settled(facts, claim, old, import_step(name, pod_phase, is_fatal, is_paused(claim)))
        }
        Operation::Upload if is_done || worked_on_is_bound => {
            let is_ready = meta::is_true(&claim.metadata, state::POD_READY);
            settled(facts, claim, old, upload_step(name, pod_phase, is_ready))
        }
        Operation::External if meta::claim_phase(claim) == ClaimPhase::Bound => Step {
            phase: Phase::Succeeded,
            event: Some(Event::normal(
                events::EXTERNAL_POPULATION_SUCCEEDED,
                format!("PVC {name} successfully populated by {}", source_of(claim)),
            )),
        },
        Operation::Clone if facts.population == PopulationMode::Populator => {
            clone::of_populator(facts, claim, old)
        }
        Operation::Clone if is_done || worked_on_is_bound => {
            clone::of_copy(facts, claim, pod_phase)
        }
        Operation::Import(_)
        | Operation::Upload
        | Operation::External
        | Operation::Clone
        | Operation::Undecided => old.into(),
    }
}

/// Clients that wait for `Succeeded` use the PVC at once, so the PVC has to be bound first, and the condition `Bound`
/// has to be true: the annotations that report why the PVC was not bound are removed shortly after it is bound.
fn settled(facts: &StatusFacts, claim: &PersistentVolumeClaim, old: Phase, step: Step) -> Step {
    let is_bound = meta::claim_phase(claim) == ClaimPhase::Bound
        && meta::annotation(&claim.metadata, state::BOUND) != Some("false");
    if step.phase != Phase::Succeeded || is_bound {
        return step;
    }
    match (old, facts.operation) {
        (Phase::Pending | Phase::PendingPopulation, Operation::Upload) => {
            Phase::UploadScheduled.into()
        }
        (Phase::Pending | Phase::PendingPopulation, _) => Phase::ImportScheduled.into(),
        _ => old.into(),
    }
}

/// The worker has ended one stage, and checkpoints follow.
fn is_paused(claim: &PersistentVolumeClaim) -> bool {
    meta::has_annotation(&claim.metadata, state::CHECKPOINT_CURRENT)
        && !meta::is_true(&claim.metadata, state::CHECKPOINT_DONE)
}

fn import_step(name: &str, pod_phase: PodPhase, is_fatal: bool, is_paused: bool) -> Step {
    let (phase, event) = match pod_phase {
        PodPhase::Unset | PodPhase::Pending => (
            Phase::ImportScheduled,
            Some(Event::normal(events::IMPORT_SCHEDULED, format!("Import into {name} scheduled"))),
        ),
        PodPhase::Running => (
            Phase::ImportInProgress,
            Some(Event::normal(
                events::IMPORT_IN_PROGRESS,
                format!("Import into {name} in progress"),
            )),
        ),
        PodPhase::Failed => (
            if is_fatal { Phase::Failed } else { Phase::ImportScheduled },
            Some(Event::warning(
                events::IMPORT_FAILED,
                format!("Failed to import into PVC {name}"),
            )),
        ),
        PodPhase::Succeeded if is_paused => (
            Phase::Paused,
            Some(Event::normal(
                events::IMPORT_PAUSED,
                format!("Multistage import into PVC {name} is paused"),
            )),
        ),
        PodPhase::Succeeded => (
            Phase::Succeeded,
            Some(Event::normal(
                events::IMPORT_SUCCEEDED,
                format!("Successfully imported into PVC {name}"),
            )),
        ),
        _ => (Phase::ImportScheduled, None),
    };
    Step { phase, event }
}

fn upload_step(name: &str, pod_phase: PodPhase, is_ready: bool) -> Step {
    let (phase, event) = match (pod_phase, is_ready) {
        (PodPhase::Running, true) => (
            Phase::UploadReady,
            Some(Event::normal(events::UPLOAD_READY, format!("Upload into {name} ready"))),
        ),
        (PodPhase::Pending | PodPhase::Running, _) => (
            Phase::UploadScheduled,
            Some(Event::normal(events::UPLOAD_SCHEDULED, format!("Upload into {name} scheduled"))),
        ),
        (PodPhase::Failed, _) => (
            Phase::UploadScheduled,
            Some(Event::warning(events::UPLOAD_FAILED, format!("Upload into {name} failed"))),
        ),
        (PodPhase::Succeeded, _) => (
            Phase::Succeeded,
            Some(Event::normal(
                events::UPLOAD_SUCCEEDED,
                format!("Successfully uploaded into {name}"),
            )),
        ),
        _ => (Phase::UploadScheduled, None),
    };
    Step { phase, event }
}

/// The name of the PVC's data source.
fn source_of(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    let reference = spec.and_then(|spec| spec.data_source_ref.as_ref()).map(|source| &source.name);
    let local = spec.and_then(|spec| spec.data_source.as_ref()).map(|source| &source.name);
    reference.or(local).map_or("an unknown source", String::as_str)
}
