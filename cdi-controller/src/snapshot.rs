//! VolumeSnapshots, as far as this project looks at them: their kind is no part of Kubernetes itself.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Group and version.
pub const API_VERSION: &str = "snapshot.storage.k8s.io/v1";
/// Kind.
pub const KIND: &str = "VolumeSnapshot";

/// The state of a claim at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshot {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: VolumeSnapshotSpec,
    /// What became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<VolumeSnapshotStatus>,
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
    /// It may be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The least that a claim made of it has to request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
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
