//! What a PVC may name as the source of its content.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data_volume::{Checkpoint, ContentType, content_type_schema};
use super::source::{
    BlankSource, GcsSource, HttpSource, ImageioSource, RegistrySource, S3Source, VddkSource,
};

/// What is imported.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "VolumeImportSource",
    plural = "volumeimportsources",
    namespaced,
    status = "VolumeSourceStatus",
    derive = "PartialEq",
    doc = "A VolumeImportSource is the source of PVCs whose dataSourceRef names it."
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeImportSourceSpec {
    /// Where the content comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ImportSource>,
    /// Whether the disk is preallocated. Default: the CDIConfig's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// What the source holds: a disk image (kubevirt, the default) or a tar archive of files (archive).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "content_type_schema")]
    pub content_type: Option<ContentType>,
    /// The one PVC to fill; required with checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_claim: Option<String>,
    /// Checkpoints of a multi-stage import, while the source is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Vec<Checkpoint>>,
    /// Whether the last checkpoint ends the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_checkpoint: Option<bool>,
}

/// Where the content comes from: exactly one of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.http), has(self.s3), has(self.registry), has(self.gcs), has(self.blank), \
                 has(self.imageio), has(self.vddk)].exists(member, member)",
        "message": "Missing VolumeImport source",
    },
    {
        "rule": "[has(self.http), has(self.s3), has(self.registry), has(self.gcs), has(self.blank), \
                 has(self.imageio), has(self.vddk)].filter(member, member).size() <= 1",
        "message": "Multiple VolumeImport sources",
    },
]))]
pub struct ImportSource {
    /// A web server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// An object in S3, or in a store that speaks like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Source>,
    /// A container disk in a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistrySource>,
    /// An object in Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsSource>,
    /// Nothing: an empty disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blank: Option<BlankSource>,
    /// A disk of oVirt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imageio: Option<ImageioSource>,
    /// A disk of VMware, read with its own library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vddk: Option<VddkSource>,
}

/// Always {}.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeSourceStatus {}

/// What is going to be uploaded.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "VolumeUploadSource",
    plural = "volumeuploadsources",
    namespaced,
    status = "VolumeSourceStatus",
    derive = "PartialEq",
    doc = "A VolumeUploadSource makes PVCs whose dataSourceRef names it wait for an upload."
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeUploadSourceSpec {
    /// What is uploaded: a disk image (kubevirt, the default) or a tar archive of files (archive).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "content_type_schema")]
    pub content_type: Option<ContentType>,
    /// Whether the disk is preallocated. Default: the CDIConfig's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
}

/// What is cloned.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "VolumeCloneSource",
    plural = "volumeclonesources",
    namespaced,
    status = "VolumeSourceStatus",
    derive = "PartialEq",
    doc = "A VolumeCloneSource names the PVC or snapshot from which PVCs are cloned whose dataSourceRef names it."
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeCloneSourceSpec {
    /// A PersistentVolumeClaim, or a VolumeSnapshot of the group snapshot.storage.k8s.io.
    pub source: TypedLocalObjectReference,
    /// Whether the disk is preallocated. Default: the CDIConfig's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// Priority class of the worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}
