//! PersistentVolumes, with the fields that are read. The cache contains all volumes of the cluster, and the type of
//! `k8s-openapi`, which has fields for every driver, needs several times the memory.

use std::collections::BTreeMap;

use contract::ByteCount;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::meta;

/// Only patched, never written as a whole, as most fields are missing here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistentVolume {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<PersistentVolumeSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PersistentVolumeStatus>,
}

impl PersistentVolume {
    /// The storage class, empty for none: Kubernetes treats an absent field and an empty one alike.
    pub fn class_name(&self) -> &str {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default()
    }

    pub fn capacity(&self) -> Option<ByteCount> {
        meta::bytes(self.spec.as_ref()?.capacity.as_ref()?.get("storage")?)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// The PVC that it is bound to or reserved for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ObjectReference>,
    /// Set for volumes of a CSI driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiVolume>,
    /// `Delete` or `Retain`. Set only where the volume was read from the API server; the cache leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_reclaim_policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// `Block` or `Filesystem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsiVolume {
    pub driver: String,
}

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
    fn volume_is_read_from_the_json_of_the_api_server() {
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
