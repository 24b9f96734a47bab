//! What decisions about a DataVolume depend on, and what they come to.

use std::sync::Arc;

use api::v1beta1::{
    CdiConfig, CdiConfigSpec, DataVolume, NodePlacement, StorageProfile, VolumeCloneSource,
    VolumeImportSource, VolumeUploadSource,
};
use auth::token::TokenError;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::bound::ObservedEvent;
use crate::clone::{HeldToken, Origin, SnapshotState};
use crate::meta::{Installation, Pairs};
use crate::operation::{InvalidPopulationMode, Operation, PopulationMode};
use crate::plan::Plan;
use crate::snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use crate::volume::PersistentVolume;

/// What is known about one DataVolume. All but `lookups` comes from the cache.
pub struct DataVolumeFacts {
    pub volume: Arc<DataVolume>,
    pub operation: Operation,
    pub population: Result<PopulationMode, InvalidPopulationMode>,
    /// An ObjectTransfer that has not ended is going to create it again elsewhere.
    pub is_in_transfer: bool,
    /// The PVC of its name.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
    /// The prime PVC of `claim`.
    pub prime: Option<Arc<PersistentVolumeClaim>>,
    /// Warnings about `claim`.
    pub pvc_warnings: Vec<ObservedEvent>,
    pub classes: Arc<Vec<StorageClass>>,
    /// Names of the CSI drivers.
    pub drivers: Vec<String>,
    pub config: CdiConfigSpec,
    pub import_source: Option<Arc<VolumeImportSource>>,
    pub upload_source: Option<Arc<VolumeUploadSource>>,
    /// Of clones only.
    pub clone: CloneRequestFacts,
    pub lookups: LookupResults,
}

/// What a clone is made of.
#[derive(Default)]
pub struct CloneRequestFacts {
    /// As recorded when the PVC was created, else as the DataVolume requests now. `None`: its DataSource refers to nothing.
    pub origin: Option<Origin>,
    /// As the DataVolume requests now.
    pub requested: Option<Origin>,
    /// `None`: there is no such object.
    pub source: Option<CloneSourceObject>,
    /// Labels of the DataSource that the DataVolume names with its namespace, if it may read them.
    pub data_source_labels: Option<Pairs>,
    /// The PVC that has the name of what is restored from the snapshot, of any client.
    pub restored: Option<Arc<PersistentVolumeClaim>>,
    /// VolumeCloneSources with the name that belongs to the DataVolume, in any namespace.
    pub clone_sources: Vec<Arc<VolumeCloneSource>>,
}

pub enum CloneSourceObject {
    Claim(Arc<PersistentVolumeClaim>),
    Snapshot(Arc<VolumeSnapshot>),
}

/// A fact that is looked up only if all else permits the action that needs it.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// Volumes that are reserved for the DataVolume: in the cache, else at the API server. A volume that was reserved recently
    /// may not be in the cache; to overlook it would be to import over it.
    ReservedVolumes,
    /// What a new PVC depends on.
    PvcSettings,
    SnapshotContent(Arc<VolumeSnapshot>),
    /// Whether the tokens of the DataVolume allow it to be cloned from this.
    ClonePermission(Origin),
    /// A token that allows cloning to this object, bound to its UID.
    ExtendedToken {
        origin: Origin,
        target: Box<ObjectMeta>,
    },
    /// The PVC that becomes of this snapshot for pods to copy.
    RestoredSource(Origin),
    /// The mark of such a PVC, which only this controller can sign.
    RestoredMark(Origin),
    /// The progress of the worker that fills the PVC itself.
    Progress,
}

/// `None`: not looked up.
#[derive(Default)]
pub struct LookupResults {
    pub reserved_volumes: Option<Vec<Arc<PersistentVolume>>>,
    pub pvc_settings: Option<PvcSettings>,
    pub snapshot_content: Option<Option<VolumeSnapshotContent>>,
    pub clone_permission: Option<Result<HeldToken, CloneNotAllowed>>,
    pub extended_token: Option<String>,
    pub restored_source: Option<RestoredSourceFacts>,
    pub restored_mark: Option<String>,
    /// In percent; the inner `None`: no worker responds.
    pub progress: Option<Option<f64>>,
}

/// What a new PVC depends on.
pub struct PvcSettings {
    pub config: Option<Arc<CdiConfig>>,
    pub profiles: Arc<Vec<StorageProfile>>,
    /// The volumes of the requested class, if there is no such class.
    pub volumes: Vec<PersistentVolume>,
    pub installation: Installation,
}

/// The PVC that becomes of a snapshot, and what it depends on.
pub struct RestoredSourceFacts {
    /// The PVC of that name, and whether it has the controller's mark for this DataVolume.
    pub claim: Option<(Arc<PersistentVolumeClaim>, IsMarked)>,
    pub pvc_warnings: Vec<ObservedEvent>,
    pub snapshot: Option<SnapshotState>,
    /// Of the PVC; if there is none, the first class of the snapshot's driver.
    pub class: Option<Arc<StorageClass>>,
    /// Of that class.
    pub profile: Option<Arc<StorageProfile>>,
    /// The pod that binds the PVC.
    pub pod: Option<Arc<Pod>>,
    pub cloner_image: String,
    pub placement: Option<NodePlacement>,
    pub config: Option<Arc<CdiConfig>>,
    pub installation: Installation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsMarked {
    Yes,
    No,
}

/// No token allows the clone.
#[derive(Clone, Debug)]
pub struct CloneNotAllowed {
    /// What was to be cloned.
    pub origin: String,
    /// `namespace/name` of the target.
    pub target: String,
    pub source: Option<Arc<TokenError>>,
    /// The error with all its causes.
    pub message: String,
}

/// What follows from the facts.
pub enum Decision {
    LookUp(Lookup),
    Execute(Plan),
    /// Execute the plan, then fail: the queue retries with back-off.
    ExecuteAndFail(Plan, Failure),
}

/// Why a DataVolume cannot be reconciled.
#[derive(Clone, Debug)]
pub enum Failure {
    PopulationMode(InvalidPopulationMode),
    InvalidPvc(crate::claim::Error),
    /// The PVC for a static volume was bound to another one.
    UnexpectedVolume {
        volume: String,
    },
    CloneNotAllowed(CloneNotAllowed),
}

impl DataVolumeFacts {
    pub(super) fn is_clone(&self) -> bool {
        self.operation == Operation::Clone
    }
}
