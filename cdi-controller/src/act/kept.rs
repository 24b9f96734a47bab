//! How an object is kept: as it is while something happens to it, and packed while nothing does.
//!
//! A claim as a Rust value takes several times the room of its JSON, for it has room for members that it does not have. Most of a
//! cluster's claims, DataVolumes and volumes rest, and are looked at when the controllers begin, and then hardly ever.

use std::borrow::Cow;
use std::sync::Arc;

use super::cluster::Kind;

/// An object that is kept.
pub struct Kept<K> {
    /// Its resource version.
    pub version: u128,
    form: Form<K>,
}

enum Form<K> {
    Whole(Arc<K>),
    /// As JSON.
    Packed(Box<[u8]>),
}

impl<K: Kind> Kept<K> {
    /// Keeps an object: packed, if it rests.
    pub fn new(object: &Arc<K>) -> Self {
        let packed =
            if object.is_at_rest() { serde_json::to_vec(object.as_ref()).ok() } else { None };
        Self {
            version: version(object.as_ref()),
            form: match packed {
                Some(packed) => Form::Packed(packed.into_boxed_slice()),
                None => Form::Whole(Arc::clone(object)),
            },
        }
    }

    /// The object. `None`: what was packed cannot be read, which does not happen, and is logged.
    pub fn object(&self) -> Option<Cow<'_, Arc<K>>> {
        match &self.form {
            Form::Whole(object) => Some(Cow::Borrowed(object)),
            Form::Packed(packed) => match serde_json::from_slice(packed) {
                Ok(object) => Some(Cow::Owned(Arc::new(object))),
                Err(error) => {
                    tracing::error!("a {} that was packed cannot be read: {error}", K::kind(&()));
                    None
                }
            },
        }
    }

    /// Whether it has this UID.
    pub fn is(&self, uid: Option<&String>) -> bool {
        self.object().is_some_and(|object| object.meta().uid.as_ref() == uid)
    }
}

/// Resource versions of one kind are numbers that grow, and Kubernetes promises that they stay so.
pub fn version<K: Kind>(object: &K) -> u128 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;
    use crate::volume::PersistentVolume;

    fn claim(phase: &str) -> Arc<PersistentVolumeClaim> {
        let claim = json!({
            "metadata": {
                "name": "disk", "namespace": "vms", "uid": "1", "resourceVersion": "71",
                "creationTimestamp": "2026-11-22T10:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"],
                "annotations": { "cdi.kubevirt.io/storage.pod.phase": "Succeeded", "quoted": "\"ä\n" },
                "ownerReferences": [{ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                    "name": "disk", "uid": "2", "controller": true }],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "volumeName": "pv",
                "resources": { "requests": { "storage": "1Gi" } }, "storageClassName": "csi",
                "dataSourceRef": { "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "s" },
            },
            "status": { "phase": phase, "capacity": { "storage": "1Gi" } },
        });
        Arc::new(serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn a_claim_is_packed_when_it_is_bound_and_comes_out_as_it_was() {
        for (phase, is_packed) in [("Pending", false), ("Bound", true), ("Lost", false)] {
            let claim = claim(phase);
            let kept = Kept::new(&claim);
            assert_eq!(matches!(kept.form, Form::Packed(_)), is_packed, "{phase}");
            assert_eq!(kept.object().unwrap().as_ref(), &claim);
            assert_eq!(kept.version, 71);
            assert!(kept.is(Some(&"1".to_owned())) && !kept.is(Some(&"2".to_owned())));
        }
    }

    #[test]
    fn a_volume_of_a_type_of_our_own_comes_out_as_it_was() {
        let volume = json!({
            "metadata": { "name": "pv", "uid": "3", "resourceVersion": "4" },
            "spec": { "capacity": { "storage": "1Gi" }, "claimRef": { "name": "disk", "namespace": "vms" } },
            "status": { "phase": "Bound" },
        });
        let volume = Arc::new(serde_json::from_value::<PersistentVolume>(volume).unwrap());
        let kept = Kept::new(&volume);
        assert!(matches!(kept.form, Form::Packed(_)));
        assert_eq!(kept.object().unwrap().as_ref(), &volume);
    }
}
