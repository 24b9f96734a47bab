//! Watched objects from which PVCs are completed: StorageClasses, StorageProfiles and available PersistentVolumes.

use std::sync::Arc;

use api::v1beta1::StorageProfile;
use controller_core::volume::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource, ResourceExt};

use crate::watched_store::{StoreEntry, WatchedStore};

/// The group of kinds that are always read as a whole.
const ALL: &str = "";

pub struct ClaimStores {
    classes: WatchedStore<StorageClass, StorageClass>,
    profiles: WatchedStore<StorageProfile, StorageProfile>,
    /// By StorageClass name, empty for none.
    volumes: WatchedStore<PersistentVolume, PersistentVolume>,
}

/// The objects for one PVC.
pub struct StorageFacts {
    pub classes: Arc<Vec<StorageClass>>,
    pub profiles: Arc<Vec<StorageProfile>>,
    /// PersistentVolumes that name the PVC's class, if there is no such StorageClass.
    pub volumes: Arc<Vec<PersistentVolume>>,
}

impl Default for ClaimStores {
    fn default() -> Self {
        Self {
            classes: WatchedStore::new("StorageClasses", |class| Some(unfiltered(class))),
            profiles: WatchedStore::new("StorageProfiles", |profile| Some(unfiltered(profile))),
            volumes: WatchedStore::new("PersistentVolumes", available),
        }
    }
}

impl ClaimStores {
    /// Runs the watches as long as it is polled.
    pub async fn follow(&self, client: Client) {
        tokio::join!(
            self.classes.follow(client.clone()),
            self.profiles.follow(client.clone()),
            self.volumes.follow(client),
        );
    }

    /// The objects from which a PVC of the StorageClass `class` is completed. Waits until the first lists are complete.
    pub async fn facts(&self, class: Option<&str>) -> StorageFacts {
        let classes = self.classes.list(ALL).await;
        let profiles = self.profiles.list(ALL).await;
        let is_there =
            |name: &str| classes.iter().any(|class| class.metadata.name.as_deref() == Some(name));
        let volumes = match class.filter(|name| !is_there(name)) {
            Some(name) => self.volumes.list(name).await,
            None => Arc::default(),
        };
        StorageFacts { classes, profiles, volumes }
    }
}

fn unfiltered<K: Resource>(mut object: K) -> (String, K) {
    object.managed_fields_mut().clear();
    (ALL.to_owned(), object)
}

/// A PersistentVolume that a PVC may be bound to. Bound ones are not stored: there are as many as PVCs in the cluster.
fn available(mut volume: PersistentVolume) -> StoreEntry<PersistentVolume> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Available") {
        return None;
    }
    volume.metadata = ObjectMeta {
        name: volume.metadata.name,
        deletion_timestamp: volume.metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    // Also those without a class, as a PVC with the class "" may be bound to one.
    Some((volume.class_name().to_owned(), volume))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_available_volumes_are_stored_with_few_fields() {
        let volume = |phase: &str, class: Value| {
            let object = json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {
                    "name": "v", "annotations": { "a": "b" }, "labels": { "c": "d" },
                    "managedFields": [{ "manager": "m" }],
                },
                "spec": {
                    "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                    "csi": { "driver": "d", "volumeHandle": "h" },
                },
                "status": { "phase": phase },
            });
            available(serde_json::from_value(object).unwrap())
        };
        let (class, kept) = volume("Available", json!("local")).unwrap();
        assert_eq!(class, "local");
        let expected = ObjectMeta { name: Some("v".into()), ..ObjectMeta::default() };
        assert_eq!(kept.metadata, expected);
        assert_eq!(kept.spec.unwrap().access_modes.unwrap(), ["ReadWriteOnce"]);
        assert!(volume("Bound", json!("local")).is_none());
        for none in [json!(null), json!("")] {
            assert_eq!(volume("Available", none).unwrap().0, "");
        }
    }
}
