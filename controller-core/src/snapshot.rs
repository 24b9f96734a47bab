//! VolumeSnapshots, with the fields that are read. `k8s-openapi` has no types for them.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// Group and version.
pub const API_VERSION: &str = "snapshot.storage.k8s.io/v1";
/// Kind.
pub const KIND: &str = "VolumeSnapshot";

/// The content of a PVC at one time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct VolumeSnapshot {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: VolumeSnapshotSpec,
    #[serde(default)]
    pub status: Option<VolumeSnapshotStatus>,
}

/// With group, version and kind, which the API server requires.
impl Serialize for VolumeSnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { metadata, spec, status } = self;
        let members = 4 + usize::from(status.is_some());
        let mut object = serializer.serialize_struct(KIND, members)?;
        object.serialize_field("apiVersion", API_VERSION)?;
        object.serialize_field("kind", KIND)?;
        object.serialize_field("metadata", metadata)?;
        object.serialize_field("spec", spec)?;
        if let Some(status) = status {
            object.serialize_field("status", status)?;
        }
        object.end()
    }
}

/// The requested snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    #[serde(default)]
    pub source: VolumeSnapshotOrigin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// What a snapshot is taken of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotOrigin {
    /// A PVC of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// Content that another client has created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

/// The state of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// Its VolumeSnapshotContent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When the storage has taken it. From then on the source may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// It may be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The minimum size of a PVC that is restored from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
}

/// Why a snapshot failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeSnapshotError {
    /// From the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The snapshot in the storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeSnapshotContent {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: VolumeSnapshotContentSpec,
}

/// The driver and the volume of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    #[serde(default)]
    pub driver: String,
    /// The volume mode of its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
}

impl VolumeSnapshot {
    /// Whether it may be restored.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// The minimum size of a PVC that is restored from it.
    pub fn restore_size(&self) -> Option<&Quantity> {
        self.status.as_ref()?.restore_size.as_ref()
    }
}
