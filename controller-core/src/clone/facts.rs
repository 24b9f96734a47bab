//! What the next step of a clone depends on.

use std::time::Duration;

use api::annotations::state;
use api::v1beta1::{CdiConfig, ClaimVolumeMode, NodePlacement};
use contract::ByteCount;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::plan::ClonePlan;
use super::reason::Fallback;
use crate::bound::Seen;
use crate::meta::{self, Installation};
use crate::object::ObjectRef;
use crate::plan::Write;
use crate::snapshot::VolumeSnapshot;
use crate::volume::PersistentVolume;

/// What the next step of a clone depends on.
pub struct Facts<'a> {
    /// The claim that is to be filled.
    pub target: &'a PersistentVolumeClaim,
    /// What it is filled with.
    pub source: Source<'a>,
    /// How, as it was decided.
    pub plan: &'a ClonePlan,
    /// What was made for it so far, by the names of [`Names`].
    pub temporary: Temporary<'a>,
    /// The target's class.
    pub class: Option<&'a StorageClass>,
    /// The class of claims that are made of the source, a snapshot, to be copied: the first of its driver.
    pub restore_class: Option<&'a StorageClass>,
    /// Every byte of the target is to have its room.
    pub preallocation: bool,
    /// Priority class of pods.
    pub priority_class: Option<&'a str>,
    /// How long a driver has; see [`patience`](super::patience).
    pub patience: Option<Duration>,
    /// The clock.
    pub now: Timestamp,
    /// The cloner's image.
    pub image: &'a str,
    /// Where worker pods may run.
    pub placement: Option<&'a NodePlacement>,
    /// The settings in force.
    pub config: Option<&'a CdiConfig>,
    /// For the labels.
    pub installation: &'a Installation,
}

/// What is cloned.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A claim.
    Claim {
        /// The claim.
        claim: &'a PersistentVolumeClaim,
        /// Nobody is still filling it.
        populated: bool,
        /// Pods that may write to it ([`writers`](super::writers)).
        writers: &'a [&'a str],
    },
    /// A VolumeSnapshot.
    Snapshot(&'a SnapshotState),
}

impl Source<'_> {
    /// Where it is, and everything that is made for the clone.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Claim { claim, .. } => meta::namespace(&claim.metadata),
            Self::Snapshot(snapshot) => &snapshot.namespace,
        }
    }
}

/// A VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotState {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// When the object was made.
    pub made_at: Option<Timestamp>,
    /// The storage has it: from now on the source may change.
    pub taken: bool,
    /// Claims can be made of it.
    pub ready: bool,
    /// The least that they have to request; zero where the driver does not tell.
    pub restore_size: Option<ByteCount>,
    /// Of the volume that it was taken of.
    pub mode: Option<ClaimVolumeMode>,
    /// What the driver complains of.
    pub error: Option<String>,
    /// It is terminating.
    pub leaving: bool,
    pub uid: Option<String>,
}

impl SnapshotState {
    /// `None` where it is terminating.
    pub fn delete(&self) -> Option<Write> {
        let mut target = ObjectRef::named::<VolumeSnapshot>(&self.namespace, &self.name);
        target.uid.clone_from(&self.uid);
        (!self.leaving).then_some(Write::Delete(target))
    }
}

/// What was made for a clone. All of it lies in the namespace of the source.
#[derive(Clone, Copy, Default)]
pub struct Temporary<'a> {
    /// [`Names::claim`], and its volume, and what was told of it.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The volume of that claim.
    pub volume: Option<&'a PersistentVolume>,
    /// The events of that claim.
    pub told: &'a [Seen],
    /// [`Names::source_claim`].
    pub source_claim: Option<&'a PersistentVolumeClaim>,
    /// [`Names::snapshot`].
    pub snapshot: Option<&'a SnapshotState>,
    /// [`Names::pod`].
    pub pod: Option<&'a Pod>,
}

/// Names of what is made for a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The claim whose volume goes to the target.
    pub claim: String,
    /// The claim that a snapshot becomes, to be copied.
    pub source_claim: String,
    /// The snapshot.
    pub snapshot: String,
    /// The pod that binds and grows a claim.
    pub pod: String,
}

impl Names {
    /// For the target with this UID. A copy that follows on a driver's failure has a claim of another name: the first may
    /// take as long to go as it took to come to nothing.
    pub fn of(target_uid: &str, plan: &ClonePlan) -> Self {
        let note = plan.fallback().map(ToString::to_string);
        Self::after(target_uid, note.as_deref())
    }

    /// For a target as it is, by what is noted on it.
    pub fn noted(target: &ObjectMeta) -> Self {
        Self::after(meta::uid(target), meta::annotation(target, state::CLONE_FALLBACK_REASON))
    }

    fn after(target_uid: &str, fallback: Option<&str>) -> Self {
        let is_late = fallback.is_some_and(Fallback::tells_of_driver);
        let claim = if is_late { "tmp-copy-pvc" } else { "tmp-pvc" };
        Self {
            claim: format!("{claim}-{target_uid}"),
            source_claim: format!("tmp-source-pvc-{target_uid}"),
            snapshot: format!("tmp-snapshot-{target_uid}"),
            pod: format!("prep-{target_uid}"),
        }
    }
}

impl Facts<'_> {
    pub(super) fn names(&self) -> Names {
        Names::of(meta::uid(&self.target.metadata), self.plan)
    }

    /// What the target asks for.
    pub(super) fn wanted(&self) -> Option<ByteCount> {
        meta::bytes(meta::requested(self.target)?)
    }
}
