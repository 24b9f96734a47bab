//! DataVolume: a disk, and where its content comes from.

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

/// What kind of disk is wanted, and where its content comes from.
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
    doc = "A DataVolume is a disk on a claim of the same name, and where its content comes from.",
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "How far the DataVolume is"}"#,
    printcolumn = r#"{"name": "Progress", "type": "string", "jsonPath": ".status.progress", "description": "How much of the content is there"}"#,
    printcolumn = r#"{"name": "Restarts", "type": "integer", "jsonPath": ".status.restartCount", "description": "How often the worker was started again"}"#,
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
    /// An object that knows where the content comes from. Not together with source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<DataVolumeSourceRef>,
    /// The claim to make, taken as it is. Not together with storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PersistentVolumeClaimSpec>,
    /// What the claim has to offer: its size is that of the disk, and what is not said comes from the StorageProfile.
    /// Not together with pvc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
    /// Priority class of the worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Service account of the worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// What the source holds: the image of a disk (kubevirt, which is usual) or a tar archive of files (archive).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "content_type_schema")]
    pub content_type: Option<ContentType>,
    /// The stages of an import that goes on while the source is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Vec<Checkpoint>>,
    /// Whether the last of the checkpoints ends the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_checkpoint: Option<bool>,
    /// Whether every byte of the disk gets its room on the storage at once; usually what CDIConfig says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
}

/// What a source holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    /// The image of a disk. Some clients write a word that was not given as an empty one.
    #[default]
    #[serde(alias = "")]
    Kubevirt,
    /// A tar archive of files.
    Archive,
}

/// The words of [`ContentType`], and the empty one, which is none.
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

/// One stage of an import that goes on while the source is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// The state of the source that this stage begins at; empty for the first one.
    pub previous: String,
    /// The state of the source that this stage ends at.
    pub current: String,
}

/// An object that knows where the content comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataVolumeSourceRef {
    /// Kind of the object: DataSource.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; usually that of the DataVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What a claim has to offer. What is not said comes from the StorageProfile of the storage class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// How many nodes may use the volume, and for what; usually what the StorageProfile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
    /// Which volumes may be bound, by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The size of the disk, as requests.storage. A claim with a file system is made larger by what that needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<VolumeResourceRequirements>,
    /// A volume to bind, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// Name of the storage class; usually the cluster's default for disks of virtual machines, or its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Block for a device that is the disk, Filesystem for a file system that holds the disk in a file; usually what
    /// the StorageProfile says. FromStorageProfile leaves it to the webhook that completes claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
    /// Somebody else fills the volume from this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<TypedLocalObjectReference>,
    /// Somebody else fills the volume from this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source_ref: Option<TypedObjectReference>,
}

/// How far a DataVolume is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeStatus {
    /// Name of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// How far it is, in one word; Succeeded when it may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// How much of the content is there, such as 42.00%, or N/A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// How often the worker was started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<i32>,
    /// Bound, Running and Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
