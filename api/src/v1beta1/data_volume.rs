//! DataVolume: a disk and its source.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimSpec, TypedLocalObjectReference, TypedObjectReference,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::source::DataVolumeSource;

/// The requested disk and its source.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "DataVolume",
    plural = "datavolumes",
    namespaced,
    shortname = "dv",
    shortname = "dvs",
    category = "all",
    status = "DataVolumeStatus",
    derive = "PartialEq",
    doc = "A DataVolume requests a disk from a source. Its PVC has the same name.",
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "Phase of the DataVolume"}"#,
    printcolumn = r#"{"name": "Progress", "type": "string", "jsonPath": ".status.progress", "description": "Share of the content that is transferred"}"#,
    printcolumn = r#"{"name": "Restarts", "type": "integer", "jsonPath": ".status.restartCount", "description": "Restarts of the worker"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.pvc) || has(self.storage)", "message": "Missing Data volume PVC" },
    {
        "rule": "!(has(self.pvc) && has(self.storage))",
        "message": "Duplicate storage definition, both target storage and target pvc defined",
    },
    {
        "rule": "has(self.pvc) && (has(self.pvc.dataSource) || has(self.pvc.dataSourceRef)) || \
                 has(self.storage) && (has(self.storage.dataSource) || has(self.storage.dataSourceRef)) ? \
                 !has(self.source) && !has(self.sourceRef) : true",
        "message": "External population is incompatible with Source and SourceRef",
    },
    {
        "rule": "has(self.pvc) && (has(self.pvc.dataSource) || has(self.pvc.dataSourceRef)) || \
                 has(self.storage) && (has(self.storage.dataSource) || has(self.storage.dataSourceRef)) ? \
                 true : has(self.source) != has(self.sourceRef)",
        "message": "Data volume should have either Source or SourceRef, or be externally populated",
    },
]))]
pub struct DataVolumeSpec {
    /// Where the content comes from. Not together with sourceRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DataVolumeSource>,
    /// A DataSource that refers to the source. Not together with source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<DataVolumeSourceRef>,
    /// The PVC to create, used unchanged. Not together with storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PersistentVolumeClaimSpec>,
    /// Requirements of the PVC: its size is that of the disk, and absent values come from the StorageProfile.
    /// Not together with pvc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
    /// Priority class of the worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Service account of the worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// What the source holds: a disk image (kubevirt, the default) or a tar archive of files (archive).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "content_type_schema")]
    pub content_type: Option<ContentType>,
    /// Checkpoints of a multi-stage import, while the source is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Vec<Checkpoint>>,
    /// Whether the last checkpoint ends the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_checkpoint: Option<bool>,
    /// Whether the disk is preallocated. Default: the CDIConfig's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
}

/// What a source holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    /// A disk image. Some clients write an absent value as an empty string.
    #[default]
    #[serde(alias = "")]
    Kubevirt,
    /// A tar archive of files.
    Archive,
}

/// The values of [`ContentType`] and the empty string, which means no value.
pub(super) fn content_type_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "enum": ["kubevirt", "archive", ""] })
}

impl ContentType {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kubevirt => "kubevirt",
            Self::Archive => "archive",
        }
    }
}

/// One stage of a multi-stage import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// The state of the source that this stage begins at; empty for the first one.
    pub previous: String,
    /// The state of the source that this stage ends at.
    pub current: String,
}

/// A reference to a DataSource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataVolumeSourceRef {
    /// Kind of the object: DataSource.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object. Default: that of the DataVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Requirements of a PVC. Absent values come from the StorageProfile of the storage class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Access modes. Default: from the StorageProfile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
    /// Which volumes may be bound, by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The size of the disk, as requests.storage. A PVC with a file system is enlarged by its overhead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<VolumeResourceRequirements>,
    /// A volume to bind, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// Name of the storage class. Default: the cluster's default class for virtual machines, else its default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Block for a device that is the disk, Filesystem for a file system with the disk in a file. Default: from
    /// the StorageProfile. FromStorageProfile leaves it to the webhook that completes PVCs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
    /// Another populator fills the volume from this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<TypedLocalObjectReference>,
    /// Another populator fills the volume from this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source_ref: Option<TypedObjectReference>,
}

/// Observed state of a DataVolume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeStatus {
    /// Name of the PVC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Phase; Succeeded once the disk may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Share of the content that is transferred, such as 42.00%, or N/A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Restarts of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<i32>,
    /// Bound, Running and Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
