//! State of an import, by its DataVolume, PVC and snapshot, which all have its name.

use api::ClaimPhase;
use api::Phase;
use api::annotations::cron as key;
use api::conditions::{self as wire, reason, status};
use api::v1beta1::DataVolume;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::conditions::{ConditionState, find};
use crate::meta;
use crate::snapshot::VolumeSnapshot;

/// The objects of an import.
#[derive(Clone, Copy, Debug)]
pub(super) struct Import<'a> {
    pub(super) volume: Option<&'a DataVolume>,
    pub(super) claim: Option<&'a PersistentVolumeClaim>,
    pub(super) snapshot: Option<&'a VolumeSnapshot>,
    /// One of its objects is terminating, so no object of that name can be created.
    pub(super) is_terminating: bool,
}

/// State of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The image is on a PVC.
    Claim,
    /// The image is in a snapshot only, or will be.
    Snapshot,
    /// It is being imported, or waits for another object.
    Running {
        /// The condition `Progressing`.
        progressing: ConditionState,
        /// Why it fails, if it does.
        error: Option<String>,
    },
    /// It has no objects.
    Nothing,
}

impl<'a> Import<'a> {
    /// The objects of this name, without terminating ones.
    pub(super) fn find(
        name: &str,
        volumes: &'a [DataVolume],
        claims: &'a [PersistentVolumeClaim],
        snapshots: &'a [VolumeSnapshot],
    ) -> Self {
        let has_name = |metadata: &ObjectMeta| metadata.name.as_deref() == Some(name);
        let stays = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_none();
        let volume = volumes.iter().find(|object| has_name(&object.metadata));
        let claim = claims.iter().find(|object| has_name(&object.metadata));
        let snapshot = snapshots.iter().find(|object| has_name(&object.metadata));
        let found = Self {
            volume: volume.filter(|object| stays(&object.metadata)),
            claim: claim.filter(|object| stays(&object.metadata)),
            snapshot: snapshot.filter(|object| stays(&object.metadata)),
            is_terminating: false,
        };
        let is_terminating = volume.is_some() != found.volume.is_some()
            || claim.is_some() != found.claim.is_some()
            || snapshot.is_some() != found.snapshot.is_some();
        Self { is_terminating, ..found }
    }

    pub(super) fn state(&self) -> State {
        let Some(volume) = self.volume else {
            return match (self.claim, self.snapshot) {
                (Some(claim), _) if meta::claim_phase(claim) == ClaimPhase::Bound => State::Claim,
                (_, Some(_)) => State::Snapshot,
                (Some(_), None) => State::Running { progressing: in_progress(), error: None },
                (None, None) => State::Nothing,
            };
        };
        let phase = phase_of(volume);
        let progressing = if phase == Phase::Succeeded.as_str() {
            return State::Claim;
        } else if phase == Phase::ImportScheduled.as_str() {
            ConditionState::new(status::FALSE, reason::IMPORT_SCHEDULED, "Import is scheduled")
        } else if phase == Phase::ImportInProgress.as_str() {
            in_progress()
        } else {
            ConditionState::new(status::FALSE, phase, format!("Import DataVolume phase {phase}"))
        };
        let is_over = phase == Phase::Failed.as_str();
        let error = error_of(volume).or_else(|| is_over.then(|| progressing.message.clone()));
        State::Running { progressing, error }
    }

    /// The storage class of the PVC, if known.
    pub(super) fn class(&self) -> Option<&'a str> {
        let class = self.claim?.spec.as_ref()?.storage_class_name.as_deref();
        class.filter(|class| !class.is_empty())
    }

    /// The snapshot, if it can be restored.
    pub(super) fn ready_snapshot(&self) -> Option<&'a VolumeSnapshot> {
        self.snapshot.filter(|snapshot| snapshot.is_ready())
    }
}

/// Empty for a new DataVolume.
pub(super) fn phase_of(volume: &DataVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn in_progress() -> ConditionState {
    ConditionState::new(status::TRUE, reason::IMPORT_PROGRESSING, "Import is progressing")
}

/// The error of an import that fails. It may still succeed: its worker retries.
fn error_of(volume: &DataVolume) -> Option<String> {
    let conditions = volume.status.as_ref()?.conditions.as_deref()?;
    let running = find(conditions, wire::RUNNING)?;
    let reason = running.reason.as_deref().unwrap_or_default();
    let is_error = running.status == status::FALSE
        && [reason::ERROR, reason::IMAGE_PULL_FAILED, reason::CHECKSUM_ERROR].contains(&reason);
    is_error.then(|| running.message.clone().unwrap_or_default())
}

/// When an object was last used. `None` without the annotation.
pub(super) fn last_use(metadata: &ObjectMeta) -> Option<Timestamp> {
    meta::annotation(metadata, key::LAST_USE_TIME)?.parse().ok()
}
