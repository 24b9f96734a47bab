//! VolumeSnapshots, as far as this project looks at them: their kind is no part of Kubernetes itself.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// Group and version.
pub const API_VERSION: &str = "snapshot.storage.k8s.io/v1";
/// Kind.
pub const KIND: &str = "VolumeSnapshot";

/// The state of a claim at one time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct VolumeSnapshot {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: VolumeSnapshotSpec,
    /// What became of it.
    #[serde(default)]
    pub status: Option<VolumeSnapshotStatus>,
}

/// With group, version and kind, without which the cluster takes nothing.
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

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    /// Of what.
    #[serde(default)]
    pub source: VolumeSnapshotOrigin,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// Of what a snapshot is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotOrigin {
    /// A claim of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// Content that somebody else has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

/// What became of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// The storage's side of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When the storage has taken it: from then on its origin may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<VolumeSnapshotError>,
    /// It may be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The least that a claim made of it has to request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
}

/// What went wrong with a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeSnapshotError {
    /// In the words of its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The storage's side of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeSnapshotContent {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it is.
    #[serde(default)]
    pub spec: VolumeSnapshotContentSpec,
}

/// What a snapshot is to the storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    /// Who took it.
    #[serde(default)]
    pub driver: String,
    /// Of the volume that it was taken of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
}

impl VolumeSnapshot {
    /// Whether it may be restored.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    /// The least that a claim made of it has to request.
    pub fn restore_size(&self) -> Option<&Quantity> {
        self.status.as_ref()?.restore_size.as_ref()
    }
}
