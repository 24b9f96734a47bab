//! The client for the API server: the caches of the watched objects, and the few kinds of writes. Each is safe to
//! repeat.

use std::fmt::Debug;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use api::v1beta1::{
    Cdi, CdiConfig, DataImportCron, DataSource, DataVolume, ObjectTransfer,
    OpenstackVolumePopulator, OvirtVolumePopulator, StorageProfile, VolumeCloneSource,
    VolumeImportSource, VolumeUploadSource,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use runtime::decoded::{Decoded, decodable};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::engine::cache::{Cache, key_of};
use crate::engine::index::{self, Term};
use crate::engine::packed;
use crate::engine::queue::{Key, Queue};
use crate::engine::{Error, Queues};
use controller_core::meta;
use controller_core::object::ObjectRef;
use controller_core::openshift::{Infrastructure, Proxy, Route};
use controller_core::snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use controller_core::snapshot_class::VolumeSnapshotClass;
use controller_core::volume::PersistentVolume;

/// The field manager of all writes.
const FIELD_MANAGER: &str = "cdi-controller";

/// A kind that is read or written here.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
    /// Whether there may be one for each volume of the cluster, or more.
    const ARE_MANY: bool = false;
    /// What most objects of a numerous kind contain; see [`crate::engine::packed`].
    fn sample() -> &'static [u8] {
        &[]
    }
    /// The API for objects of this kind.
    fn among(client: Client, namespace: &str) -> Api<Self>;
    /// The same API, read so that one object that cannot be decoded leaves the others readable.
    fn one_by_one(client: Client, namespace: &str) -> Api<Decoded<Self>>;
    /// The queue of the controller whose work items are the objects of this kind.
    fn own_queue(_queues: &Queues) -> Option<&Queue> {
        None
    }
    /// The cache, if the kind is watched.
    fn store(_stores: &Caches) -> Option<&Cache<Self>> {
        None
    }
    /// The index terms of the object.
    fn terms(&self) -> Vec<Term> {
        Vec::new()
    }
    /// Drops the fields that no controller reads, before the object is cached.
    fn trim(&mut self) {
        self.meta_mut().managed_fields = None;
    }
}

macro_rules! kinds {
    ($($scope:ident $kind:ty $(=> $store:ident $(of $many:ident $(like $sample:literal)?)?)? $(, by $terms:path)? $(, queue $queue:ident)? $(, trimmed by $trim:path)?;)*) => { $(
        impl Kind for $kind {
            $($(kinds!(@$many $kind $(, $sample)?);)?)?
            fn among(client: Client, namespace: &str) -> Api<Self> {
                kinds!(@api $scope client namespace)
            }
            fn one_by_one(client: Client, namespace: &str) -> Api<Decoded<Self>> {
                kinds!(@api $scope client namespace)
            }
            $(fn own_queue(queues: &Queues) -> Option<&Queue> {
                Some(&queues.$queue)
            })?
            $(fn store(caches: &Caches) -> Option<&Cache<Self>> {
                Some(&caches.$store)
            })?
            $(fn terms(&self) -> Vec<Term> {
                $terms(self)
            })?
            $(fn trim(&mut self) {
                $trim(self);
            })?
        }
    )* };
    (@many $kind:ty $(, $sample:literal)?) => {
        const ARE_MANY: bool = true;
        $(fn sample() -> &'static [u8] {
            static SAMPLE: LazyLock<Vec<u8>> =
                LazyLock::new(|| packed::dictionary::<$kind>(include_str!($sample)));
            &SAMPLE
        })?
    };
    (@api namespaced $client:ident $namespace:ident) => { Api::namespaced($client, $namespace) };
    (@api global $client:ident $namespace:ident) => {{
        let _ = $namespace;
        Api::all($client)
    }};
}

kinds! {
    namespaced DataVolume => volumes of many like "samples/data_volume.json", by index::of_volume, queue volumes;
    namespaced VolumeImportSource => import_sources of many;
    namespaced VolumeUploadSource => upload_sources of many;
    namespaced VolumeCloneSource => clone_sources of many, by index::of_clone_source;
    namespaced OvirtVolumePopulator => ovirt_disks;
    namespaced OpenstackVolumePopulator => openstack_images;
    namespaced DataSource => data_sources, by index::of_data_source, queue data_sources;
    namespaced DataImportCron => crons, by index::of_import_cron, queue crons;
    namespaced CronJob => cron_jobs;
    namespaced Job;
    namespaced VolumeSnapshot => snapshots of many, by index::of_snapshot;
    global VolumeSnapshotContent;
    global VolumeSnapshotClass => snapshot_classes;
    namespaced PersistentVolumeClaim => claims of many like "samples/persistent_volume_claim.json", by index::of_claim;
    namespaced Pod => pods of many like "samples/pod.json", by index::of_pod;
    namespaced Service;
    namespaced Ingress => ingresses;
    namespaced Route => routes;
    namespaced Secret;
    namespaced ConfigMap;
    global PersistentVolume => persistent_volumes of many like "samples/persistent_volume.json", trimmed by without_details;
    global StorageClass => classes;
    global StorageProfile => profiles;
    global CSIDriver => drivers;
    global CdiConfig => configs;
    global Cdi => installations;
    global Infrastructure => infrastructures;
    global Proxy => proxies;
    global ObjectTransfer => transfers, queue transfers;
}

/// The caches of all watched kinds.
#[derive(Default)]
pub struct Caches {
    /// All DataVolumes.
    pub volumes: Cache<DataVolume>,
    /// All import sources.
    pub import_sources: Cache<VolumeImportSource>,
    /// All upload sources.
    pub upload_sources: Cache<VolumeUploadSource>,
    /// All clone sources.
    pub clone_sources: Cache<VolumeCloneSource>,
    /// Volume populators for disks of oVirt, if the cluster has forklift's kinds.
    pub ovirt_disks: Cache<OvirtVolumePopulator>,
    /// Volume populators for images of OpenStack, likewise.
    pub openstack_images: Cache<OpenstackVolumePopulator>,
    /// All DataImportCrons.
    pub crons: Cache<DataImportCron>,
    /// CronJobs that poll for newer images, in the namespace of the installation.
    pub cron_jobs: Cache<CronJob>,
    /// All DataSources.
    pub data_sources: Cache<DataSource>,
    /// All snapshots, if the cluster has snapshots.
    pub snapshots: Cache<VolumeSnapshot>,
    /// All PVCs.
    pub claims: Cache<PersistentVolumeClaim>,
    /// All volumes, without the fields that no controller reads.
    pub persistent_volumes: Cache<PersistentVolume>,
    /// Worker pods.
    pub pods: Cache<Pod>,
    /// All storage classes.
    pub classes: Cache<StorageClass>,
    /// All storage profiles.
    pub profiles: Cache<StorageProfile>,
    /// All storage drivers.
    pub drivers: Cache<CSIDriver>,
    /// The settings in force.
    pub configs: Cache<CdiConfig>,
    /// The installation.
    pub installations: Cache<Cdi>,
    /// All transfers.
    pub transfers: Cache<ObjectTransfer>,
    /// All classes of snapshots, if the cluster has snapshots.
    pub snapshot_classes: Cache<VolumeSnapshotClass>,
    /// Ingresses in the namespace of the installation.
    pub ingresses: Cache<Ingress>,
    /// Routes in that namespace, if the cluster is OpenShift.
    pub routes: Cache<Route>,
    /// The platform of the cluster, if it is OpenShift.
    pub infrastructures: Cache<Infrastructure>,
    /// The platform's proxies, if the cluster is OpenShift.
    pub proxies: Cache<Proxy>,
}

impl Caches {
    /// The settings in force; `None` until a CDIConfig exists.
    pub fn config(&self) -> Option<std::sync::Arc<CdiConfig>> {
        self.configs.get("", api::names::CDI_CONFIG)
    }
}

/// The result of a create request.
#[derive(Debug)]
pub enum CreateOutcome<K> {
    Created(K),
    AlreadyExists,
}

/// The client for the API server.
pub struct ApiClient {
    client: Client,
    pub caches: Caches,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl ApiClient {
    /// A client with empty caches.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            caches: Caches::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// For watches, and reads of objects that are not watched.
    pub fn client(&self) -> Client {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.client.clone()
    }

    /// How many reads there were, and watches that were started.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// How many writes there were.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    fn api<K: Kind>(&self, namespace: &str) -> Api<K> {
        K::among(self.client.clone(), namespace)
    }

    fn count(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Caches the response to a write.
    fn upsert<K: Kind>(&self, response: &mut K) {
        // Before the copy: they are half of the object.
        response.meta_mut().managed_fields = None;
        if let Some(store) = K::store(&self.caches) {
            store.upsert(response.clone());
        }
    }

    fn forget<K: Kind>(&self, key: &Key, uid: &str) {
        if let Some(store) = K::store(&self.caches) {
            store.forget(key, uid);
        }
    }

    /// Reads an object that is not watched; `None`: there is none.
    ///
    /// # Errors
    /// [`Error::Api`]; [`Error::Undecodable`] where there is one.
    pub async fn get<K: Kind>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let got = K::one_by_one(self.client(), namespace).get_opt(name).await;
        let got = got.map_err(failed::<K>("read", namespace, name))?;
        got.map(|object| object.0).transpose().map_err(|source| Error::Undecodable {
            kind: K::kind(&()).into_owned(),
            name: Key::new(namespace, name).to_string(),
            source,
        })
    }

    /// The objects of a namespace that have these labels, from the API server, as a watch may be behind. Empty if the
    /// cluster does not have the kind.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn list<K: Kind>(&self, namespace: &str, labels: &str) -> Result<Vec<K>, Error> {
        let all = K::one_by_one(self.client(), namespace);
        match all.list(&ListParams::default().labels(labels)).await {
            Ok(list) => Ok(decodable(list)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(failed::<K>("list", namespace, labels)(error)),
        }
    }

    /// Creates an object, unless one of its name exists.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub(in crate::engine) async fn create<K: Kind>(
        &self,
        object: &K,
    ) -> Result<CreateOutcome<K>, Error> {
        let (namespace, name) = (meta::namespace(object.meta()), meta::name(object.meta()));
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        self.count();
        match self.api::<K>(namespace).create(&parameters, object).await {
            Ok(mut created) => {
                self.upsert(&mut created);
                tracing::debug!("created {} {}", K::kind(&()), key_of(object));
                Ok(CreateOutcome::Created(created))
            }
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                Ok(CreateOutcome::AlreadyExists)
            }
            Err(error) => Err(failed::<K>("create", namespace, name)(error)),
        }
    }

    /// Whether an object could be created: a dry run, which admission webhooks see too.
    ///
    /// # Errors
    /// [`Error::Api`]; also when one of its name exists.
    pub async fn dry_run_create<K: Kind>(&self, object: &K) -> Result<(), Error> {
        let (namespace, name) = (meta::namespace(object.meta()), meta::name(object.meta()));
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        let created = K::among(self.client(), namespace).create(&parameters, object).await;
        created.map(|_| ()).map_err(failed::<K>("create", namespace, name))
    }

    /// Changes an object by a merge patch. `guarded`: fails with a conflict if the object has changed since it was read.
    ///
    /// # Errors
    /// [`Error::Api`]; also when it is gone.
    pub(in crate::engine) async fn patch_ref<K: Kind>(
        &self,
        target: &ObjectRef,
        merge: &Value,
        guarded: bool,
    ) -> Result<K, Error> {
        let Key { namespace, name } = &target.key;
        self.count();
        let with_version = guarded.then(|| with_version(merge, target));
        let patch = Patch::Merge(with_version.as_ref().unwrap_or(merge));
        let changed = self.api::<K>(namespace).patch(name, &parameters(), &patch).await;
        let mut changed = changed.map_err(failed::<K>("change", namespace, name))?;
        self.upsert(&mut changed);
        Ok(changed)
    }

    /// Changes the status of an object by a merge patch.
    ///
    /// # Errors
    /// [`Error::Api`]; also when it is gone.
    pub(in crate::engine) async fn patch_status_ref<K: Kind>(
        &self,
        target: &ObjectRef,
        status: &Value,
    ) -> Result<K, Error> {
        let Key { namespace, name } = &target.key;
        self.count();
        let patch = Patch::Merge(json!({ "status": status }));
        let changed = self.api::<K>(namespace).patch_status(name, &parameters(), &patch).await;
        let mut changed = changed.map_err(failed::<K>("change the status of", namespace, name))?;
        self.upsert(&mut changed);
        Ok(changed)
    }

    /// Replaces an object, unless it has changed since it was read.
    ///
    /// # Errors
    /// [`Error::Api`]; also when it has changed.
    pub(in crate::engine) async fn replace<K: Kind>(&self, object: &K) -> Result<K, Error> {
        let (namespace, name) = (meta::namespace(object.meta()), meta::name(object.meta()));
        self.count();
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let written = self.api::<K>(namespace).replace(name, &parameters, object).await;
        let mut written = written.map_err(failed::<K>("write", namespace, name))?;
        self.upsert(&mut written);
        Ok(written)
    }

    /// Deletes an object: by its UID if `target` has one, and never another one of its name. It is no error if the
    /// object does not exist.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub(in crate::engine) async fn delete_ref<K: Kind>(
        &self,
        target: &ObjectRef,
    ) -> Result<(), Error> {
        let ObjectRef { key: Key { namespace, name }, uid, .. } = target;
        self.count();
        let by_uid =
            |uid: &String| Preconditions { uid: Some(uid.clone()), resource_version: None };
        let parameters =
            DeleteParams { preconditions: uid.as_ref().map(by_uid), ..DeleteParams::background() };
        let response = self.api::<K>(namespace).delete(name, &parameters).await;
        match (response, uid) {
            (Ok(response), Some(uid)) => {
                // Shown as terminating, so that it is not deleted again before the watch reports it.
                match response.left() {
                    Some(mut terminating) => self.upsert(&mut terminating),
                    None => self.forget::<K>(&target.key, uid),
                }
                tracing::debug!("deleted the {} {}", K::kind(&()), target.key);
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(kube::Error::Api(status)), _) if status.code == 404 => Ok(()),
            // Another one by now.
            (Err(kube::Error::Api(status)), Some(_)) if status.code == 409 => Ok(()),
            (Err(error), _) => Err(failed::<K>("delete", namespace, name)(error)),
        }
    }
}

/// A merge patch that fails with a conflict if the object has changed.
fn with_version(merge: &Value, target: &ObjectRef) -> Value {
    let mut merge = merge.clone();
    merge["metadata"]["resourceVersion"] = json!(target.resource_version);
    merge
}

/// Drops what drivers record on volumes, which no controller reads: the cluster has as many volumes as PVCs.
fn without_details(volume: &mut PersistentVolume) {
    volume.metadata.managed_fields = None;
    volume.metadata.annotations = None;
    volume.metadata.finalizers = None;
    volume.metadata.labels = None;
    if let Some(spec) = &mut volume.spec {
        spec.persistent_volume_reclaim_policy = None;
    }
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

fn failed<K: Kind>(
    action: &'static str,
    namespace: &str,
    name: &str,
) -> impl FnOnce(kube::Error) -> Error {
    let name = Key::new(namespace, name).to_string();
    move |source| Error::Api {
        action,
        kind: K::kind(&()).into_owned(),
        name,
        source: Box::new(source),
    }
}
