//! Objects that are in the cluster and that no controller can read.
//!
//! Such an object is not in its cache: its content is unknown, and its last known version is out of date. It is not
//! deleted either, so its name is recorded here, and a controller that would delete something because the object does
//! not exist checks that first. The object's own controller ignores it until it can be decoded, or is deleted.
//!
//! ```text
//! watch ─► decoded: cache, wake
//!       └► not: removed from the cache, recorded here ─► log, metric, event (once a version, and not every second)
//! ```

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use api::events;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use runtime::decoded::{Decoded, UndecodableObject};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::engine::api_client::{Caches, Kind};
use crate::engine::cache::{Cache, Change};
use crate::engine::queue::Key;
use controller_core::event::Event;
use controller_core::meta;

/// The component of the event.
const COMPONENT: &str = "cdi-controller";

/// An object that its owner changes all the time, and that stays undecodable, is reported no more often.
const SILENCE: Duration = Duration::from_secs(600);

/// The undecodable objects of one kind.
#[derive(Default)]
pub struct UndecodableObjects {
    known: HashMap<Key, UndecodableVersion>,
    /// Deleted while they were undecodable, and not yet announced.
    vanished: Vec<Key>,
}

struct UndecodableVersion {
    uid: Option<String>,
    version: u128,
    reported_at: Instant,
}

impl UndecodableObjects {
    pub fn count(&self) -> usize {
        self.known.len()
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    /// Whether a later version of the object is undecodable.
    pub fn is_later(&self, key: &Key, version: u128) -> bool {
        self.known.get(key).is_some_and(|known| known.version > version)
    }

    /// Records an undecodable object. Returns whether it has to be reported.
    pub fn record(&mut self, key: Key, metadata: &ObjectMeta, now: Instant) -> bool {
        let uid = metadata.uid.clone();
        let version = version(metadata);
        let known = self.known.get(&key).filter(|known| known.uid == uid);
        let reported_at = known
            .filter(|known| {
                known.version == version || now.duration_since(known.reported_at) < SILENCE
            })
            .map(|known| known.reported_at);
        let at = reported_at.unwrap_or(now);
        self.known.insert(key, UndecodableVersion { uid, version, reported_at: at });
        reported_at.is_none()
    }

    /// The object can be decoded, or another one has its name.
    pub fn remove(&mut self, key: &Key) {
        self.known.remove(key);
    }

    /// The object is deleted, unless the UID is that of another one.
    pub fn delete(&mut self, key: &Key, uid: Option<&str>) {
        if self.known.get(key).is_some_and(|known| known.uid.as_deref() == uid) {
            self.known.remove(key);
            self.vanished.push(key.clone());
        }
    }

    /// A complete list has contained `seen` and nothing else.
    pub fn retain(&mut self, seen: &HashSet<Key>) {
        let gone: Vec<_> = self.known.keys().filter(|key| !seen.contains(key)).cloned().collect();
        for key in gone {
            self.known.remove(&key);
            self.vanished.push(key);
        }
    }

    /// The objects that were deleted since the last call.
    pub fn take_vanished(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.vanished)
    }
}

/// Resource versions are numbers; see [`crate::engine::cache_entry::version`].
pub fn version(metadata: &ObjectMeta) -> u128 {
    let version = metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Applies a watch event to the cache, wakes the controllers by `route`, and reports an object that cannot be decoded.
pub fn receive<K: Kind>(
    engine: &Engine,
    store: &Cache<K>,
    event: watcher::Event<Decoded<K>>,
    route: impl Fn(&Change<K>),
) {
    let changes = match split(event) {
        Ok(event) => store.take(event),
        Err(event) => {
            let (changes, report) = store.take_undecodable(event);
            if let Some(object) = report {
                self::report::<K>(engine, *object);
            }
            changes
        }
    };
    for change in changes {
        route(&change);
    }
    // Their controllers clean up after deleted objects; until now they had to ignore these.
    if let Some(queue) = K::own_queue(&engine.queues) {
        for key in store.take_vanished() {
            queue.add(key);
        }
    }
}

type Undecodable = watcher::Event<Box<UndecodableObject>>;

fn split<K>(event: watcher::Event<Decoded<K>>) -> Result<watcher::Event<K>, Undecodable> {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    match event {
        Apply(Decoded(object)) => object.map(Apply).map_err(Apply),
        Delete(Decoded(object)) => object.map(Delete).map_err(Delete),
        InitApply(Decoded(object)) => object.map(InitApply).map_err(InitApply),
        Init => Ok(Init),
        InitDone => Ok(InitDone),
    }
}

/// Logs an object that cannot be decoded, and records an event about it.
fn report<K: Kind>(engine: &Engine, object: UndecodableObject) {
    let kind = K::kind(&());
    let key = Key::new(meta::namespace(&object.metadata), meta::name(&object.metadata));
    tracing::warn!(object.kind = %kind, object.key = %key, "skipping the {kind} {key}: {object}");
    let message = format!("The controllers skip this object: {object}. Correct or delete it");
    let event = Event::warning(events::CANNOT_DECODE, message);
    engine.recorder.enqueue(COMPONENT, &Decoded::<K>(Err(Box::new(object))), &event);
}

impl Caches {
    /// How many objects of each kind cannot be decoded.
    pub fn undecodable(&self) -> Vec<(String, usize)> {
        fn count_of<K: Kind>(store: &Cache<K>) -> (String, usize) {
            (K::kind(&()).into_owned(), store.undecodable_count())
        }
        vec![
            count_of(&self.volumes),
            count_of(&self.import_sources),
            count_of(&self.upload_sources),
            count_of(&self.clone_sources),
            count_of(&self.ovirt_disks),
            count_of(&self.openstack_images),
            count_of(&self.crons),
            count_of(&self.cron_jobs),
            count_of(&self.data_sources),
            count_of(&self.snapshots),
            count_of(&self.claims),
            count_of(&self.persistent_volumes),
            count_of(&self.pods),
            count_of(&self.classes),
            count_of(&self.profiles),
            count_of(&self.drivers),
            count_of(&self.configs),
            count_of(&self.installations),
            count_of(&self.transfers),
            count_of(&self.snapshot_classes),
            count_of(&self.ingresses),
            count_of(&self.routes),
            count_of(&self.infrastructures),
            count_of(&self.proxies),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(uid: &str, version: u32) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn undecodable_object_is_reported_once_and_not_at_each_change() {
        let mut all = UndecodableObjects::default();
        let begin = Instant::now();
        let key = Key::new("vms", "a");
        let table = [
            ("the first time", "1", 5, 0, true),
            ("listed again", "1", 5, 0, false),
            ("changed within the silence", "1", 6, 60, false),
            ("listed again after the silence", "1", 6, 700, false),
            ("changed after the silence", "1", 7, 701, true),
            ("changed soon after", "1", 8, 702, false),
            ("another one of its name", "2", 9, 703, true),
        ];
        for (case, uid, version, seconds, expected) in table {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(all.record(key.clone(), &metadata(uid, version), now), expected, "{case}");
        }
        assert_eq!(all.count(), 1);
        all.delete(&key, Some("1"));
        assert!(all.contains(&key), "that was another one");
        all.delete(&key, Some("2"));
        assert_eq!((all.count(), all.take_vanished()), (0, vec![key.clone()]));
        assert!(all.record(key, &metadata("2", 9), begin), "it exists again");
        all.retain(&HashSet::new());
        assert_eq!((all.count(), all.take_vanished().len()), (0, 1));
    }
}
