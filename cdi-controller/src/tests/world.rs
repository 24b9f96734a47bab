//! The controllers against the fake API server. The tests simulate the rest of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use runtime::Flags;
use runtime::decoded::Decoded;
use serde_json::{Value, json};

use super::fake::Fake;
use crate::engine::api_client::Kind;
use crate::engine::cache::{Cache, Change};
use crate::engine::queue::Key;
use crate::engine::{Engine, FLAGS, Settings, undecodable};
use crate::{controllers, wake};
use controller_core::plan::Requeue;

/// Rounds that a DataVolume may take.
const ROUNDS: usize = 60;

pub struct TestCluster {
    pub fake: Fake,
    pub engine: Arc<Engine>,
    /// The objects that the watches have delivered, by place.
    delivered: BTreeMap<String, Value>,
    /// Whether the CSI driver clones PVCs and restores snapshots.
    pub driver_clones: bool,
    /// Whether one node can mount the volumes of all PVCs.
    pub has_large_node: bool,
    /// Whether PVCs of a class with WaitForFirstConsumer wait for a pod.
    pub waits_for_pods: bool,
    /// Whether workers end before a controller sees them run.
    pub is_quick: bool,
    /// How long to wait for a key of each queue: longer than short retry delays, unless a test sets another value.
    pub patience: Duration,
}

impl TestCluster {
    /// A cluster with one storage class, with or without a CSI driver that populators can use.
    pub fn new(binding: &str, has_driver: bool) -> Self {
        let fake = Fake::default();
        fake.put(
            "storageclasses",
            json!({
                "metadata": {
                    "name": "fast",
                    "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
                },
                "provisioner": "csi.example", "volumeBindingMode": binding,
            }),
        );
        if has_driver {
            fake.put("csidrivers", json!({ "metadata": { "name": "csi.example" }, "spec": {} }));
        }
        fake.put(
            "cdiconfigs",
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
                "metadata": {
                    "name": "config",
                    "annotations": { "cdi.kubevirt.io/inheritedDataVolumeTTLSeconds": "none" },
                },
                "spec": { "featureGates": ["HonorWaitForFirstConsumer"] },
                "status": { "filesystemOverhead": { "global": "0.06" } },
            }),
        );
        Self::started_on(fake)
    }

    /// Restarted controllers with empty caches.
    pub fn started_on(fake: Fake) -> Self {
        Self::with_flags(fake, &[])
    }

    /// Like `started_on`, with flags.
    pub fn with_flags(fake: Fake, flags: &[&str]) -> Self {
        let world = Self::before_snapshot_sync_with(fake, flags);
        world.engine.api.caches.snapshots.note_absent();
        world.engine.api.caches.snapshot_classes.note_absent();
        world
    }

    /// Restarted controllers that do not know yet whether the cluster has snapshots.
    pub fn before_snapshot_sync(fake: Fake) -> Self {
        Self::before_snapshot_sync_with(fake, &[])
    }

    fn before_snapshot_sync_with(fake: Fake, flags: &[&str]) -> Self {
        // The servers of tests are on this machine. A flag that comes later counts.
        let flags = std::iter::once(&"-poll-allow-cidrs=127.0.0.0/8").chain(flags);
        let flags = Flags::parse(flags.map(|flag| (*flag).to_owned()), &FLAGS);
        let settings = Settings::read(&flags, &BTreeMap::new(), None).unwrap();
        let engine = Arc::new(Engine::new(fake.client(), settings));
        // Plain Kubernetes without the OpenShift kinds, unless a test adds them.
        engine.api.caches.routes.note_absent();
        engine.api.caches.infrastructures.note_absent();
        engine.api.caches.proxies.note_absent();
        Self {
            fake,
            engine,
            delivered: BTreeMap::new(),
            driver_clones: true,
            has_large_node: true,
            waits_for_pods: false,
            is_quick: false,
            patience: Duration::from_millis(600),
        }
    }

    /// Creates a DataVolume in the namespace `vms`.
    pub fn volume(&self, name: &str, spec: Value) {
        self.fake.put(
            "datavolumes",
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                "metadata": { "name": name, "namespace": "vms" }, "spec": spec,
            }),
        );
    }

    pub fn status(&self, name: &str) -> Value {
        self.fake.get("datavolumes", "vms", name).unwrap_or_default()["status"].clone()
    }

    /// Delivers the changes since the last call to the caches, as the watches do.
    pub fn deliver_watch_events(&mut self) {
        fn version(object: &Value) -> &Value {
            &object["metadata"]["resourceVersion"]
        }
        let state = self.fake.0.lock().unwrap();
        let deleted: Vec<_> =
            self.delivered.extract_if(.., |place, _| !state.objects.contains_key(place)).collect();
        // Few objects change between two rounds: the others are not copied.
        let changed: Vec<_> = state
            .objects
            .iter()
            .filter(|(place, object)| {
                self.delivered.get(*place).map(version) != Some(version(object))
            })
            .map(|(place, object)| (place.clone(), object.clone()))
            .collect();
        drop(state);
        self.delivered.extend(changed.iter().cloned());
        for (place, object) in changed {
            self.route(&place, Event::Apply(object));
        }
        for (place, object) in deleted {
            if self.forget_undecodable(&place, &object) {
                continue;
            }
            let mut parts = place.splitn(3, '/');
            let (plural, namespace, name) =
                (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            self.forget(plural, namespace, name);
        }
    }

    fn route(&self, place: &str, event: Event<Value>) {
        let plural = place.split('/').next().unwrap();
        let engine = &self.engine;
        let caches = &engine.api.caches;
        match plural {
            "datavolumes" => apply(engine, &caches.volumes, event, |c| wake::volume(engine, c)),
            "volumeimportsources" => {
                apply(engine, &caches.import_sources, event, |c| wake::import_source(engine, c));
            }
            "volumeuploadsources" => {
                apply(engine, &caches.upload_sources, event, |c| wake::upload_source(engine, c));
            }
            "volumeclonesources" => {
                apply(engine, &caches.clone_sources, event, |c| wake::clone_source(engine, c));
            }
            "ovirtvolumepopulators" => {
                apply(engine, &caches.ovirt_disks, event, |c| wake::ovirt_disk(engine, c));
            }
            "openstackvolumepopulators" => {
                apply(engine, &caches.openstack_images, event, |c| {
                    wake::openstack_image(engine, c)
                });
            }
            "datasources" => {
                apply(engine, &caches.data_sources, event, |c| wake::data_source(engine, c));
            }
            "volumesnapshots" => {
                apply(engine, &caches.snapshots, event, |c| wake::snapshot(engine, c))
            }
            "volumesnapshotclasses" => {
                apply(engine, &caches.snapshot_classes, event, |c| wake::snapshot_class(engine, c));
            }
            "persistentvolumeclaims" => {
                apply(engine, &caches.claims, event, |c| wake::claim(engine, c))
            }
            "persistentvolumes" => {
                apply(engine, &caches.persistent_volumes, event, |c| {
                    wake::persistent_volume(engine, c)
                });
            }
            // The watch selects by a label.
            "pods" if !is_worker(&event) => {}
            "pods" => apply(engine, &caches.pods, event, |c| wake::pod(engine, c)),
            "storageclasses" => apply(engine, &caches.classes, event, |c| wake::class(engine, c)),
            "storageprofiles" => {
                apply(engine, &caches.profiles, event, |c| wake::profile(engine, c))
            }
            "csidrivers" => apply(engine, &caches.drivers, event, |_| ()),
            "ingresses" => apply(engine, &caches.ingresses, event, |c| wake::ingress(engine, c)),
            "routes" => apply(engine, &caches.routes, event, |c| wake::route(engine, c)),
            "proxies" => apply(engine, &caches.proxies, event, |c| wake::proxy(engine, c)),
            "infrastructures" => apply(engine, &caches.infrastructures, event, |_| ()),
            "cdis" => {
                apply(engine, &caches.installations, event, |c| wake::installation(engine, c));
            }
            "cdiconfigs" => apply(engine, &caches.configs, event, |c| wake::config(engine, c)),
            "dataimportcrons" => apply(engine, &caches.crons, event, |c| wake::cron(engine, c)),
            "cronjobs" => apply(engine, &caches.cron_jobs, event, |c| wake::cron_job(engine, c)),
            "objecttransfers" => {
                apply(engine, &caches.transfers, event, |c| wake::transfer(engine, c))
            }
            "services"
            | "secrets"
            | "configmaps"
            | "volumesnapshotcontents"
            | "jobs"
            | "imagestreams" => {}
            other => panic!("no controller watches {other}"),
        }
    }

    /// Deletes an object that could not be decoded. Returns false for all others.
    fn forget_undecodable(&self, place: &str, object: &Value) -> bool {
        fn receive_if_undecodable<K: Kind>(
            engine: &Engine,
            store: &Cache<K>,
            object: &Value,
        ) -> bool {
            let decoded: Decoded<K> = serde_json::from_value(object.clone()).unwrap();
            if decoded.0.is_err() {
                undecodable::receive(engine, store, Event::Delete(decoded), |_| ());
                return true;
            }
            false
        }
        let (engine, caches) = (&self.engine, &self.engine.api.caches);
        match place.split('/').next().unwrap() {
            "datavolumes" => receive_if_undecodable(engine, &caches.volumes, object),
            "dataimportcrons" => receive_if_undecodable(engine, &caches.crons, object),
            _ => false,
        }
    }

    fn forget(&self, plural: &str, namespace: &str, name: &str) {
        let engine = &self.engine;
        let caches = &engine.api.caches;
        match plural {
            "pods" => gone(&caches.pods, namespace, name, |c| wake::pod(engine, c)),
            "persistentvolumeclaims" => {
                gone(&caches.claims, namespace, name, |c| wake::claim(engine, c));
            }
            "volumeclonesources" => {
                gone(&caches.clone_sources, namespace, name, |c| wake::clone_source(engine, c));
            }
            "ovirtvolumepopulators" => {
                gone(&caches.ovirt_disks, namespace, name, |c| wake::ovirt_disk(engine, c));
            }
            "volumesnapshots" => {
                gone(&caches.snapshots, namespace, name, |c| wake::snapshot(engine, c));
            }
            "datavolumes" => gone(&caches.volumes, namespace, name, |c| wake::volume(engine, c)),
            "dataimportcrons" => gone(&caches.crons, namespace, name, |c| wake::cron(engine, c)),
            "datasources" => {
                gone(&caches.data_sources, namespace, name, |c| wake::data_source(engine, c));
            }
            "cronjobs" => {
                gone(&caches.cron_jobs, namespace, name, |c| wake::cron_job(engine, c));
            }
            "objecttransfers" => {
                gone(&caches.transfers, namespace, name, |c| wake::transfer(engine, c));
            }
            "storageprofiles" => {
                gone(&caches.profiles, namespace, name, |c| wake::profile(engine, c));
            }
            "ingresses" => gone(&caches.ingresses, namespace, name, |c| wake::ingress(engine, c)),
            "routes" => gone(&caches.routes, namespace, name, |c| wake::route(engine, c)),
            "storageclasses" => gone(&caches.classes, namespace, name, |c| wake::class(engine, c)),
            _ => {}
        }
    }

    /// Reconciles until no controller has work left.
    pub async fn work(&mut self) {
        for _ in 0..ROUNDS {
            self.deliver_watch_events();
            let mut worked = false;
            let engine = Arc::clone(&self.engine);
            for (name, queue) in engine.queues.all() {
                while let Ok(key) = tokio::time::timeout(self.patience, queue.next()).await {
                    let before = self.fake.0.lock().unwrap().writes.len();
                    let next = self.reconcile(name, key.clone()).await;
                    // A reconciliation that only asks for a later retry has made no progress.
                    worked |= !matches!(next, Some(Requeue::After(_)))
                        || self.fake.0.lock().unwrap().writes.len() != before;
                    match next {
                        Some(requeue) => queue.finish(key, requeue),
                        None => queue.retry(key),
                    }
                    self.deliver_watch_events();
                    if let Some(Requeue::After(_)) | None = next {
                        break; // a controller that polls would never finish
                    }
                }
            }
            if !worked {
                return;
            }
        }
    }

    async fn reconcile(&self, name: &str, key: Key) -> Option<Requeue> {
        let engine = Arc::clone(&self.engine);
        let outcome = match name {
            "datavolume" => controllers::data_volume::reconcile(engine, key).await,
            "populator" => controllers::populator::reconcile(engine, key).await,
            "import" => controllers::import::reconcile(engine, key).await,
            "upload" => controllers::upload::reconcile(engine, key).await,
            "forklift" => controllers::forklift::reconcile(engine, key).await,
            "clone" => controllers::clone::reconcile(engine, key).await,
            "copy" => controllers::copy::reconcile(engine, key).await,
            "dataimportcron" => controllers::data_import_cron::reconcile(engine, key).await,
            "datasource" => controllers::data_source::reconcile(engine, key).await,
            "storageprofile" => controllers::storage_profile::reconcile(engine, key).await,
            "config" => controllers::config::reconcile(engine, key).await,
            "objecttransfer" => controllers::object_transfer::reconcile(engine, key).await,
            other => panic!("there is no controller {other}"),
        };
        outcome.ok()
    }

    /// Alternates controllers and cluster, until the DataVolume is in `phase` and nothing changes.
    pub async fn until(&mut self, name: &str, phase: &str, termination_message: &str) {
        for _ in 0..ROUNDS {
            self.work().await;
            let before = self.fake.0.lock().unwrap().writes.len();
            self.simulate_cluster(termination_message);
            self.work().await;
            let after = self.fake.0.lock().unwrap().writes.len();
            if self.status(name)["phase"] == phase && before == after {
                return;
            }
        }
        let status = self.status(name);
        panic!(
            "{name} never reached {phase}: {status} after {:#?}",
            self.fake.0.lock().unwrap().writes
        );
    }

    /// Runs until a worker pod exists that has not started. Returns its place.
    pub async fn until_worker(&mut self, termination_message: &str) -> String {
        for _ in 0..20 {
            self.work().await;
            if let [pod] = &super::places(self, "pods")[..] {
                return pod.clone();
            }
            self.simulate_cluster(termination_message);
        }
        panic!("there is no worker: {:#?}", self.fake.0.lock().unwrap().writes);
    }
}

fn apply<K: Kind>(
    engine: &Engine,
    store: &Cache<K>,
    event: Event<Value>,
    route: impl Fn(&Change<K>),
) {
    let Event::Apply(object) = event else { return };
    let object = serde_json::from_value(object).unwrap();
    undecodable::receive(engine, store, Event::Apply(object), route);
}

fn is_worker(event: &Event<Value>) -> bool {
    matches!(event, Event::Apply(pod) if pod["metadata"]["labels"]["cdi.kubevirt.io"].is_string())
}

fn gone<K: Kind>(store: &Cache<K>, namespace: &str, name: &str, route: impl Fn(&Change<K>)) {
    let Some(object) = store.get(namespace, name) else { return };
    for change in store.take(Event::Delete(object.as_ref().clone())) {
        route(&change);
    }
}
