//! The controllers against the fake API server, and everybody else in the cluster played by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use runtime::Flags;
use runtime::decoded::Decoded;
use serde_json::{Value, json};

use super::fake::Fake;
use crate::engine::api_client::Kind;
use crate::engine::cache::{Change, Store};
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, FLAGS, Settings, undecodable};
use crate::{controllers, wake};

/// Rounds that a DataVolume may take.
const ROUNDS: usize = 60;

pub struct World {
    pub fake: Fake,
    pub context: Arc<Context>,
    /// What the watches have told, by place: the version.
    told: BTreeMap<String, Value>,
    /// Whether the driver makes claims of other claims and of snapshots.
    pub driver_clones: bool,
    /// Whether a node has the volumes of all claims.
    pub has_large_node: bool,
    /// Whether claims of a class that waits for a consumer wait for a pod.
    pub waits_for_pods: bool,
    /// Whether workers end before anybody sees them run.
    pub is_quick: bool,
    /// How long each queue is waited for: longer than what is put off for a moment, unless a test says otherwise.
    pub patience: Duration,
}

impl World {
    /// A cluster with one class, whose driver can move volumes, or not.
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
        Self::over(fake)
    }

    /// The controllers begin anew, knowing nothing.
    pub fn over(fake: Fake) -> Self {
        Self::told(fake, &[])
    }

    /// The same, with flags.
    pub fn told(fake: Fake, flags: &[&str]) -> Self {
        let world = Self::ignorant_with(fake, flags);
        world.context.cluster.stores.snapshots.note_absent();
        world.context.cluster.stores.snapshot_classes.note_absent();
        world
    }

    /// They begin anew, and do not even know whether there are snapshots.
    pub fn ignorant(fake: Fake) -> Self {
        Self::ignorant_with(fake, &[])
    }

    fn ignorant_with(fake: Fake, flags: &[&str]) -> Self {
        // The servers of tests are on this machine. A flag that comes later counts.
        let flags = std::iter::once(&"-poll-allow-cidrs=127.0.0.0/8").chain(flags);
        let flags = Flags::parse(flags.map(|flag| (*flag).to_owned()), &FLAGS);
        let settings = Settings::read(&flags, &BTreeMap::new(), None).unwrap();
        let context = Arc::new(Context::new(fake.client(), settings));
        // Kubernetes as it is, unless a test has more.
        context.cluster.stores.routes.note_absent();
        context.cluster.stores.infrastructures.note_absent();
        context.cluster.stores.proxies.note_absent();
        Self {
            fake,
            context,
            told: BTreeMap::new(),
            driver_clones: true,
            has_large_node: true,
            waits_for_pods: false,
            is_quick: false,
            patience: Duration::from_millis(600),
        }
    }

    /// A DataVolume of the user's.
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

    /// What the watches tell by now.
    pub fn tell(&mut self) {
        let known = std::mem::take(&mut self.told);
        let mut changed = Vec::new();
        for (place, object) in &self.fake.0.lock().unwrap().objects {
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            if known.get(place).map(version) != Some(version(object)) {
                changed.push((place.clone(), object.clone()));
            }
            self.told.insert(place.clone(), object.clone());
        }
        for (place, object) in changed {
            self.route(&place, Event::Apply(object));
        }
        for (place, object) in known.iter().filter(|(place, _)| !self.told.contains_key(*place)) {
            if self.forget_undecodable(place, object) {
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
        let context = &self.context;
        let stores = &context.cluster.stores;
        match plural {
            "datavolumes" => apply(context, &stores.volumes, event, |c| wake::volume(context, c)),
            "volumeimportsources" => {
                apply(context, &stores.import_sources, event, |c| wake::import_source(context, c));
            }
            "volumeuploadsources" => {
                apply(context, &stores.upload_sources, event, |c| wake::upload_source(context, c));
            }
            "volumeclonesources" => {
                apply(context, &stores.clone_sources, event, |c| wake::clone_source(context, c));
            }
            "ovirtvolumepopulators" => {
                apply(context, &stores.ovirt_disks, event, |c| wake::ovirt_disk(context, c));
            }
            "openstackvolumepopulators" => {
                apply(context, &stores.openstack_images, event, |c| {
                    wake::openstack_image(context, c)
                });
            }
            "datasources" => {
                apply(context, &stores.data_sources, event, |c| wake::data_source(context, c));
            }
            "volumesnapshots" => {
                apply(context, &stores.snapshots, event, |c| wake::snapshot(context, c))
            }
            "volumesnapshotclasses" => {
                apply(context, &stores.snapshot_classes, event, |c| {
                    wake::snapshot_class(context, c)
                });
            }
            "persistentvolumeclaims" => {
                apply(context, &stores.claims, event, |c| wake::claim(context, c))
            }
            "persistentvolumes" => {
                apply(context, &stores.persistent_volumes, event, |c| {
                    wake::persistent_volume(context, c)
                });
            }
            // The watch asks for a label.
            "pods" if !is_worker(&event) => {}
            "pods" => apply(context, &stores.pods, event, |c| wake::pod(context, c)),
            "storageclasses" => apply(context, &stores.classes, event, |c| wake::class(context, c)),
            "storageprofiles" => {
                apply(context, &stores.profiles, event, |c| wake::profile(context, c))
            }
            "csidrivers" => apply(context, &stores.drivers, event, |_| ()),
            "ingresses" => apply(context, &stores.ingresses, event, |c| wake::ingress(context, c)),
            "routes" => apply(context, &stores.routes, event, |c| wake::route(context, c)),
            "proxies" => apply(context, &stores.proxies, event, |c| wake::proxy(context, c)),
            "infrastructures" => apply(context, &stores.infrastructures, event, |_| ()),
            "cdis" => {
                apply(context, &stores.installations, event, |c| wake::installation(context, c));
            }
            "cdiconfigs" => apply(context, &stores.configs, event, |c| wake::config(context, c)),
            "dataimportcrons" => apply(context, &stores.crons, event, |c| wake::cron(context, c)),
            "cronjobs" => apply(context, &stores.cron_jobs, event, |c| wake::cron_job(context, c)),
            "objecttransfers" => {
                apply(context, &stores.transfers, event, |c| wake::transfer(context, c))
            }
            "services"
            | "secrets"
            | "configmaps"
            | "volumesnapshotcontents"
            | "jobs"
            | "imagestreams" => {}
            other => panic!("nobody watches {other}"),
        }
    }

    /// Whether this was one that nobody could read.
    fn forget_undecodable(&self, place: &str, object: &Value) -> bool {
        fn of<K: Kind>(context: &Context, store: &Store<K>, object: &Value) -> bool {
            let decoded: Decoded<K> = serde_json::from_value(object.clone()).unwrap();
            if decoded.0.is_err() {
                undecodable::receive(context, store, Event::Delete(decoded), |_| ());
                return true;
            }
            false
        }
        let (context, stores) = (&self.context, &self.context.cluster.stores);
        match place.split('/').next().unwrap() {
            "datavolumes" => of(context, &stores.volumes, object),
            "dataimportcrons" => of(context, &stores.crons, object),
            _ => false,
        }
    }

    fn forget(&self, plural: &str, namespace: &str, name: &str) {
        let context = &self.context;
        let stores = &context.cluster.stores;
        match plural {
            "pods" => gone(&stores.pods, namespace, name, |c| wake::pod(context, c)),
            "persistentvolumeclaims" => {
                gone(&stores.claims, namespace, name, |c| wake::claim(context, c));
            }
            "volumeclonesources" => {
                gone(&stores.clone_sources, namespace, name, |c| wake::clone_source(context, c));
            }
            "ovirtvolumepopulators" => {
                gone(&stores.ovirt_disks, namespace, name, |c| wake::ovirt_disk(context, c));
            }
            "volumesnapshots" => {
                gone(&stores.snapshots, namespace, name, |c| wake::snapshot(context, c));
            }
            "datavolumes" => gone(&stores.volumes, namespace, name, |c| wake::volume(context, c)),
            "dataimportcrons" => gone(&stores.crons, namespace, name, |c| wake::cron(context, c)),
            "datasources" => {
                gone(&stores.data_sources, namespace, name, |c| wake::data_source(context, c));
            }
            "cronjobs" => {
                gone(&stores.cron_jobs, namespace, name, |c| wake::cron_job(context, c));
            }
            "objecttransfers" => {
                gone(&stores.transfers, namespace, name, |c| wake::transfer(context, c));
            }
            "storageprofiles" => {
                gone(&stores.profiles, namespace, name, |c| wake::profile(context, c));
            }
            "ingresses" => gone(&stores.ingresses, namespace, name, |c| wake::ingress(context, c)),
            "routes" => gone(&stores.routes, namespace, name, |c| wake::route(context, c)),
            "storageclasses" => gone(&stores.classes, namespace, name, |c| wake::class(context, c)),
            _ => {}
        }
    }

    /// Works until nothing is left to do for now.
    pub async fn work(&mut self) {
        for _ in 0..ROUNDS {
            self.tell();
            let mut worked = false;
            let context = Arc::clone(&self.context);
            for (name, queue) in context.queues.all() {
                while let Ok(key) = tokio::time::timeout(self.patience, queue.next()).await {
                    let before = self.fake.0.lock().unwrap().writes.len();
                    let next = self.reconcile(name, key.clone()).await;
                    // Whoever only looks again has not got on.
                    worked |= !matches!(next, Next::After(_))
                        || self.fake.0.lock().unwrap().writes.len() != before;
                    queue.done(key, next);
                    self.tell();
                    if let Next::After(_) | Next::Retry = next {
                        break; // whoever polls would never be done
                    }
                }
            }
            if !worked {
                return;
            }
        }
    }

    async fn reconcile(&self, name: &str, key: Key) -> Next {
        let context = Arc::clone(&self.context);
        let outcome = match name {
            "datavolume" => controllers::data_volume::reconcile(context, key).await,
            "populator" => controllers::populator::reconcile(context, key).await,
            "import" => controllers::import::reconcile(context, key).await,
            "upload" => controllers::upload::reconcile(context, key).await,
            "forklift" => controllers::forklift::reconcile(context, key).await,
            "clone" => controllers::clone::reconcile(context, key).await,
            "copy" => controllers::copy::reconcile(context, key).await,
            "dataimportcron" => controllers::data_import_cron::reconcile(context, key).await,
            "datasource" => controllers::data_source::reconcile(context, key).await,
            "storageprofile" => controllers::storage_profile::reconcile(context, key).await,
            "config" => controllers::config::reconcile(context, key).await,
            "objecttransfer" => controllers::object_transfer::reconcile(context, key).await,
            other => panic!("there is no controller {other}"),
        };
        outcome.unwrap_or(Next::Retry)
    }

    /// Everybody takes turns, until the DataVolume is in `phase` and nothing more happens.
    pub async fn until(&mut self, name: &str, phase: &str, last_words: &str) {
        for _ in 0..ROUNDS {
            self.work().await;
            let before = self.fake.0.lock().unwrap().writes.len();
            self.others(last_words);
            self.work().await;
            let after = self.fake.0.lock().unwrap().writes.len();
            if self.status(name)["phase"] == phase && before == after {
                return;
            }
        }
        let status = self.status(name);
        panic!(
            "{name} never got {phase}: {status} after {:#?}",
            self.fake.0.lock().unwrap().writes
        );
    }

    /// Until there is a pod, which nobody has run yet: its place.
    pub async fn until_worker(&mut self, last_words: &str) -> String {
        for _ in 0..20 {
            self.work().await;
            if let [pod] = &super::places(self, "pods")[..] {
                return pod.clone();
            }
            self.others(last_words);
        }
        panic!("there is no worker: {:#?}", self.fake.0.lock().unwrap().writes);
    }
}

fn apply<K: Kind>(
    context: &Context,
    store: &Store<K>,
    event: Event<Value>,
    route: impl Fn(&Change<K>),
) {
    let Event::Apply(object) = event else { return };
    let object = serde_json::from_value(object).unwrap();
    undecodable::receive(context, store, Event::Apply(object), route);
}

fn is_worker(event: &Event<Value>) -> bool {
    matches!(event, Event::Apply(pod) if pod["metadata"]["labels"]["cdi.kubevirt.io"].is_string())
}

fn gone<K: Kind>(store: &Store<K>, namespace: &str, name: &str, route: impl Fn(&Change<K>)) {
    let Some(object) = store.get(namespace, name) else { return };
    for change in store.take(Event::Delete(object.as_ref().clone())) {
        route(&change);
    }
}
