//! The next step of a clone.

use api::ClaimPhase;
use std::time::Duration;

use contract::ByteCount;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, Pod};

use super::facts::Facts;
use super::objects::Snapshot;
use super::plan::ClonePlan;
use super::reason::Fallback;
use super::steps;
use crate::event::Event;
use crate::meta;

/// How far a clone is: value of the annotation `clonePhase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not begun.
    Pending,
    /// A snapshot is taken.
    Snapshot,
    /// A claim is made of a snapshot.
    SnapshotClone,
    /// A claim is made of a claim.
    CsiClone,
    /// That claim is bound and grown.
    PrepClaim,
    /// Pods copy.
    HostClone,
    /// The volume goes to the target.
    Rebind,
    /// It has.
    Succeeded,
    /// Something is in the way.
    Error,
}

impl Phase {
    /// As on the wire.
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

/// Something to be done. Each may be repeated without harm.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make a claim.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Take a snapshot.
    CreateSnapshot(Snapshot),
    /// Start a pod.
    CreatePod(Box<Pod>),
    /// Let a claim ask for more.
    RaiseRequest {
        /// Its name, in the namespace of the source.
        claim: String,
        /// What it asks for then.
        to: ByteCount,
    },
    /// Give the volume of the claim that was filled to the target.
    Rebind {
        /// The volume.
        volume: String,
        /// Whom it names from then on.
        to: Box<ObjectReference>,
    },
    /// Delete a claim.
    DeleteClaim(String),
    /// Delete a snapshot.
    DeleteSnapshot(String),
    /// Delete a pod.
    DeletePod(String),
}

/// What to do now, and what to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// How far it is.
    pub phase: Phase,
    /// In this order.
    pub actions: Vec<Action>,
    /// On the target.
    pub events: Vec<Event>,
    /// What it waits for, as a sentence for the DataVolume. Empty: for what was just asked for.
    pub waits_for: String,
    /// Nobody is going to tell that something has changed.
    pub look_again: Option<Duration>,
    /// From now on it is a copy, for this reason. To be noted before anything is done.
    pub fallback: Option<Fallback>,
}

impl Step {
    pub(super) fn new(phase: Phase) -> Self {
        Self {
            phase,
            actions: Vec::new(),
            events: Vec::new(),
            waits_for: String::new(),
            look_again: None,
            fallback: None,
        }
    }

    pub(super) fn doing(phase: Phase, action: Action) -> Self {
        Self { actions: vec![action], ..Self::new(phase) }
    }

    pub(super) fn waiting(phase: Phase, waits_for: impl Into<String>) -> Self {
        Self { waits_for: waits_for.into(), ..Self::new(phase) }
    }

    pub(super) fn again(self, seconds: u64) -> Self {
        Self { look_again: Some(Duration::from_secs(seconds)), ..self }
    }
}

/// What is in the way of a clone, for as long as nobody changes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver does not say how large a snapshot is.
    #[error("snapshot {name:?} does not say how large a claim made of it has to be")]
    NoRestoreSize {
        /// The snapshot.
        name: String,
    },
    /// The snapshot cannot be read by anybody.
    #[error("there is no storage class of the driver that took snapshot {name:?}")]
    NoRestoreClass {
        /// The snapshot.
        name: String,
    },
    /// The target asks for nothing.
    #[error("the target requests no storage")]
    NoRequest,
    /// The volume that was filled has gone elsewhere.
    #[error("volume {volume:?} belongs neither to {claim:?} nor to the target")]
    VolumeTaken {
        /// The volume.
        volume: String,
        /// The claim that was filled.
        claim: String,
    },
}

type Next = fn(&Facts) -> Result<Option<Step>, Error>;

/// The first step that is not done yet.
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
    // The target shows by itself that it has its volume.
    Ok(Step::waiting(Phase::Rebind, "the volume to be bound to the target"))
}

/// Something that was found with the label of a target's UID, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// Its name.
    pub name: String,
    /// Somebody has deleted it already.
    pub leaving: bool,
}

/// What a [`Leftover`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftoverKind {
    /// A claim.
    Claim,
    /// A snapshot.
    Snapshot,
    /// A pod.
    Pod,
}

/// Deletes what was made for a clone, whatever became of it: pods first, as they hold claims, and snapshots last, as claims
/// may be made of them. Once this is empty the target's finalizer may go: what a driver takes its time to delete holds up
/// nobody.
pub fn cleanup(all: &[Leftover]) -> Vec<Action> {
    let order = [LeftoverKind::Pod, LeftoverKind::Claim, LeftoverKind::Snapshot];
    let of = |kind| all.iter().filter(move |found| found.kind == kind && !found.leaving);
    let delete = |found: &Leftover| {
        let name = found.name.clone();
        match found.kind {
            LeftoverKind::Claim => Action::DeleteClaim(name),
            LeftoverKind::Snapshot => Action::DeleteSnapshot(name),
            LeftoverKind::Pod => Action::DeletePod(name),
        }
    };
    order.into_iter().flat_map(of).map(delete).collect()
}
