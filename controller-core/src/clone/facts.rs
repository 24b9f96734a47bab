//! Inputs of the next step of a clone.

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
use crate::bound::ObservedEvent;
use crate::meta::{self, Installation};
use crate::object::ObjectRef;
use crate::plan::Write;
use crate::snapshot::VolumeSnapshot;
use crate::volume::PersistentVolume;

/// Inputs of the next step of a clone.
pub struct Facts<'a> {
    /// The PVC to populate.
    pub target: &'a PersistentVolumeClaim,
    pub source: Source<'a>,
    /// The method, as decided before.
    pub plan: &'a ClonePlan,
    /// The objects that were created for the clone so far, by their [`Names`].
    pub temporary: IntermediateObjects<'a>,
    /// The target's storage class.
    pub class: Option<&'a StorageClass>,
    /// The class of the PVC that is restored from the source, a snapshot, to be copied: the first of its driver.
    pub restore_class: Option<&'a StorageClass>,
    /// Whether space is allocated for all of the target.
    pub preallocation: bool,
    /// Priority class of worker pods.
    pub priority_class: Option<&'a str>,
    /// Timeout of the driver; see [`patience`](super::patience).
    pub patience: Option<Duration>,
    pub now: Timestamp,
    /// The cloner's image.
    pub image: &'a str,
    /// Where worker pods may run.
    pub placement: Option<&'a NodePlacement>,
    /// The effective configuration.
    pub config: Option<&'a CdiConfig>,
    /// For the labels.
    pub installation: &'a Installation,
}

/// The source of a clone.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Claim {
        claim: &'a PersistentVolumeClaim,
        /// Whether it is completely populated.
        populated: bool,
        /// Pods that may write to it ([`writers`](super::writers)).
        writers: &'a [&'a str],
    },
    Snapshot(&'a SnapshotState),
}

impl Source<'_> {
    /// The namespace of the source and of all objects that are created for the clone.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Claim { claim, .. } => meta::namespace(&claim.metadata),
            Self::Snapshot(snapshot) => &snapshot.namespace,
        }
    }
}

/// State of a VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotState {
    pub name: String,
    pub namespace: String,
    pub created_at: Option<Timestamp>,
    /// The storage has taken it: the source may change from now on.
    pub taken: bool,
    /// PVCs can be restored from it.
    pub ready: bool,
    /// The smallest request of such a PVC; zero if the driver does not report it.
    pub restore_size: Option<ByteCount>,
    /// Mode of the volume that it was taken of.
    pub mode: Option<ClaimVolumeMode>,
    /// The error that the driver reports.
    pub error: Option<String>,
    pub is_terminating: bool,
    pub uid: Option<String>,
}

impl SnapshotState {
    /// `None` if it is terminating.
    pub fn delete(&self) -> Option<Write> {
        let mut target = ObjectRef::named::<VolumeSnapshot>(&self.namespace, &self.name);
        target.uid.clone_from(&self.uid);
        (!self.is_terminating).then_some(Write::Delete(target))
    }
}

/// The objects that were created for a clone, in the namespace of the source.
#[derive(Clone, Copy, Default)]
pub struct IntermediateObjects<'a> {
    /// [`Names::claim`].
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The volume of that PVC.
    pub volume: Option<&'a PersistentVolume>,
    /// Events of that PVC.
    pub pvc_warnings: &'a [ObservedEvent],
    /// [`Names::source_claim`].
    pub source_claim: Option<&'a PersistentVolumeClaim>,
    /// [`Names::snapshot`].
    pub snapshot: Option<&'a SnapshotState>,
    /// [`Names::pod`].
    pub pod: Option<&'a Pod>,
}

/// Names of the objects that are created for a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The PVC whose volume is rebound to the target.
    pub claim: String,
    /// The PVC that is restored from a snapshot, to be copied.
    pub source_claim: String,
    pub snapshot: String,
    /// The pod that causes a PVC to be bound and expanded.
    pub pod: String,
}

impl Names {
    /// For the target with this UID. A copy after a failure of the driver has a PVC of another name: the driver may
    /// take long to delete the first one.
    pub fn for_plan(target_uid: &str, plan: &ClonePlan) -> Self {
        let note = plan.fallback().map(ToString::to_string);
        Self::after(target_uid, note.as_deref())
    }

    /// For a target, by the plan in its annotations.
    pub fn noted(target: &ObjectMeta) -> Self {
        Self::after(meta::uid(target), meta::annotation(target, state::CLONE_FALLBACK_REASON))
    }

    fn after(target_uid: &str, fallback: Option<&str>) -> Self {
        let is_late = fallback.is_some_and(Fallback::is_driver_failure);
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
        Names::for_plan(meta::uid(&self.target.metadata), self.plan)
    }

    /// The size that the target requests.
    pub(super) fn wanted(&self) -> Option<ByteCount> {
        meta::bytes(meta::requested(self.target)?)
    }
}
