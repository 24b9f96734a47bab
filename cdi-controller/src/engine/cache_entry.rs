//! How an object is kept: packed, where there are many of its kind, and beside it as it is while somebody looks at it.
//!
//! A claim as a Rust value takes several times the room of its JSON, for it has room for members that it does not have. Most of a
//! cluster's claims, DataVolumes and volumes rest, and are looked at when the controllers begin, and then hardly ever.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::engine::api_client::Kind;
use crate::engine::queue::Key;
use crate::engine::undecodable;

/// So many of a kind are kept as they are, beside what is packed. Whatever is at work is looked at a few times within a second.
const RECENT: usize = 512;

/// An object that is kept.
pub struct CacheEntry<K> {
    /// Its resource version.
    pub version: u128,
    form: Form<K>,
}

enum Form<K> {
    Whole(Arc<K>),
    /// As JSON.
    Packed(Box<[u8]>),
}

impl<K: Kind> CacheEntry<K> {
    /// Keeps an object: packed, if there are many of its kind.
    pub fn new(object: &Arc<K>) -> Self {
        let packed = if K::ARE_MANY { serde_json::to_vec(object.as_ref()).ok() } else { None };
        Self {
            version: version(object.as_ref()),
            form: match packed {
                Some(packed) => Form::Packed(packed.into_boxed_slice()),
                None => Form::Whole(Arc::clone(object)),
            },
        }
    }

    /// The object. `None`: what was packed cannot be read, which does not happen, and is logged.
    pub fn object(&self) -> Option<Arc<K>> {
        match &self.form {
            Form::Whole(object) => Some(Arc::clone(object)),
            Form::Packed(packed) => match serde_json::from_slice(packed) {
                Ok(object) => Some(Arc::new(object)),
                Err(error) => {
                    tracing::error!("a {} that was packed cannot be read: {error}", K::kind(&()));
                    None
                }
            },
        }
    }
}

/// The objects of a kind that were looked at last, as they are.
pub struct Recent<K> {
    objects: HashMap<Arc<Key>, (u64, Arc<K>)>,
    /// Who came when; the next to go is the first. Some are gone already, or came again later.
    order: VecDeque<(u64, Arc<Key>)>,
    count: u64,
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), order: VecDeque::new(), count: 0 }
    }
}

impl<K: Kind> Recent<K> {
    /// The object of this name, if it was looked at lately.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).map(|(_, object)| Arc::clone(object))
    }

    /// Keeps an object, and lets go of the one that was kept longest.
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

    /// Lets go of what has this name.
    pub fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
    }
}

/// Resource versions of one kind are numbers that grow, and Kubernetes promises that they stay so.
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
    fn a_claim_is_packed_and_comes_out_as_it_was() {
        let claim = claim();
        let kept = CacheEntry::new(&claim);
        assert!(matches!(kept.form, Form::Packed(_)));
        assert_eq!(kept.object().unwrap(), claim);
        assert_eq!(kept.version, 71);
    }

    #[test]
    fn a_worker_comes_out_as_it_was() {
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
        let kept = CacheEntry::new(&pod);
        assert!(matches!(kept.form, Form::Packed(_)));
        assert_eq!(kept.object().unwrap(), pod);
    }

    #[test]
    fn of_kinds_of_which_there_are_few_each_is_kept_as_it_is() {
        let class = json!({ "metadata": { "name": "csi" }, "provisioner": "csi" });
        let class = Arc::new(serde_json::from_value::<StorageClass>(class).unwrap());
        assert!(Arc::ptr_eq(&CacheEntry::new(&class).object().unwrap(), &class));
    }

    #[test]
    fn only_so_many_are_kept_as_they_are() {
        let mut recent = Recent::default();
        let claim = claim();
        let key = |n: usize| Arc::new(Key::new("vms", n.to_string()));
        for n in 0..2 * RECENT {
            recent.put(&key(n), &claim);
            recent.put(&key(n), &claim);
        }
        let kept: Vec<_> = (0..2 * RECENT).filter(|n| recent.get(&key(*n)).is_some()).collect();
        assert_eq!(kept, (RECENT..2 * RECENT).collect::<Vec<_>>());
        // Whoever comes and goes takes no more room.
        for _ in 0..2 * RECENT {
            recent.remove(&key(RECENT));
            recent.put(&key(RECENT), &claim);
        }
        assert_eq!((recent.objects.len(), recent.order.len()), (1, RECENT));
    }

    #[test]
    fn a_volume_of_a_type_of_our_own_comes_out_as_it_was() {
        let volume = json!({
            "metadata": { "name": "pv", "uid": "3", "resourceVersion": "4" },
            "spec": { "capacity": { "storage": "1Gi" }, "claimRef": { "name": "disk", "namespace": "vms" } },
            "status": { "phase": "Bound" },
        });
        let volume = Arc::new(serde_json::from_value::<PersistentVolume>(volume).unwrap());
        let kept = CacheEntry::new(&volume);
        assert!(matches!(kept.form, Form::Packed(_)));
        assert_eq!(kept.object().unwrap(), volume);
    }
}
