//! The next step of a clone.

use api::ClaimPhase;
use std::time::Duration;

use super::facts::Facts;
use super::plan::ClonePlan;
use super::reason::Fallback;
use super::steps;
use crate::event::Event;
use crate::meta;
use crate::object::{ObjectKind, ObjectRef, Writable};
use crate::plan::Write;

/// Phase of a clone: value of the annotation `clonePhase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started.
    Pending,
    /// The storage takes a snapshot.
    Snapshot,
    /// The storage restores a snapshot to a PVC.
    SnapshotClone,
    /// The storage clones the PVC.
    CsiClone,
    /// That PVC is bound and expanded.
    PrepClaim,
    /// Pods copy.
    HostClone,
    /// The volume is rebound to the target.
    Rebind,
    Succeeded,
    /// Blocked by an [`Error`].
    Error,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Snapshot => "Snapshot",
            Self::SnapshotClone => "SnapshotClone",
            Self::CsiClone => "CSIClone",
            Self::PrepClaim => "PrepClaim",
            Self::HostClone => "HostClone",
            Self::Rebind => "Rebind",
            Self::Succeeded => "Succeeded",
            Self::Error => "Error",
        }
    }
}

/// The writes and reports of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub phase: Phase,
    /// In this order, after the fallback and the progress are written to the target.
    pub writes: Vec<Write>,
    /// On the target.
    pub events: Vec<Event>,
    /// What it waits for, for the message in the DataVolume. Empty: for the objects that were just requested.
    pub waits_for: String,
    /// Set if no watch event reports the awaited change.
    pub look_again: Option<Duration>,
    /// The clone becomes a copy, for this reason. To be written to the target before `writes`.
    pub fallback: Option<Fallback>,
}

impl Step {
    pub(super) fn new(phase: Phase) -> Self {
        Self {
            phase,
            writes: Vec::new(),
            events: Vec::new(),
            waits_for: String::new(),
            look_again: None,
            fallback: None,
        }
    }

    pub(super) fn writing(phase: Phase, write: impl Into<Option<Write>>) -> Self {
        Self { writes: write.into().into_iter().collect(), ..Self::new(phase) }
    }

    pub(super) fn waiting(phase: Phase, waits_for: impl Into<String>) -> Self {
        Self { waits_for: waits_for.into(), ..Self::new(phase) }
    }

    pub(super) fn again(self, seconds: u64) -> Self {
        Self { look_again: Some(Duration::from_secs(seconds)), ..self }
    }
}

/// What blocks a clone until a client changes an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver does not report the size of a snapshot.
    #[error("snapshot {name:?} has no restoreSize in its status")]
    NoRestoreSize { name: String },
    /// The snapshot cannot be restored.
    #[error("there is no storage class of the driver that took snapshot {name:?}")]
    NoRestoreClass { name: String },
    #[error("the target requests no storage")]
    NoRequest,
    /// The populated volume is bound to another PVC.
    #[error("volume {volume:?} belongs neither to {claim:?} nor to the target")]
    VolumeTaken {
        volume: String,
        /// The PVC that was populated.
        claim: String,
    },
}

type Next = fn(&Facts) -> Result<Option<Step>, Error>;

/// The first step that is not complete yet.
///
/// # Errors
/// [`Error`].
pub fn advance(facts: &Facts) -> Result<Step, Error> {
    if meta::claim_phase(facts.target) == ClaimPhase::Bound {
        return Ok(Step::new(Phase::Succeeded));
    }
    let all: &[Next] = match facts.plan {
        ClonePlan::CsiClone => &[steps::csi_clone, steps::prepare, steps::rebind],
        ClonePlan::Snapshot { .. } => {
            &[steps::snapshot, steps::restore, steps::prepare, steps::rebind]
        }
        ClonePlan::Restore => &[steps::restore, steps::prepare, steps::rebind],
        ClonePlan::Copy { .. } => &[steps::host_clone, steps::rebind],
        ClonePlan::RestoreAndCopy { .. } => {
            &[steps::restore_source, steps::prepare_source, steps::host_clone, steps::rebind]
        }
    };
    for step in all {
        if let Some(step) = step(facts)? {
            return Ok(step);
        }
    }
    // Kubernetes sets the phase of the target once it is bound.
    Ok(Step::waiting(Phase::Rebind, "the volume to be bound to the target"))
}

/// An object with the label of a target's UID, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedObject {
    pub reference: ObjectRef,
    pub is_terminating: bool,
}

impl OrphanedObject {
    pub fn from_object<K: Writable>(object: &K) -> Self {
        let is_terminating = object.meta().deletion_timestamp.is_some();
        Self { reference: ObjectRef::for_object(object), is_terminating }
    }
}

/// Deletes the objects of a clone in any state: pods first, as they hold PVCs, and snapshots last, as PVCs
/// may be restored from them. Once nothing is left to delete the target's finalizer is removed: a driver that takes
/// long to delete an object delays no other client.
pub fn delete_orphans(all: &[OrphanedObject]) -> Vec<Write> {
    let order = [ObjectKind::Pod, ObjectKind::PersistentVolumeClaim, ObjectKind::VolumeSnapshot];
    let of_kind =
        |kind| all.iter().filter(move |it| it.reference.kind == kind && !it.is_terminating);
    let found = order.into_iter().flat_map(of_kind);
    found.map(|found| Write::Delete(found.reference.clone())).collect()
}
