//! The controllers against the fake API server, and everybody else in the cluster played by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use runtime::Flags;
use serde_json::{Value, json};

use super::fake::Fake;
use crate::act::cluster::Kind;
use crate::act::queue::{Key, Next};
use crate::act::store::{Change, Store};
use crate::act::{Context, FLAGS, Settings, controllers, route};

/// Rounds that a DataVolume may take.
const ROUNDS: usize = 60;

pub struct World {
    pub fake: Fake,
    pub context: Arc<Context>,
    /// What the watches have told, by place: the version.
    told: BTreeMap<String, String>,
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
                "metadata": { "name": "config" },
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
        let flags = Flags::parse(flags.iter().map(|flag| (*flag).to_owned()), &FLAGS);
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
            let version = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            if known.get(place) != Some(&version) {
                changed.push((place.clone(), object.clone()));
            }
            self.told.insert(place.clone(), version);
        }
        for (place, object) in changed {
            self.route(&place, Event::Apply(object));
        }
        for place in known.keys().filter(|place| !self.told.contains_key(*place)) {
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
            "datavolumes" => apply(&stores.volumes, event, |c| route::volume(context, c)),
            "volumeimportsources" => {
                apply(&stores.import_sources, event, |c| route::import_source(context, c));
            }
            "volumeuploadsources" => {
                apply(&stores.upload_sources, event, |c| route::upload_source(context, c));
            }
            "volumeclonesources" => {
                apply(&stores.clone_sources, event, |c| route::clone_source(context, c));
            }
            "ovirtvolumepopulators" => {
                apply(&stores.ovirt_disks, event, |c| route::ovirt_disk(context, c));
            }
            "openstackvolumepopulators" => {
                apply(&stores.openstack_images, event, |c| route::openstack_image(context, c));
            }
            "datasources" => {
                apply(&stores.data_sources, event, |c| route::data_source(context, c));
            }
            "volumesnapshots" => apply(&stores.snapshots, event, |c| route::snapshot(context, c)),
            "volumesnapshotclasses" => {
                apply(&stores.snapshot_classes, event, |c| route::snapshot_class(context, c));
            }
            "persistentvolumeclaims" => apply(&stores.claims, event, |c| route::claim(context, c)),
            "persistentvolumes" => {
                apply(&stores.persistent_volumes, event, |c| route::persistent_volume(context, c));
            }
            // The watch asks for a label.
            "pods" if !is_worker(&event) => {}
            "pods" => apply(&stores.pods, event, |c| route::pod(context, c)),
            "storageclasses" => apply(&stores.classes, event, |c| route::class(context, c)),
            "storageprofiles" => apply(&stores.profiles, event, |c| route::profile(context, c)),
            "csidrivers" => apply(&stores.drivers, event, |_| ()),
            "ingresses" => apply(&stores.ingresses, event, |c| route::ingress(context, c)),
            "routes" => apply(&stores.routes, event, |c| route::route(context, c)),
            "proxies" => apply(&stores.proxies, event, |c| route::proxy(context, c)),
            "infrastructures" => apply(&stores.infrastructures, event, |_| ()),
            "cdiconfigs" => apply(&stores.configs, event, |c| route::config(context, c)),
            "dataimportcrons" => apply(&stores.crons, event, |c| route::cron(context, c)),
            "cronjobs" => apply(&stores.cron_jobs, event, |c| route::cron_job(context, c)),
            "objecttransfers" => apply(&stores.transfers, event, |c| route::transfer(context, c)),
            "services"
            | "secrets"
            | "configmaps"
            | "volumesnapshotcontents"
            | "jobs"
            | "imagestreams" => {}
            other => panic!("nobody watches {other}"),
        }
    }

    fn forget(&self, plural: &str, namespace: &str, name: &str) {
        let context = &self.context;
        let stores = &context.cluster.stores;
        match plural {
            "pods" => gone(&stores.pods, namespace, name, |c| route::pod(context, c)),
            "persistentvolumeclaims" => {
                gone(&stores.claims, namespace, name, |c| route::claim(context, c));
            }
            "volumeclonesources" => {
                gone(&stores.clone_sources, namespace, name, |c| route::clone_source(context, c));
            }
            "ovirtvolumepopulators" => {
                gone(&stores.ovirt_disks, namespace, name, |c| route::ovirt_disk(context, c));
            }
            "volumesnapshots" => {
                gone(&stores.snapshots, namespace, name, |c| route::snapshot(context, c));
            }
            "datavolumes" => gone(&stores.volumes, namespace, name, |c| route::volume(context, c)),
            "dataimportcrons" => gone(&stores.crons, namespace, name, |c| route::cron(context, c)),
            "datasources" => {
                gone(&stores.data_sources, namespace, name, |c| route::data_source(context, c));
            }
            "cronjobs" => {
                gone(&stores.cron_jobs, namespace, name, |c| route::cron_job(context, c));
            }
            "objecttransfers" => {
                gone(&stores.transfers, namespace, name, |c| route::transfer(context, c));
            }
            "storageprofiles" => {
                gone(&stores.profiles, namespace, name, |c| route::profile(context, c));
            }
            "ingresses" => gone(&stores.ingresses, namespace, name, |c| route::ingress(context, c)),
            "routes" => gone(&stores.routes, namespace, name, |c| route::route(context, c)),
            "storageclasses" => {
                gone(&stores.classes, namespace, name, |c| route::class(context, c))
            }
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

    /// Everybody else does their part: volumes for claims, and pods that go one step on.
    pub fn others(&self, last_words: &str) {
        let objects = self.fake.0.lock().unwrap().objects.clone();
        for (place, object) in &objects {
            match place.split('/').next().unwrap() {
                "persistentvolumeclaims" => self.bind(place, object),
                "pods" => self.run(place, object, last_words),
                "volumesnapshots" => self.take(place, object),
                _ => {}
            }
        }
        self.fake.collect_garbage();
    }

    fn bind(&self, place: &str, claim: &Value) {
        let (uid, name) = (&claim["metadata"]["uid"], claim["metadata"]["name"].as_str().unwrap());
        let volumes = self.fake.0.lock().unwrap().objects.clone();
        let of_claim = |volume: &&Value| &volume["spec"]["claimRef"]["uid"] == uid;
        let mut all = volumes.iter().filter(|(place, _)| place.starts_with("persistentvolumes/"));
        let own = all.find(|(_, volume)| of_claim(volume)).map(|(_, volume)| volume.clone());
        match (claim["status"]["phase"].as_str(), own) {
            (Some("Lost"), _) => {}
            (Some("Bound"), None) => {
                self.fake.change(place, |claim| claim["status"]["phase"] = "Lost".into());
            }
            (Some("Bound"), Some(_)) => {
                let asked = &claim["spec"]["resources"]["requests"];
                if &claim["status"]["capacity"] != asked {
                    self.fake.change(place, |claim| claim["status"]["capacity"] = asked.clone());
                }
            }
            (None | Some("Pending"), None) if !claim["spec"]["volumeName"].is_null() => {
                self.bind_to_named(place, claim);
            }
            (_, Some(volume)) => self.fake.change(place, |claim| {
                claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
                claim["status"]["phase"] = "Bound".into();
            }),
            (phase, None) if !self.is_provisioned(claim) => {
                if phase.is_none() {
                    self.fake.change(place, |claim| claim["status"]["phase"] = "Pending".into());
                }
            }
            (_, None) => {
                let volume = format!("pv-{}", uid.as_str().unwrap());
                let claim_ref = json!({ "namespace": claim["metadata"]["namespace"], "name": name, "uid": uid });
                self.fake.put(
                    "persistentvolumes",
                    json!({
                        "metadata": { "name": volume },
                        "spec": { "claimRef": claim_ref, "storageClassName": "fast" },
                    }),
                );
                self.fake.change(place, |claim| {
                    claim["spec"]["volumeName"] = volume.into();
                    claim["status"]["phase"] = "Bound".into();
                    claim["status"]["capacity"] = claim["spec"]["resources"]["requests"].clone();
                });
            }
        }
    }

    /// A volume that waits for a claim of this name, and a claim that wants no other.
    fn bind_to_named(&self, place: &str, claim: &Value) {
        let metadata = &claim["metadata"];
        let volume =
            format!("persistentvolumes//{}", claim["spec"]["volumeName"].as_str().unwrap());
        let owner =
            self.fake.0.lock().unwrap().objects.get(&volume).map(|v| v["spec"]["claimRef"].clone());
        let waits = owner.is_some_and(|owner| {
            owner["uid"].is_null()
                && owner["name"] == metadata["name"]
                && owner["namespace"] == metadata["namespace"]
        });
        if waits {
            let uid = metadata["uid"].clone();
            self.fake.change(&volume, |volume| volume["spec"]["claimRef"]["uid"] = uid);
            self.fake.change(place, |claim| {
                claim["status"]["phase"] = "Bound".into();
                claim["status"]["capacity"] = claim["spec"]["resources"]["requests"].clone();
            });
        }
    }

    /// Whether the storage makes the volume of a claim: unless a populator is to, or it is made of something, and the driver
    /// makes nothing of anything.
    fn is_provisioned(&self, claim: &Value) -> bool {
        if self.waits_for_pods && self.waits_for_its_pod(claim) {
            return false;
        }
        match claim["spec"]["dataSourceRef"]["kind"].as_str() {
            None => true,
            Some("PersistentVolumeClaim" | "VolumeSnapshot") => self.driver_clones,
            Some(_) => false,
        }
    }

    fn waits_for_its_pod(&self, claim: &Value) -> bool {
        let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
        let class = self.fake.get("storageclasses", "", class).unwrap_or_default();
        let pods = format!("pods/{}/", claim["metadata"]["namespace"].as_str().unwrap());
        let mounts = |pod: &Value| {
            let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            volumes.any(|v| v["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"])
        };
        let state = self.fake.0.lock().unwrap();
        let mut pods = state.objects.iter().filter(|(place, _)| place.starts_with(&pods));
        class["volumeBindingMode"] == "WaitForFirstConsumer" && !pods.any(|(_, pod)| mounts(pod))
    }

    /// Snapshots are taken, and then ready.
    fn take(&self, place: &str, snapshot: &Value) {
        let status = &snapshot["status"];
        let next = if status.is_null() {
            json!({ "creationTime": "2026-01-01T00:00:00Z", "readyToUse": false })
        } else if status["readyToUse"] == false {
            json!({
                "creationTime": "2026-01-01T00:00:00Z", "readyToUse": true, "restoreSize": "1Gi",
                "boundVolumeSnapshotContentName": "content",
            })
        } else {
            return;
        };
        self.fake.change(place, |snapshot| snapshot["status"] = next);
    }

    /// Whether a pod has what it waits for: the server of a copy waits for the pod that reads the source.
    fn may_end(&self, pod: &Value) -> bool {
        let owner = &pod["metadata"]["ownerReferences"][0];
        let state = self.fake.0.lock().unwrap();
        let claim = format!(
            "persistentvolumeclaims/{}/{}",
            pod["metadata"]["namespace"].as_str().unwrap(),
            owner["name"].as_str().unwrap_or_default()
        );
        let Some(claim) = state.objects.get(&claim) else { return true };
        let Some(source) = claim["metadata"]["annotations"]["k8s.io/CloneRequest"].as_str() else {
            return true;
        };
        let namespace = source.split('/').next().unwrap();
        let reader = format!("pods/{namespace}/{}-source-pod", owner["uid"].as_str().unwrap());
        let phase = state.objects.get(&reader).and_then(|pod| pod["status"]["phase"].as_str());
        claim["metadata"]["annotations"]["k8s.io/CloneOf"] == "true"
            || matches!(phase, Some("Running" | "Succeeded"))
    }

    fn run(&self, place: &str, pod: &Value, last_words: &str) {
        let container = |state: Value, ready: bool| {
            json!([{
                "name": pod["spec"]["containers"][0]["name"], "image": "i", "imageID": "",
                "ready": ready, "restartCount": 0, "state": state,
            }])
        };
        let volumes = pod["spec"]["volumes"].as_array().map_or(0, Vec::len);
        let is_reader = pod["metadata"]["labels"]["cdi.kubevirt.io"] == "cdi-clone-source";
        if is_reader && volumes > 1 && !self.has_large_node {
            self.fake.change(place, |pod| {
                pod["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
                pod["status"] = json!({
                    "phase": "Pending",
                    "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }],
                    "containerStatuses": container(json!({}), false),
                });
            });
            return;
        }
        let end = |last_words: &str| {
            let end = json!({ "exitCode": 0, "reason": "Completed", "message": last_words });
            container(json!({ "terminated": end }), false)
        };
        let (phase, containers) = match pod["status"]["phase"].as_str() {
            None => ("Pending", json!([])),
            Some("Pending") if self.is_quick => ("Succeeded", end(last_words)),
            Some("Pending") => ("Running", container(json!({ "running": {} }), true)),
            Some("Running") if !self.may_end(pod) => return,
            Some("Running") => {
                ("Succeeded", end(if is_reader { "Clone Complete" } else { last_words }))
            }
            Some(_) => return,
        };
        self.fake.change(place, |pod| {
            pod["status"] = json!({ "phase": phase, "containerStatuses": containers });
        });
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

fn apply<K: Kind>(store: &Store<K>, event: Event<Value>, route: impl Fn(&Change<K>)) {
    let Event::Apply(object) = event else { return };
    let object: K = serde_json::from_value(object).unwrap();
    for change in store.take(Event::Apply(object)) {
        route(&change);
    }
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
