//! StorageProfile: the properties of a storage class.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;

/// Settings of the administrator, which override what the controller detects.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "StorageProfile",
    plural = "storageprofiles",
    status = "StorageProfileStatus",
    derive = "PartialEq",
    doc = "A StorageProfile describes the storage class of the same name. DataVolumes with spec.storage \
           are completed from it."
)]
#[serde(rename_all = "camelCase")]
pub struct StorageProfileSpec {
    /// How PVCs of this class are cloned: copy, snapshot or csi-clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_strategy: Option<String>,
    /// Access and volume modes of PVCs of this class; the first that fits is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub claim_property_sets: Option<Vec<ClaimPropertySet>>,
    /// Format in which DataImportCrons keep imported disks: pvc or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_import_cron_source_format: Option<String>,
    /// The VolumeSnapshotClass to take snapshots with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
}

/// Access and volume modes of a PVC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPropertySet {
    /// Access modes of the PVC.
    #[schemars(
        length(max = 4),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(mode, mode in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])",
            "message": "Illegal AccessMode",
        }]),
        inner(length(max = 32))
    )]
    pub access_modes: Vec<String>,
    /// Volume mode of the PVC: Block or Filesystem.
    pub volume_mode: ClaimVolumeMode,
}

/// How a pod sees the volume.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ClaimVolumeMode {
    /// A device.
    Block,
    /// A file system.
    Filesystem,
}

impl ClaimVolumeMode {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Block => "Block",
            Self::Filesystem => "Filesystem",
        }
    }
}

/// Effective properties of the class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageProfileStatus {
    /// Name of the storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// The class's provisioner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// How PVCs of this class are cloned: copy, snapshot or csi-clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_strategy: Option<String>,
    /// Access and volume modes of PVCs of this class; the first that fits is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub claim_property_sets: Option<Vec<ClaimPropertySet>>,
    /// Format in which DataImportCrons keep imported disks: pvc or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_import_cron_source_format: Option<String>,
    /// The VolumeSnapshotClass that snapshots are taken with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
    /// Recognized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
