//! What the cluster holds, as the last watch told and our own writes confirmed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::Resource;
use kube::runtime::watcher;
use tokio::sync::watch;

use super::queue::Key;
use crate::meta;

/// So many deletions are remembered, for answers to writes that come after the word of a deletion.
const DELETIONS: usize = 1024;

/// All objects of a kind that are watched.
pub struct Store<K> {
    inner: RwLock<Inner<K>>,
    ready: watch::Sender<bool>,
    /// The cluster does not know the kind.
    absent: AtomicBool,
}

struct Inner<K> {
    objects: HashMap<Key, Arc<K>>,
    /// All of them in one piece, for plans that look at all; made when somebody asks.
    list: Option<Arc<Vec<K>>>,
    /// During a new list: what it has named so far, or what we wrote meanwhile.
    seen: Option<HashSet<Key>>,
    deleted: VecDeque<String>,
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// It was made or changed.
    Applied(Arc<K>),
    /// It is gone.
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

impl<K> Default for Store<K> {
    fn default() -> Self {
        let inner = Inner {
            objects: HashMap::new(),
            list: None,
            seen: None,
            deleted: VecDeque::with_capacity(DELETIONS),
        };
        Self {
            inner: RwLock::new(inner),
            ready: watch::Sender::new(false),
            absent: AtomicBool::new(false),
        }
    }
}

impl<K: Resource<DynamicType = ()> + Clone> Store<K> {
    fn read(&self) -> RwLockReadGuard<'_, Inner<K>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner<K>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// One object. The namespace of what is in none is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().objects.get(&Key::new(namespace, name)).cloned()
    }

    /// The objects that `wanted` picks.
    pub fn filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.read().objects.values().filter(|object| wanted(object)).cloned().collect()
    }

    /// All of them, in the order of their names. For kinds of which there are few.
    pub fn list(&self) -> Arc<Vec<K>> {
        if let Some(list) = &self.read().list {
            return Arc::clone(list);
        }
        let mut inner = self.write();
        let mut all: Vec<_> = inner.objects.iter().collect();
        all.sort_by(|a, b| a.0.cmp(b.0));
        let list = Arc::new(all.into_iter().map(|(_, object)| K::clone(object)).collect());
        inner.list = Some(Arc::clone(&list));
        list
    }

    /// The cluster does not know the kind, for now.
    pub fn note_absent(&self) {
        self.absent.store(true, Ordering::Relaxed);
    }

    /// Whether it is known what there is: there was a list, or there can be none.
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

    /// The answer to a write of our own, so that the next look does not see what was before it.
    pub fn learn(&self, mut object: K) {
        // As a watch has it, which may have told already: nobody here asks whose field is whose.
        object.meta_mut().managed_fields = None;
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

    /// An object that we deleted and that is gone, so that the next look does not find it.
    pub fn forget(&self, object: &K) {
        let mut inner = self.write();
        inner.remember_deletion(object);
        inner.remove(object);
    }

    /// Takes what a watch tells, and returns what it means.
    pub fn take(&self, event: watcher::Event<K>) -> Vec<Change<K>> {
        let mut inner = self.write();
        match event {
            watcher::Event::Apply(object) => {
                let key = key_of(&object);
                inner.put(key, object).map(Change::Applied).into_iter().collect()
            }
            watcher::Event::Delete(object) => {
                inner.remember_deletion(&object);
                inner.remove(&object);
                vec![Change::Deleted(Arc::new(object))]
            }
            watcher::Event::Init => {
                inner.seen = Some(HashSet::new());
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let key = key_of(&object);
                // A list is the truth, even where versions have begun anew, except about what we wrote since.
                let is_first = inner.seen.as_mut().is_none_or(|seen| seen.insert(key.clone()));
                if is_first {
                    inner.objects.remove(&key);
                }
                inner.put(key, object).map(Change::Applied).into_iter().collect()
            }
            watcher::Event::InitDone => {
                let seen = inner.seen.take().unwrap_or_default();
                let gone: Vec<Key> =
                    inner.objects.keys().filter(|key| !seen.contains(key)).cloned().collect();
                let gone: Vec<_> =
                    gone.iter().filter_map(|key| inner.objects.remove(key)).collect();
                if !gone.is_empty() {
                    inner.list = None;
                }
                drop(inner);
                self.ready.send_replace(true);
                gone.into_iter().map(Change::Deleted).collect()
            }
        }
    }
}

impl<K: Resource<DynamicType = ()>> Inner<K> {
    /// Keeps an object unless a later state of it is known. Returns it where it is news.
    fn put(&mut self, key: Key, object: K) -> Option<Arc<K>> {
        if self.objects.get(&key).is_some_and(|known| version(known.as_ref()) > version(&object)) {
            return None;
        }
        let object = Arc::new(object);
        self.objects.insert(key, Arc::clone(&object));
        self.list = None;
        Some(object)
    }

    /// One of the same name may be there again, by our own hand.
    fn remove(&mut self, object: &K) {
        let key = key_of(object);
        let same = |known: &Arc<K>| known.meta().uid == object.meta().uid;
        if self.objects.get(&key).is_some_and(same) {
            self.objects.remove(&key);
            self.list = None;
        }
    }

    fn remember_deletion(&mut self, object: &K) {
        if let Some(uid) = &object.meta().uid {
            if self.deleted.len() == DELETIONS {
                self.deleted.pop_front();
            }
            self.deleted.push_back(uid.clone());
        }
    }
}

/// The key of an object.
pub fn key_of<K: Resource<DynamicType = ()>>(object: &K) -> Key {
    Key::new(meta::namespace(object.meta()), meta::name(object.meta()))
}

/// Resource versions of one kind are numbers that grow, and Kubernetes promises that they stay so.
fn version<K: Resource<DynamicType = ()>>(object: &K) -> u128 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim as Claim;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn claim(name: &str, uid: &str, version: u32) -> Claim {
        serde_json::from_value(json!({ "metadata": {
            "name": name, "namespace": "vms", "uid": uid, "resourceVersion": version.to_string(),
        } }))
        .unwrap()
    }

    fn known(store: &Store<Claim>, name: &str) -> Option<u128> {
        store.get("vms", name).map(|claim| version(claim.as_ref()))
    }

    #[test]
    fn the_latest_word_counts_whoever_brings_it() {
        let store = Store::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        store.learn(claim("a", "1", 12));
        assert!(store.take(Event::Apply(claim("a", "1", 9))).is_empty(), "our write is later");
        assert_eq!(known(&store, "a"), Some(12));
        assert_eq!(store.take(Event::Apply(claim("a", "1", 100))).len(), 1);
        assert_eq!(known(&store, "a"), Some(100));
        // One of the same name that was made later.
        store.learn(claim("a", "2", 103));
        assert_eq!(known(&store, "a"), Some(103));
    }

    #[test]
    fn an_answer_that_comes_after_the_watch_takes_no_more_room() {
        let store = Store::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        let mut answer = claim("a", "1", 5);
        answer.metadata.managed_fields = Some(vec![Default::default()]);
        store.learn(answer);
        assert_eq!(store.get("vms", "a").unwrap().metadata.managed_fields, None);
    }

    #[test]
    fn what_was_deleted_does_not_come_back_by_a_late_answer() {
        let store = Store::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        assert_eq!(store.take(Event::Delete(claim("a", "1", 7))).len(), 1);
        store.learn(claim("a", "1", 6));
        assert_eq!(known(&store, "a"), None);
        store.learn(claim("a", "2", 8));
        store.take(Event::Delete(claim("a", "1", 7)));
        assert_eq!(known(&store, "a"), Some(8), "that was another one");
    }

    #[test]
    fn what_we_deleted_is_gone_before_a_watch_tells() {
        let store = Store::default();
        store.take(Event::Apply(claim("a", "1", 5)));
        store.forget(&claim("a", "2", 5));
        assert_eq!(known(&store, "a"), Some(5), "that was another one");
        store.forget(&claim("a", "1", 5));
        assert_eq!(known(&store, "a"), None);
        // A write of ours that was answered late, and then the watch, which wakes whoever has to know.
        store.learn(claim("a", "1", 6));
        assert_eq!(known(&store, "a"), None);
        assert_eq!(store.take(Event::Delete(claim("a", "1", 7))).len(), 1);
    }

    #[tokio::test]
    async fn a_new_list_drops_what_it_does_not_name() {
        let store = Store::default();
        for name in ["a", "b"] {
            store.take(Event::Apply(claim(name, name, 1)));
        }
        store.take(Event::Init);
        store.learn(claim("c", "c", 3));
        store.take(Event::InitApply(claim("a", "a", 2)));
        let changes = store.take(Event::InitDone);
        let gone: Vec<_> = changes.iter().map(|c| meta::name(&c.object().metadata)).collect();
        assert_eq!(gone, ["b"]);
        assert_eq!(known(&store, "c"), Some(3), "made while the list was read");
        store.ready().await;
        assert_eq!(store.list().len(), 2);
        store.take(Event::Delete(claim("c", "c", 4)));
        assert_eq!(store.list().len(), 1);
    }
}
