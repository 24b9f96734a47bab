//! PersistentVolumes, as far as anybody here looks at them. There are as many as claims in the whole cluster, all of them are
//! kept, and Kubernetes' own type has room for every driver that there ever was: several times what a volume needs.

use std::collections::BTreeMap;

use contract::ByteCount;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::meta;

/// A piece of storage. It is patched and never written as a whole, for most of it is left out here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistentVolume {
    /// Its name and version.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<PersistentVolumeSpec>,
    /// What became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PersistentVolumeStatus>,
}

impl PersistentVolume {
    /// The storage class, empty for none: Kubernetes treats an absent field and an empty one alike.
    pub fn class_name(&self) -> &str {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default()
    }

    /// How large it is.
    pub fn capacity(&self) -> Option<ByteCount> {
        meta::bytes(self.spec.as_ref()?.capacity.as_ref()?.get("storage")?)
    }
}

/// What a volume is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeSpec {
    /// How it can be mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ObjectReference>,
    /// Of a driver that came with the cluster's storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiVolume>,
    /// `Delete`, `Retain`: what becomes of it without its claim. Read where it matters, and not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_reclaim_policy: Option<String>,
    /// The class it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// `Block` or `Filesystem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
}

/// A volume of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiVolume {
    /// Its name.
    pub driver: String,
}

/// What became of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentVolumeStatus {
    /// `Available`, `Bound`, `Released`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_is_read_as_the_cluster_writes_it() {
        let written = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": "pv-1", "resourceVersion": "7" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
                "claimRef": { "namespace": "vms", "name": "disk", "uid": "u" },
                "csi": { "driver": "csi.example", "volumeHandle": "h", "fsType": "ext4" },
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
                "volumeMode": "Block",
            },
            "status": { "phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z" },
        });
        let volume: PersistentVolume = serde_json::from_value(written).unwrap();
        let spec = volume.spec.unwrap();
        assert_eq!(spec.csi.unwrap().driver, "csi.example");
        assert_eq!(spec.claim_ref.unwrap().name.as_deref(), Some("disk"));
        assert_eq!(spec.capacity.unwrap()["storage"].0, "1Gi");
        assert_eq!(volume.status.unwrap().phase.as_deref(), Some("Bound"));
        let whole = size_of::<k8s_openapi::api::core::v1::PersistentVolume>();
        let ours = size_of::<PersistentVolume>();
        assert!(3 * ours < whole, "{ours} bytes instead of {whole} are not worth a type");
    }
}
