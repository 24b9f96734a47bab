//! How far an import is, as its DataVolume, claim and snapshot tell: all three have its name.

use api::ClaimPhase;
use api::Phase;
use api::annotations::cron as key;
use api::conditions::{self as wire, reason, status};
use api::v1beta1::DataVolume;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::conditions::{Said, find};
use crate::meta;
use crate::snapshot::VolumeSnapshot;

/// What there is of an import.
#[derive(Clone, Copy, Debug)]
pub(super) struct Import<'a> {
    pub(super) volume: Option<&'a DataVolume>,
    pub(super) claim: Option<&'a PersistentVolumeClaim>,
    pub(super) snapshot: Option<&'a VolumeSnapshot>,
    /// Some of it is on its way out, so nothing can be made of that name.
    pub(super) is_going: bool,
}

/// How far an import is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The image is on a claim.
    Claim,
    /// The image is in a snapshot only, or is going to be.
    Snapshot,
    /// It is being imported, or waits for something.
    Running {
        /// What the condition `Progressing` says.
        said: Said,
        /// What went wrong, where something did.
        error: Option<String>,
    },
    /// There is nothing of it.
    Nothing,
}

impl<'a> Import<'a> {
    /// What there is under this name. What is being deleted is not there any more, though its name is.
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
            is_going: false,
        };
        let is_going = volume.is_some() != found.volume.is_some()
            || claim.is_some() != found.claim.is_some()
            || snapshot.is_some() != found.snapshot.is_some();
        Self { is_going, ..found }
    }

    pub(super) fn state(&self) -> State {
        let Some(volume) = self.volume else {
            return match (self.claim, self.snapshot) {
                (Some(claim), _) if meta::claim_phase(claim) == ClaimPhase::Bound => State::Claim,
                (_, Some(_)) => State::Snapshot,
                (Some(_), None) => State::Running { said: progressing(), error: None },
                (None, None) => State::Nothing,
            };
        };
        let phase = phase_of(volume);
        let said = if phase == Phase::Succeeded.as_str() {
            return State::Claim;
        } else if phase == Phase::ImportScheduled.as_str() {
            Said::new(status::FALSE, reason::IMPORT_SCHEDULED, "Import is scheduled")
        } else if phase == Phase::ImportInProgress.as_str() {
            progressing()
        } else {
            Said::new(status::FALSE, phase, format!("Import DataVolume phase {phase}"))
        };
        let is_over = phase == Phase::Failed.as_str();
        let error = error_of(volume).or_else(|| is_over.then(|| said.message.clone()));
        State::Running { said, error }
    }

    /// The class of the claim. `None`: nobody knows.
    pub(super) fn class(&self) -> Option<&'a str> {
        let class = self.claim?.spec.as_ref()?.storage_class_name.as_deref();
        class.filter(|class| !class.is_empty())
    }

    /// A snapshot that may be restored.
    pub(super) fn ready_snapshot(&self) -> Option<&'a VolumeSnapshot> {
        self.snapshot.filter(|snapshot| snapshot.is_ready())
    }
}

/// Of a DataVolume; empty for one that is brand new.
pub(super) fn phase_of(volume: &DataVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn progressing() -> Said {
    Said::new(status::TRUE, reason::IMPORT_PROGRESSING, "Import is progressing")
}

/// What an import that does not get on says. It may yet: its worker tries again.
fn error_of(volume: &DataVolume) -> Option<String> {
    let conditions = volume.status.as_ref()?.conditions.as_deref()?;
    let running = find(conditions, wire::RUNNING)?;
    let said = running.reason.as_deref().unwrap_or_default();
    let is_error = running.status == status::FALSE
        && [reason::ERROR, reason::IMAGE_PULL_FAILED, reason::CHECKSUM_ERROR].contains(&said);
    is_error.then(|| running.message.clone().unwrap_or_default())
}

/// When something was last of use; what does not say was never.
pub(super) fn last_use(metadata: &ObjectMeta) -> Option<Timestamp> {
    meta::annotation(metadata, key::LAST_USE_TIME)?.parse().ok()
}
