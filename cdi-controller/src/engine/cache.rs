//! The objects of one kind in the cluster, from the last watch event or the response to a write of our own.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use runtime::decoded::UndecodableObject;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::api_client::Kind;
use crate::engine::cache_contents::CacheContents;
#[cfg(test)]
use crate::engine::cache_entry::CacheEntry;
use crate::engine::index::Term;
use crate::engine::queue::Key;
use crate::engine::undecodable;
use controller_core::meta;

/// All objects of a kind that are watched.
pub struct Cache<K> {
    contents: RwLock<CacheContents<K>>,
    ready: watch::Sender<bool>,
    /// The cluster does not know the kind.
    absent: AtomicBool,
    /// How many objects were read by a term or a filter.
    #[cfg(test)]
    pub looks: std::sync::atomic::AtomicUsize,
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// It was created or changed.
    Applied(Arc<K>),
    /// It was deleted.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The object as it is, or was at the end.
    pub fn object(&self) -> &K {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            contents: RwLock::default(),
            ready: watch::Sender::new(false),
            absent: AtomicBool::new(false),
            #[cfg(test)]
            looks: Default::default(),
        }
    }
}

impl<K: Kind> Cache<K> {
    fn read(&self) -> RwLockReadGuard<'_, CacheContents<K>> {
        self.contents.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, CacheContents<K>> {
        self.contents.write()
    }

    /// One object. The namespace of a cluster-scoped object is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().get(&Key::new(namespace, name))
    }

    /// Whether there is such an object. It is not decoded for that.
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        self.read().objects.contains_key(&Key::new(namespace, name))
    }

    /// Whether this object is in the cluster and cannot be decoded, so that [`Cache::get`] does not find it.
    pub fn is_undecodable(&self, namespace: &str, name: &str) -> bool {
        self.read().undecodable.contains(&Key::new(namespace, name))
    }

    /// How many cannot be decoded.
    pub fn undecodable_count(&self) -> usize {
        self.read().undecodable.count()
    }

    /// Those that were deleted while they could not be decoded, since the last call.
    pub fn take_vanished(&self) -> Vec<Key> {
        self.write().undecodable.take_vanished()
    }

    /// The objects that have a term, and maybe a few more.
    pub fn find(&self, term: &Term) -> Vec<Arc<K>> {
        let inner = self.read();
        let keys = inner.index.get(term).into_iter().flatten();
        keys.filter_map(|key| inner.get(key)).inspect(|_| self.count_look()).collect()
    }

    /// The objects that `wanted` selects of all. Only for rare events, if the kind may be numerous.
    pub fn filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.pick(|_| true, wanted)
    }

    /// The objects of a namespace whose names begin so.
    pub fn named(&self, namespace: &str, stem: &str) -> Vec<Arc<K>> {
        self.pick(|key| key.namespace == namespace && key.name.starts_with(stem), |_| true)
    }

    /// The objects of a namespace that `wanted` picks.
    pub fn within(&self, namespace: &str, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.pick(|key| key.namespace == namespace, wanted)
    }

    fn pick(&self, is_there: impl Fn(&Key) -> bool, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let inner = self.read();
        let there = inner.objects.iter().filter(|(key, _)| is_there(key));
        // Through `get`, this many objects would evict those in use from `recent`.
        let objects = there.filter_map(|(_, kept)| kept.object());
        let objects = objects.inspect(|_| self.count_look());
        objects.filter(|object| wanted(object.as_ref())).collect()
    }

    /// The bytes of all objects that are packed.
    #[cfg(test)]
    pub fn packed_len(&self) -> usize {
        self.read().objects.values().map(CacheEntry::packed_len).sum()
    }

    fn count_look(&self) {
        #[cfg(test)]
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// All of them, in the order of their names. For kinds of which there are few.
    pub fn list(&self) -> Arc<Vec<K>> {
        if let Some(list) = &self.read().list {
            return Arc::clone(list);
        }
        let mut inner = self.write();
        let mut all: Vec<_> = inner.objects.iter().collect();
        all.sort_by(|a, b| a.0.cmp(b.0));
        let objects = all.into_iter().filter_map(|(_, kept)| kept.object());
        let list = Arc::new(objects.map(|object| K::clone(&object)).collect());
        inner.list = Some(Arc::clone(&list));
        list
    }

    /// The cluster does not know the kind, for now.
    pub fn note_absent(&self) {
        self.absent.store(true, Ordering::Relaxed);
    }

    /// Whether the contents are known: there was a list, or the cluster does not know the kind.
    pub fn is_settled(&self) -> bool {
        self.is_ready() || self.absent.load(Ordering::Relaxed)
    }

    /// Whether there was a list.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        // The sender lives as long as the store, so this ends only with a list.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Adds the response to a write of our own, so that the next read does not return an older version.
    pub fn upsert(&self, object: K) {
        let key = key_of(&object);
        let mut inner = self.write();
        if let Some(uid) = &object.meta().uid
            && inner.deleted.contains(uid)
        {
            return;
        }
        if let Some(seen) = &mut inner.seen {
            seen.insert(key.clone());
        }
        inner.put(key, object);
    }

    /// Removes an object that we deleted and that is gone, so that the next read does not find it.
    pub fn forget(&self, key: &Key, uid: &str) {
        let mut inner = self.write();
        inner.remember_uid(Some(uid));
        inner.remove(key, Some(uid));
    }

    /// Applies a watch event, and returns the changes.
    pub fn take(&self, event: watcher::Event<K>) -> Vec<Change<K>> {
        let mut inner = self.write();
        match event {
            watcher::Event::Apply(object) => {
                let key = key_of(&object);
                inner.put(key, object).map(Change::Applied).into_iter().collect()
            }
            watcher::Event::Delete(object) => {
                let (key, uid) = (key_of(&object), object.meta().uid.as_deref());
                inner.remember_uid(uid);
                inner.remove(&key, uid);
                inner.undecodable.delete(&key, uid);
                vec![Change::Deleted(Arc::new(object))]
            }
            watcher::Event::Init => {
                inner.seen = Some(HashSet::new());
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let key = key_of(&object);
                // A list is valid even if versions have started again, except about what we wrote since.
                let is_first = inner.seen.as_mut().is_none_or(|seen| seen.insert(key.clone()));
                if is_first {
                    inner.discard(&key);
                    inner.undecodable.remove(&key);
                }
                inner.put(key, object).map(Change::Applied).into_iter().collect()
            }
            watcher::Event::InitDone => {
                let seen = inner.seen.take().unwrap_or_default();
                inner.undecodable.retain(&seen);
                let is_gone = |key: &&Arc<Key>| !seen.contains(key.as_ref());
                let gone: Vec<_> = inner.objects.keys().filter(is_gone).cloned().collect();
                let gone: Vec<_> = gone.iter().filter_map(|key| inner.take_out(key)).collect();
                drop(inner);
                self.ready.send_replace(true);
                gone.into_iter().map(Change::Deleted).collect()
            }
        }
    }

    /// Applies a watch event of an object that cannot be decoded: its cached version is removed, and returned as deleted so
    /// that the controllers which read it are woken. Returns the object too, if it has to be reported.
    pub fn take_undecodable(
        &self,
        event: watcher::Event<Box<UndecodableObject>>,
    ) -> (Vec<Change<K>>, Option<Box<UndecodableObject>>) {
        let mut inner = self.write();
        let (object, is_first) = match event {
            watcher::Event::Apply(object) => (object, false),
            watcher::Event::InitApply(object) => {
                let key = key_of_metadata(&object.metadata);
                (object, inner.seen.as_mut().is_none_or(|seen| seen.insert(key)))
            }
            watcher::Event::Delete(object) => {
                let key = key_of_metadata(&object.metadata);
                let uid = object.metadata.uid.as_deref();
                inner.remember_uid(uid);
                inner.undecodable.delete(&key, uid);
                let is_it = inner.get(&key).is_some_and(|known| known.meta().uid.as_deref() == uid);
                let gone = if is_it { inner.take_out(&key) } else { None };
                return (gone.map(Change::Deleted).into_iter().collect(), None);
            }
            watcher::Event::Init | watcher::Event::InitDone => return (Vec::new(), None),
        };
        let key = key_of_metadata(&object.metadata);
        let version = undecodable::version(&object.metadata);
        let is_old = inner.objects.get(&key).is_some_and(|known| known.version > version)
            || inner.undecodable.is_later(&key, version);
        if is_old && !is_first {
            return (Vec::new(), None);
        }
        let gone = inner.take_out(&key);
        let is_new = inner.undecodable.record(key, &object.metadata, Instant::now());
        (gone.map(Change::Deleted).into_iter().collect(), is_new.then_some(object))
    }
}

/// The key of an object.
pub fn key_of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Key {
    key_of_metadata(object.meta())
}

/// The key of the object with this metadata.
pub fn key_of_metadata(metadata: &ObjectMeta) -> Key {
    Key::new(meta::namespace(metadata), meta::name(metadata))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim as Claim;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::engine::cache_entry::version;
    use controller_core::volume::PersistentVolume;

    fn claim(name: &str, uid: &str, version: u32) -> Claim {
        serde_json::from_value(json!({ "metadata": {
            "name": name, "namespace": "vms", "uid": uid, "resourceVersion": version.to_string(),
        } }))
        .unwrap()
    }

    fn known(store: &Cache<Claim>, name: &str) -> Option<u128> {
        store.get("vms", name).map(|claim| version(claim.as_ref()))
    }

    #[test]
    fn later_version_wins_from_a_watch_or_a_response() {
        let store = Cache::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        store.upsert(claim("a", "1", 12));
        assert!(store.take(Event::Apply(claim("a", "1", 9))).is_empty(), "our write is later");
        assert_eq!(known(&store, "a"), Some(12));
        assert_eq!(store.take(Event::Apply(claim("a", "1", 100))).len(), 1);
        assert_eq!(known(&store, "a"), Some(100));
        // Another object of the same name, created later.
        store.upsert(claim("a", "2", 103));
        assert_eq!(known(&store, "a"), Some(103));
    }

    #[test]
    fn response_after_the_watch_event_adds_no_managed_fields() {
        let store = Cache::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        let mut response = claim("a", "1", 5);
        response.metadata.managed_fields = Some(vec![Default::default()]);
        store.upsert(response);
        assert_eq!(store.get("vms", "a").unwrap().metadata.managed_fields, None);
    }

    /// A PVC that has an index term: it is found by the name of its source.
    fn populated(name: &str, uid: &str, version: u32) -> Claim {
        let mut claim = claim(name, uid, version);
        claim.spec = serde_json::from_value(json!({ "dataSourceRef": {
            "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": name,
        } }))
        .unwrap();
        claim
    }

    #[test]
    fn repeated_version_wakes_controllers_and_is_stored_once() {
        let store = Cache::<Claim>::default();
        let stored = || store.read().objects[&Key::new("vms", "a")].terms.as_ptr();
        store.upsert(populated("a", "1", 5));
        let before = stored();
        assert_eq!(store.take(Event::Apply(populated("a", "1", 5))).len(), 1);
        assert_eq!(stored(), before);
        assert_eq!(store.take(Event::Apply(populated("a", "1", 6))).len(), 1);
        assert_ne!(stored(), before);
        // Without a version, two objects cannot be recognized as the same.
        let unversioned = |uid: &str| {
            let mut claim = claim("b", uid, 1);
            claim.metadata.resource_version = None;
            claim
        };
        store.upsert(unversioned("1"));
        store.take(Event::Apply(unversioned("2")));
        assert_eq!(store.get("vms", "b").unwrap().metadata.uid.as_deref(), Some("2"));
    }

    #[test]
    fn object_that_is_replaced_or_checked_for_is_not_decoded() {
        let store = Cache::<Claim>::default();
        let names: Vec<_> = (0..2000).map(|number| number.to_string()).collect();
        for version in 1..=2 {
            for name in &names {
                store.take(Event::Apply(populated(name, name, version)));
            }
        }
        assert!(names.iter().all(|name| store.contains("vms", name)));
        let decoded = || store.read().decoded.load(Ordering::Relaxed);
        assert_eq!(decoded(), 0);
        // Only as JSON by now, and found by its terms all the same.
        assert_eq!(store.find(&Term::RefersTo("0".into())).len(), 1);
        assert_eq!(decoded(), 1);
        assert!(!store.contains("elsewhere", "0"));
    }

    #[test]
    fn persistent_volume_is_trimmed_whether_watched_or_written() {
        let volume = |version: u32| -> PersistentVolume {
            serde_json::from_value(json!({
                "metadata": {
                    "name": "pv", "resourceVersion": version.to_string(),
                    "annotations": { "a": "b" }, "finalizers": ["f"], "labels": { "c": "d" },
                },
                "spec": { "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "csi" },
            }))
            .unwrap()
        };
        let store = Cache::default();
        for version in [1, 2] {
            if version == 1 {
                store.take(Event::Apply(volume(version)));
            } else {
                store.upsert(volume(version));
            }
            let cached = json!(&*store.get("", "pv").unwrap());
            let expected = json!({
                "metadata": { "name": "pv", "resourceVersion": version.to_string() },
                "spec": { "storageClassName": "csi" },
            });
            assert_eq!(cached, expected);
        }
    }

    #[test]
    fn late_response_does_not_restore_a_deleted_object() {
        let store = Cache::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        assert_eq!(store.take(Event::Delete(claim("a", "1", 7))).len(), 1);
        store.upsert(claim("a", "1", 6));
        assert_eq!(known(&store, "a"), None);
        store.upsert(claim("a", "2", 8));
        store.take(Event::Delete(claim("a", "1", 7)));
        assert_eq!(known(&store, "a"), Some(8), "that was another one");
    }

    #[test]
    fn deleted_object_is_removed_before_the_watch_event() {
        let store = Cache::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        store.forget(&Key::new("vms", "a"), "2");
        assert_eq!(known(&store, "a"), Some(5), "that was another one");
        store.forget(&Key::new("vms", "a"), "1");
        assert_eq!(known(&store, "a"), None);
        // A late response to a write, and then the watch event, which wakes the controllers.
        store.upsert(claim("a", "1", 6));
        assert_eq!(known(&store, "a"), None);
        assert_eq!(store.take(Event::Delete(claim("a", "1", 7))).len(), 1);
    }

    #[tokio::test]
    async fn new_list_removes_objects_that_it_does_not_contain() {
        let store = Cache::default();
        for name in ["a", "b"] {
            store.take(Event::Apply(claim(name, name, 1)));
        }
        store.take(Event::Init);
        store.upsert(claim("c", "c", 3));
        store.take(Event::InitApply(claim("a", "a", 2)));
        let changes = store.take(Event::InitDone);
        let gone: Vec<_> = changes.iter().map(|c| meta::name(&c.object().metadata)).collect();
        assert_eq!(gone, ["b"]);
        assert_eq!(known(&store, "c"), Some(3), "created while the list was read");
        store.ready().await;
        assert_eq!(store.list().len(), 2);
        store.take(Event::Delete(claim("c", "c", 4)));
        assert_eq!(store.list().len(), 1);
    }

    #[test]
    fn object_is_found_by_its_current_terms() {
        let store = Cache::<Claim>::default();
        let made_for = |uid: &str| Term::MadeFor(uid.to_owned());
        let helper = |name: &str, version: u32, uid: &str, phase: &str| {
            let mut claim = claim(name, name, version);
            let labels = [("cdi.kubevirt.io/OwnedByUID".to_owned(), uid.to_owned())];
            claim.metadata.labels = Some(labels.into());
            claim.status = serde_json::from_value(json!({ "phase": phase })).unwrap();
            claim
        };
        let found = |term: &Term| {
            let found = store.find(term);
            let mut names: Vec<_> =
                found.iter().map(|claim| meta::name(&claim.metadata).to_owned()).collect();
            names.sort();
            names
        };
        store.take(Event::Apply(helper("a", 1, "one", "Pending")));
        store.take(Event::Apply(helper("b", 2, "one", "Bound")));
        store.take(Event::Apply(claim("c", "c", 3)));
        assert_eq!(found(&made_for("one")), ["a", "b"]);
        assert_eq!(found(&Term::Helper), ["a", "b"]);
        // One that is cached as JSON only, and one that is new.
        store.upsert(helper("b", 4, "two", "Bound"));
        store.upsert(helper("d", 5, "two", "Bound"));
        assert_eq!(
            (found(&made_for("one")), found(&made_for("two"))),
            (vec!["a".into()], vec!["b".into(), "d".into()])
        );
        assert!(
            store.take(Event::Apply(helper("b", 3, "one", "Pending"))).is_empty(),
            "an older version"
        );
        assert_eq!(found(&made_for("two")), ["b", "d"]);
        store.take(Event::Delete(helper("b", 6, "two", "Bound")));
        store.take(Event::Init);
        store.take(Event::InitApply(claim("a", "a", 7)));
        store.take(Event::InitDone);
        assert_eq!(found(&Term::Helper), [""; 0]);
        assert!(store.read().index.is_empty(), "deleted objects leave no terms");
        assert_eq!(store.within("vms", |_| true).len(), 1);
        assert_eq!(store.within("elsewhere", |_| true).len(), 0);
    }
}
