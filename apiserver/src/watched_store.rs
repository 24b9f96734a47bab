//! Watched objects in memory, so that a webhook call reads them without a request.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use futures_util::StreamExt;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Client, Resource, ResourceExt};
use parking_lot::RwLock;
use runtime::decoded::Decoded;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// Objects in one page of a list: each may have 1.5 MiB.
const PAGE: u32 = 100;

/// The group of an object and the part of it that is stored. `None`: the object is not stored.
pub type StoreEntry<K> = Option<(String, K)>;

/// The cluster-scoped objects of the kind `W`, each stored as a `K`.
pub struct WatchedStore<W, K> {
    /// Plural, for logs.
    what: &'static str,
    to_entry: fn(W) -> StoreEntry<K>,
    objects: RwLock<Objects<K>>,
    is_listed: watch::Sender<bool>,
}

/// Objects by group and name.
struct Objects<K> {
    group_of: HashMap<String, String>,
    groups: HashMap<String, Group<K>>,
}

struct Group<K> {
    by_name: BTreeMap<String, K>,
    /// The same as a list, built at the first read after a change and shared by calls.
    list: OnceLock<Arc<Vec<K>>>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { group_of: HashMap::new(), groups: HashMap::new() }
    }
}

impl<K: Clone> Objects<K> {
    fn remove(&mut self, name: &str) {
        let Some(key) = self.group_of.remove(name) else { return };
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.by_name.remove(name);
        group.list = OnceLock::new();
        if group.by_name.is_empty() {
            self.groups.remove(&key);
        }
    }

    fn set(&mut self, name: String, entry: StoreEntry<K>) {
        self.remove(&name);
        let Some((key, object)) = entry else { return };
        let empty = || Group { by_name: BTreeMap::new(), list: OnceLock::new() };
        let group = self.groups.entry(key.clone()).or_insert_with(empty);
        group.by_name.insert(name.clone(), object);
        group.list = OnceLock::new();
        self.group_of.insert(name, key);
    }

    fn list(&self, group: &str) -> Arc<Vec<K>> {
        let Some(group) = self.groups.get(group) else { return Arc::default() };
        let list = || Arc::new(group.by_name.values().cloned().collect());
        Arc::clone(group.list.get_or_init(list))
    }
}

impl<W, K: Clone> WatchedStore<W, K>
where
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    /// Empty, until [`follow`](Self::follow) has listed the objects.
    pub fn new(what: &'static str, to_entry: fn(W) -> StoreEntry<K>) -> Self {
        let objects = RwLock::new(Objects::default());
        Self { what, to_entry, objects, is_listed: watch::Sender::new(false) }
    }

    /// The objects of a group, by name. Waits until all were listed once.
    pub async fn list(&self, group: &str) -> Arc<Vec<K>> {
        // The sender is part of `self`.
        let _ = self.is_listed.subscribe().wait_for(|is_listed| *is_listed).await;
        self.objects.read().list(group)
    }

    /// Runs the watch as long as it is polled.
    pub async fn follow(&self, client: Client) {
        let api: Api<Decoded<W>> = Api::all(client);
        let pages = watcher::Config::default().page_size(PAGE);
        let events = watch_objects(api, pages).default_backoff();
        let mut events = pin!(events);
        let mut listed = Objects::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(event, &mut listed),
                Err(error) => {
                    tracing::warn!("cannot watch {}: {}", self.what, runtime::chain(&error));
                }
            }
        }
    }

    /// `listed` collects a new list until it is complete.
    fn apply(&self, event: Event<Decoded<W>>, listed: &mut Objects<K>) {
        let objects = || self.objects.write();
        match event {
            Event::Init => *listed = Objects::default(),
            Event::InitApply(object) => self.set(listed, object),
            Event::InitDone => {
                *objects() = std::mem::take(listed);
                self.is_listed.send_replace(true);
            }
            Event::Apply(object) => self.set(&mut objects(), object),
            Event::Delete(object) => objects().remove(&object.name_any()),
        }
    }

    /// An object that cannot be decoded is skipped.
    fn set(&self, objects: &mut Objects<K>, object: Decoded<W>) {
        let name = object.name_any();
        match object.0 {
            Ok(object) => objects.set(name, (self.to_entry)(object)),
            Err(error) => {
                tracing::warn!("skipping {name} of the {}: {error}", self.what);
                objects.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use k8s_openapi::api::storage::v1::StorageClass;
    use serde_json::{Value, json};

    use super::*;

    /// The provisioner, by the parameter `group`.
    fn to_entry(class: StorageClass) -> StoreEntry<String> {
        let group = class.parameters?.remove("group")?;
        Some((group, class.provisioner))
    }

    /// A StorageClass in the group; one whose provisioner is not a text cannot be decoded.
    fn object(name: &str, group: Option<&str>, provisioner: Value) -> Decoded<StorageClass> {
        let parameters = group.map(|group| json!({ "group": group }));
        let object = json!({
            "metadata": { "name": name }, "provisioner": provisioner, "parameters": parameters,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn undecodable_object_does_not_affect_others() {
        let store = WatchedStore::new("StorageClasses", to_entry);
        let listed = |group: &str| store.list(group).now_or_never().map(|list| list.to_vec());
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        let mut initial = Objects::default();
        let mut take = |event| store.apply(event, &mut initial);
        take(Event::Init);
        take(Event::InitApply(object("a", Some("x"), json!("1"))));
        take(Event::InitApply(object("broken", Some("x"), json!([]))));
        take(Event::InitApply(object("other", None, json!("1"))));
        assert_eq!(listed("x"), None, "the list is not complete");
        take(Event::InitDone);
        assert_eq!(listed("x"), texts(&["1"]));
        take(Event::Apply(object("b", Some("x"), json!("2"))));
        assert_eq!(listed("x"), texts(&["1", "2"]));
        take(Event::Apply(object("a", Some("y"), json!("3"))));
        assert_eq!((listed("x"), listed("y")), (texts(&["2"]), texts(&["3"])));
        take(Event::Apply(object("b", Some("x"), json!(-1))));
        assert_eq!(listed("x"), texts(&[]), "an undecodable object is removed");
        take(Event::Delete(object("a", None, json!("3"))));
        assert_eq!(listed("y"), texts(&[]));
        // A second list replaces the first.
        take(Event::Apply(object("a", Some("x"), json!("1"))));
        take(Event::Init);
        take(Event::InitApply(object("c", Some("x"), json!("4"))));
        assert_eq!(listed("x"), texts(&["1"]));
        take(Event::InitDone);
        assert_eq!(listed("x"), texts(&["4"]));
    }

    #[test]
    fn calls_share_one_list_until_a_change() {
        let mut objects = Objects::default();
        objects.set("a".into(), Some(("x".into(), 1)));
        let first = objects.list("x");
        assert!(Arc::ptr_eq(&first, &objects.list("x")));
        objects.set("b".into(), Some(("x".into(), 2)));
        assert_eq!((first.len(), objects.list("x").len()), (1, 2));
    }
}
