//! The contents of a cache: objects by name and by index terms, and what was deleted.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::engine::api_client::Kind;
use crate::engine::cache_entry::{CacheEntry, Recent, version};
use crate::engine::index::Term;
use crate::engine::queue::Key;
use crate::engine::undecodable::UndecodableObjects;

/// So many deletions are remembered, for responses to writes that arrive after the watch event of the deletion.
const DELETIONS_MAX: usize = 1024;

/// All under the one lock of a [`Cache`](crate::engine::cache::Cache).
pub(super) struct CacheContents<K> {
    pub(super) objects: HashMap<Arc<Key>, CacheEntry<K>>,
    /// Some of them, decoded.
    recent: Mutex<Recent<K>>,
    /// Keys of the objects that have a term.
    pub(super) index: HashMap<Arc<Term>, HashSet<Arc<Key>>>,
    /// All of them, decoded, for plans that read all. Built on demand.
    pub(super) list: Option<Arc<Vec<K>>>,
    /// While a new list is received: the objects that it has named so far, and those that we wrote meanwhile.
    pub(super) seen: Option<HashSet<Key>>,
    /// UIDs of deleted objects, the oldest first.
    pub(super) deleted: VecDeque<String>,
    /// In the cluster, and not among `objects`.
    pub(super) undecodable: UndecodableObjects,
    /// How many objects were decoded from their JSON.
    #[cfg(test)]
    pub(super) decoded: std::sync::atomic::AtomicUsize,
}

impl<K> Default for CacheContents<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            recent: Mutex::default(),
            index: HashMap::new(),
            list: None,
            seen: None,
            deleted: VecDeque::with_capacity(DELETIONS_MAX),
            undecodable: UndecodableObjects::default(),
            #[cfg(test)]
            decoded: Default::default(),
        }
    }
}

impl<K: Kind> CacheContents<K> {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        let (key, kept) = self.objects.get_key_value(key)?;
        if let Some(object) = self.recent().get(key) {
            return Some(object);
        }
        let object = kept.object()?;
        #[cfg(test)]
        self.decoded.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.recent().put(key, &object);
        Some(object)
    }

    fn recent(&self) -> MutexGuard<'_, Recent<K>> {
        self.recent.lock()
    }

    /// Adds an object unless a later version of it is known. Returns it if its controllers have to be woken: also if this
    /// version is known, as a watch repeats what the response to a write has brought.
    pub(super) fn put(&mut self, key: Key, mut object: K) -> Option<Arc<K>> {
        let version = version(&object);
        let known = self.objects.get(&key).map(|known| known.version);
        if known.is_some_and(|known| known > version) || self.undecodable.is_later(&key, version) {
            return None;
        }
        object.trim();
        let object = Arc::new(object);
        // A version that is no number is 0, and identifies nothing.
        if version > 0 && known == Some(version) {
            if let Some((key, _)) = self.objects.get_key_value(&key) {
                self.recent().put(key, &object);
            }
            return Some(object);
        }
        self.undecodable.remove(&key);
        self.remove_from_index(&key);
        self.list = None;
        let known = self.objects.get_key_value(&key).map(|(known, _)| Arc::clone(known));
        let key = known.unwrap_or_else(|| Arc::new(key));
        let terms = object.terms().into_iter().map(|term| self.add_to_index(term, &key)).collect();
        self.recent().put(&key, &object);
        self.objects.insert(key, CacheEntry::new(&object, terms));
        Some(object)
    }

    /// Removes the object of this name, and returns it.
    pub(super) fn take_out(&mut self, key: &Key) -> Option<Arc<K>> {
        let object = self.get(key);
        self.discard(key);
        object
    }

    /// Removes the object of this name.
    pub(super) fn discard(&mut self, key: &Key) {
        self.remove_from_index(key);
        self.objects.remove(key);
        self.recent().remove(key);
        self.list = None;
    }

    /// Terms that several objects have are in memory once.
    fn add_to_index(&mut self, term: Term, key: &Arc<Key>) -> Arc<Term> {
        let known = self.index.get_key_value(&term).map(|(known, _)| Arc::clone(known));
        let term = known.unwrap_or_else(|| Arc::new(term));
        self.index.entry(Arc::clone(&term)).or_default().insert(Arc::clone(key));
        term
    }

    fn remove_from_index(&mut self, key: &Key) {
        let Some(entry) = self.objects.get(key) else { return };
        for term in &entry.terms {
            if let Entry::Occupied(mut keys) = self.index.entry(Arc::clone(term)) {
                keys.get_mut().remove(key);
                if keys.get().is_empty() {
                    keys.remove();
                }
            }
        }
    }

    /// Removes the object with this UID. We may have created another one of its name.
    pub(super) fn remove(&mut self, key: &Key, uid: Option<&str>) {
        if self.get(key).is_some_and(|known| known.meta().uid.as_deref() == uid) {
            self.discard(key);
        }
    }

    pub(super) fn remember_uid(&mut self, uid: Option<&str>) {
        if let Some(uid) = uid {
            if self.deleted.len() == DELETIONS_MAX {
                self.deleted.pop_front();
            }
            self.deleted.push_back(uid.to_owned());
        }
    }
}
