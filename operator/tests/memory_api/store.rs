//! What happens to stored objects: versions, finalizers, owners, and the objects of a CRD.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{DELETED_AT, State, defaults, is_terminating};

impl State {
    pub(super) fn store_new(&mut self, key: &str, mut object: Value) -> Value {
        self.version += 1;
        defaults::fill(&mut object);
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", self.version).into();
        }
        metadata["resourceVersion"] = self.version.to_string().into();
        metadata["generation"] = 1.into();
        metadata["creationTimestamp"] = "2027-01-01T00:00:00Z".into();
        self.objects.insert(key.to_owned(), object.clone());
        object
    }

    pub(super) fn store_changed(&mut self, key: &str, mut object: Value) -> Value {
        let before = self.objects[key].clone();
        defaults::fill(&mut object);
        if object["spec"] != before["spec"] {
            object["metadata"]["generation"] =
                (before["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        if object != before {
            self.version += 1;
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
        let is_held =
            object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if is_terminating(&object) && !is_held {
            self.version += 1;
            self.objects.remove(key);
            self.drop_objects_of_crd(key);
        } else {
            self.objects.insert(key.to_owned(), object.clone());
        }
        object
    }

    pub(super) fn delete(&mut self, key: &str, foreground: bool) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        if foreground && !is_terminating(&object) {
            let finalizers = object["metadata"]["finalizers"].as_array().cloned();
            let mut finalizers = finalizers.unwrap_or_default();
            finalizers.push("foregroundDeletion".into());
            object["metadata"]["finalizers"] = finalizers.into();
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = DELETED_AT.into();
        }
        self.store_changed(key, object);
    }

    pub(super) fn release(&mut self, key: &str, finalizer: &str) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        if is_terminating(&object)
            && let Some(all) = object["metadata"]["finalizers"].as_array_mut()
            && all.iter().any(|one| one == finalizer)
        {
            all.retain(|one| one != finalizer);
            self.store_changed(key, object);
        }
    }

    pub(super) fn collect_garbage(&mut self) {
        loop {
            let uids: BTreeSet<_> =
                self.objects.values().map(|one| one["metadata"]["uid"].to_string()).collect();
            let is_orphan = |object: &Value| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                owners.is_some_and(|all| {
                    !all.is_empty() && all.iter().all(|one| !uids.contains(&one["uid"].to_string()))
                })
            };
            let orphans: Vec<_> = self
                .objects
                .iter()
                .filter(|(_, object)| is_orphan(object) && !is_terminating(object))
                .map(|(key, _)| key.clone())
                .collect();
            if orphans.is_empty() {
                return;
            }
            for key in orphans {
                self.delete(&key, false);
            }
        }
    }

    /// The objects of a CRD go with it.
    fn drop_objects_of_crd(&mut self, key: &str) {
        let Some(name) = key.strip_prefix("apiextensions.k8s.io/customresourcedefinitions//")
        else {
            return;
        };
        let (plural, group) = name.split_once('.').unwrap();
        let prefix = format!("{group}/{plural}/");
        self.objects.retain(|key, _| !key.starts_with(&prefix));
    }
}
