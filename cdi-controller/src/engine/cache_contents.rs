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
    pub(super) index: HashMap<Term, HashSet<Arc<Key>>>,
    /// All of them, decoded, for plans that read all. Built on demand.
    pub(super) list: Option<Arc<Vec<K>>>,
    /// While a new list is received: the objects that it has named so far, and those that we wrote meanwhile.
    pub(super) seen: Option<HashSet<Key>>,
    /// UIDs of deleted objects, the oldest first.
    pub(super) deleted: VecDeque<String>,
    /// In the cluster, and not among `objects`.
    pub(super) undecodable: UndecodableObjects,
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
        self.recent().put(key, &object);
        Some(object)
    }

    fn recent(&self) -> MutexGuard<'_, Recent<K>> {
        self.recent.lock()
    }

    /// Adds an object unless a later version of it is known. Returns it if it was added.
    pub(super) fn put(&mut self, key: Key, object: K) -> Option<Arc<K>> {
        let version = version(&object);
        if self.objects.get(&key).is_some_and(|known| known.version > version)
            || self.undecodable.is_later(&key, version)
        {
            return None;
        }
        self.undecodable.remove(&key);
        self.take_from_index(&key);
        self.list = None;
        let known = self.objects.get_key_value(&key).map(|(known, _)| Arc::clone(known));
        let (key, object) = (known.unwrap_or_else(|| Arc::new(key)), Arc::new(object));
        for term in object.terms() {
            self.index.entry(term).or_default().insert(Arc::clone(&key));
        }
        self.recent().put(&key, &object);
        self.objects.insert(key, CacheEntry::new(&object));
        Some(object)
    }

    /// Removes the object of this name.
    pub(super) fn take_out(&mut self, key: &Key) -> Option<Arc<K>> {
        let object = self.take_from_index(key);
        self.objects.remove(key);
        self.recent().remove(key);
        self.list = None;
        object
    }

    /// Removes the object's terms from the index.
    fn take_from_index(&mut self, key: &Key) -> Option<Arc<K>> {
        let object = self.get(key)?;
        for term in object.terms() {
            if let Entry::Occupied(mut keys) = self.index.entry(term) {
                keys.get_mut().remove(key);
                if keys.get().is_empty() {
                    keys.remove();
                }
            }
        }
        Some(object)
    }

    /// Removes the object with this UID. We may have created another one of its name.
    pub(super) fn remove(&mut self, key: &Key, uid: Option<&str>) {
        if self.get(key).is_some_and(|known| known.meta().uid.as_deref() == uid) {
            self.take_out(key);
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
