//! StorageProfile: what a storage class is good for.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;

/// What the administrator knows better than the controller.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "StorageProfile",
    plural = "storageprofiles",
    status = "StorageProfileStatus",
    derive = "PartialEq",
    doc = "A StorageProfile says what the storage class of the same name is good for. DataVolumes with spec.storage \
           are completed from it."
)]
#[serde(rename_all = "camelCase")]
pub struct StorageProfileSpec {
    /// How claims of this class are cloned: copy, snapshot or csi-clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_strategy: Option<String>,
    /// What claims of this class may be; the first that fits is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub claim_property_sets: Option<Vec<ClaimPropertySet>>,
    /// What DataImportCrons keep imported disks as: pvc or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_import_cron_source_format: Option<String>,
    /// The VolumeSnapshotClass to take snapshots with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
}

/// One way to make claims of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPropertySet {
    /// Access modes of the claim.
    #[schemars(
        length(max = 4),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(mode, mode in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])",
            "message": "Illegal AccessMode",
        }]),
        inner(length(max = 32))
    )]
    pub access_modes: Vec<String>,
    /// Volume mode of the claim: Block or Filesystem.
    pub volume_mode: ClaimVolumeMode,
}

/// How a volume is handed to a pod.
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

/// What holds for the class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageProfileStatus {
    /// Name of the storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// The class's provisioner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// How claims of this class are cloned: copy, snapshot or csi-clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_strategy: Option<String>,
    /// What claims of this class may be; the first that fits is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub claim_property_sets: Option<Vec<ClaimPropertySet>>,
    /// What DataImportCrons keep imported disks as: pvc or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_import_cron_source_format: Option<String>,
    /// The VolumeSnapshotClass that snapshots are taken with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
    /// Recognized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
