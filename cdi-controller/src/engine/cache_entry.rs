//! The representation of a cached object: as compressed JSON if its kind is numerous, and also decoded while it is in use.
//!
//! A decoded PVC takes several times the memory of its JSON, as the Rust type has space for all optional fields, and the
//! JSON several times that of the compressed JSON. Most PVCs, DataVolumes and volumes of a cluster are idle: they are read when the
//! controllers start, and hardly ever afterwards.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::engine::api_client::Kind;
use crate::engine::error::chain;
use crate::engine::index::Term;
use crate::engine::packed::PackedObject;
use crate::engine::queue::Key;
use crate::engine::undecodable;

/// How many objects of a kind are also kept decoded. An object in use is read a few times within a second.
const RECENT: usize = 512;

/// A cached object.
pub struct CacheEntry<K> {
    /// The resource version.
    pub version: u128,
    /// The index terms: an object that is replaced or removed is not decoded to find them.
    pub terms: Box<[Arc<Term>]>,
    form: Form<K>,
}

enum Form<K> {
    Whole(Arc<K>),
    Packed(PackedObject),
}

impl<K: Kind> CacheEntry<K> {
    /// Packs the object if its kind is numerous.
    pub fn new(object: &Arc<K>, terms: Box<[Arc<Term>]>) -> Self {
        let packed = if K::ARE_MANY { PackedObject::pack(object.as_ref()).ok() } else { None };
        Self {
            version: version(object.as_ref()),
            terms,
            form: match packed {
                Some(packed) => Form::Packed(packed),
                None => Form::Whole(Arc::clone(object)),
            },
        }
    }

    #[cfg(test)]
    pub fn packed_len(&self) -> usize {
        match &self.form {
            Form::Whole(_) => 0,
            Form::Packed(packed) => packed.len(),
        }
    }

    /// The object. `None`: it cannot be restored, which is a bug and is logged.
    pub fn object(&self) -> Option<Arc<K>> {
        match &self.form {
            Form::Whole(object) => Some(Arc::clone(object)),
            Form::Packed(packed) => match packed.unpack() {
                Ok(object) => Some(Arc::new(object)),
                Err(error) => {
                    tracing::error!("cannot restore a cached {}: {}", K::kind(&()), chain(&error));
                    None
                }
            },
        }
    }
}

/// The decoded objects of a kind that were used recently.
pub struct Recent<K> {
    objects: HashMap<Arc<Key>, (u64, Arc<K>)>,
    /// Keys in the order of insertion; the first is evicted next. Some were removed already, or inserted again later.
    order: VecDeque<(u64, Arc<Key>)>,
    count: u64,
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), order: VecDeque::new(), count: 0 }
    }
}

impl<K: Kind> Recent<K> {
    /// The object of this name, if it was used recently.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).map(|(_, object)| Arc::clone(object))
    }

    /// Inserts an object, and evicts the oldest one if there are too many.
    pub fn put(&mut self, key: &Arc<Key>, object: &Arc<K>) {
        if !K::ARE_MANY {
            return;
        }
        if let Some((_, known)) = self.objects.get_mut(key) {
            *known = Arc::clone(object);
            return;
        }
        self.count += 1;
        self.objects.insert(Arc::clone(key), (self.count, Arc::clone(object)));
        self.order.push_back((self.count, Arc::clone(key)));
        if self.order.len() > RECENT
            && let Some((number, oldest)) = self.order.pop_front()
            && self.objects.get(&oldest).is_some_and(|(known, _)| *known == number)
        {
            self.objects.remove(&oldest);
        }
    }

    pub fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
    }
}

/// Resource versions of one kind are increasing numbers; Kubernetes guarantees that.
pub fn version<K: Kind>(object: &K) -> u128 {
    undecodable::version(object.meta())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
    use k8s_openapi::api::storage::v1::StorageClass;
    use serde_json::json;

    use super::*;
    use controller_core::volume::PersistentVolume;

    fn claim() -> Arc<PersistentVolumeClaim> {
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
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
        });
        Arc::new(serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn pvc_is_restored_from_json_unchanged() {
        let claim = claim();
        let kept = CacheEntry::new(&claim, Box::default());
        assert!(matches!(kept.form, Form::Packed(_)));
        assert_eq!(kept.object().unwrap(), claim);
        assert_eq!(kept.version, 71);
    }

    #[test]
    fn worker_pod_is_restored_from_json_unchanged() {
        let pod = json!({
            "metadata": { "name": "importer", "namespace": "vms", "uid": "5", "resourceVersion": "6",
                "creationTimestamp": "2026-11-22T10:00:00Z", "deletionTimestamp": "2026-11-22T10:01:00Z",
                "deletionGracePeriodSeconds": 30 },
            "spec": { "restartPolicy": "OnFailure", "containers": [{
                "name": "importer", "image": "importer", "args": ["-v=1"],
                "env": [{ "name": "OWNER_UID", "value": "1" }],
                "resources": { "limits": { "cpu": "750m", "memory": "600M" } },
                "securityContext": { "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] } },
                "volumeDevices": [{ "name": "data", "devicePath": "/dev/cdi-block-volume" }],
            }] },
            "status": { "phase": "Succeeded", "containerStatuses": [{
                "name": "importer", "image": "importer", "imageID": "", "ready": false, "restartCount": 2,
                "state": { "terminated": { "exitCode": 0, "message": "{\"a\":1}",
                    "finishedAt": "2026-11-22T10:00:59Z" } },
            }] },
        });
        let pod = Arc::new(serde_json::from_value::<Pod>(pod).unwrap());
        let kept = CacheEntry::new(&pod, Box::default());
        assert!(matches!(kept.form, Form::Packed(_)));
        assert_eq!(kept.object().unwrap(), pod);
    }

    #[test]
    fn object_of_a_rare_kind_is_kept_decoded() {
        let class = json!({ "metadata": { "name": "csi" }, "provisioner": "csi" });
        let class = Arc::new(serde_json::from_value::<StorageClass>(class).unwrap());
        assert!(Arc::ptr_eq(&CacheEntry::new(&class, Box::default()).object().unwrap(), &class));
    }

    #[test]
    fn number_of_decoded_objects_is_bounded() {
        let mut recent = Recent::default();
        let claim = claim();
        let key = |n: usize| Arc::new(Key::new("vms", n.to_string()));
        for n in 0..2 * RECENT {
            recent.put(&key(n), &claim);
            recent.put(&key(n), &claim);
        }
        let kept: Vec<_> = (0..2 * RECENT).filter(|n| recent.get(&key(*n)).is_some()).collect();
        assert_eq!(kept, (RECENT..2 * RECENT).collect::<Vec<_>>());
        // Repeated insertion and removal does not grow the queue.
        for _ in 0..2 * RECENT {
            recent.remove(&key(RECENT));
            recent.put(&key(RECENT), &claim);
        }
        assert_eq!((recent.objects.len(), recent.order.len()), (1, RECENT));
    }

    #[test]
    fn persistent_volume_is_restored_from_json_unchanged() {
        let volume = json!({
            "metadata": { "name": "pv", "uid": "3", "resourceVersion": "4" },
            "spec": { "capacity": { "storage": "1Gi" }, "claimRef": { "name": "disk", "namespace": "vms" } },
            "status": { "phase": "Bound" },
        });
        let volume = Arc::new(serde_json::from_value::<PersistentVolume>(volume).unwrap());
        let kept = CacheEntry::new(&volume, Box::default());
        assert!(matches!(kept.form, Form::Packed(_)));
        assert_eq!(kept.object().unwrap(), volume);
    }
}
