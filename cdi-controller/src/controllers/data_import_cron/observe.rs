//! What a decision about a cron depends on.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::labels;
use api::v1beta1::{DataImportCron, DataSource, DataVolume, StorageProfile};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::Engine;
use crate::engine::api_client::{Caches, Kind};
use crate::engine::cache::{Cache, key_of};
use crate::engine::image_proof::is_proven;
use crate::engine::index::Term;
use crate::engine::queue::Key;
use controller_core::data_import_cron::{self as crons, Change, CronPlan, Facts, Polled};
use controller_core::meta;
use controller_core::plan::Plan;
use controller_core::snapshot::VolumeSnapshot;
use controller_core::storage_profile::SnapshotClass;

/// How much of a DataSource's name each import's name starts with.
const STEM_LEN_MAX: usize = 63;

pub struct CronFacts {
    pub cron: Arc<DataImportCron>,
    /// The cron that the DataSource's label names, if it is another one.
    manager: Option<Arc<DataImportCron>>,
    owned: OwnedObjects,
    classes: Arc<Vec<StorageClass>>,
    profiles: Arc<Vec<StorageProfile>>,
    snapshot_classes: Vec<SnapshotClass>,
    /// Whether it may clone its source, as far as that was reviewed.
    pub may_clone: bool,
}

/// Objects in a cron's namespace that may be its own.
pub struct OwnedObjects {
    volumes: Vec<DataVolume>,
    claims: Vec<PersistentVolumeClaim>,
    snapshots: Vec<VolumeSnapshot>,
    sources: Vec<DataSource>,
}

impl OwnedObjects {
    /// Objects with the cron's label, and those with a name that its imports have: a user may have created them.
    pub fn observe(caches: &Caches, key: &Key, data_source: Option<&str>) -> Self {
        let stem = data_source.map(|name| name.get(..STEM_LEN_MAX).unwrap_or(name));
        let is_named =
            |metadata: &ObjectMeta| stem.is_some_and(|stem| meta::name(metadata).starts_with(stem));
        let may_be = |metadata: &ObjectMeta| {
            meta::label(metadata, labels::DATA_IMPORT_CRON) == Some(key.name.as_str())
                || is_named(metadata)
        };
        // A DataSource of any name may refer to one of its images.
        let refers_to_image = |source: &DataSource| {
            let source = &source.spec.source;
            let mut references = source.pvc.iter().chain(&source.snapshot);
            references.any(|reference| {
                reference.namespace == key.namespace
                    && stem.is_some_and(|stem| reference.name.starts_with(stem))
            })
        };
        let is_candidate =
            |source: &DataSource| may_be(&source.metadata) || refers_to_image(source);
        Self {
            volumes: labelled_or_named(&caches.volumes, key, stem),
            claims: labelled_or_named(&caches.claims, key, stem),
            snapshots: labelled_or_named(&caches.snapshots, key, stem),
            sources: owned(caches.data_sources.within(&key.namespace, is_candidate)),
        }
    }

    pub fn all(&self) -> crons::NamespaceObjects<'_> {
        crons::NamespaceObjects {
            volumes: &self.volumes,
            claims: &self.claims,
            snapshots: &self.snapshots,
            sources: &self.sources,
        }
    }
}

/// By the index and by the names alone: decoding all objects of a namespace at each change of one of them would cost a
/// controller most of its time.
fn labelled_or_named<K: Kind>(store: &Cache<K>, cron: &Key, stem: Option<&str>) -> Vec<K> {
    let labelled = store.find(&Term::OfCron(cron.clone()));
    let named = stem.map(|stem| store.named(&cron.namespace, stem)).unwrap_or_default();
    let all = labelled.into_iter().chain(named);
    let all: BTreeMap<_, _> = all.map(|object| (key_of(object.as_ref()), object)).collect();
    owned(all.into_values().collect())
}

fn owned<K: Clone>(objects: Vec<Arc<K>>) -> Vec<K> {
    objects.into_iter().map(Arc::unwrap_or_clone).collect()
}

impl CronFacts {
    pub fn observe(engine: &Engine, cron: Arc<DataImportCron>) -> Self {
        let caches = &engine.api.caches;
        let key = key_of(cron.as_ref());
        let name = &cron.spec.managed_data_source;
        let source = caches.data_sources.get(&key.namespace, name);
        let manager = source.and_then(|source| {
            let other = meta::label(&source.metadata, labels::DATA_IMPORT_CRON)?;
            caches.crons.get(&key.namespace, other)
        });
        let snapshot_classes = caches.snapshot_classes.list();
        Self {
            owned: OwnedObjects::observe(caches, &key, Some(name)),
            manager,
            classes: engine.classes(),
            profiles: caches.profiles.list(),
            snapshot_classes: snapshot_classes.iter().map(|class| class.to_fact()).collect(),
            may_clone: false,
            cron,
        }
    }

    pub fn plan(&self, engine: &Engine, polled: Option<&Polled>, now: Timestamp) -> CronPlan {
        let facts = Facts {
            cron: &self.cron,
            manager: self.manager.as_deref(),
            classes: &self.classes,
            profiles: &self.profiles,
            snapshot_classes: &self.snapshot_classes,
            all: self.owned.all(),
            poll_from: engine.settings.poll_from,
            polled,
            may_clone: self.may_clone,
            installation: &engine.settings.installation,
        };
        crons::plan(&facts, now)
    }

    /// The writes of these changes.
    pub fn changes_plan(&self, engine: &Engine, changes: Vec<Change>) -> Plan {
        crons::changes_plan(&self.cron, changes, &self.owned.all(), &|claim, image| {
            is_proven(engine, claim, image)
        })
    }
}
