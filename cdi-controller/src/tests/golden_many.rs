//! Many DataImportCrons of one registry: their requests to it and to the API server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::annotations::cron as key;
use api::v1beta1::DataSource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use testkit::{Stub, StubRequest, StubResponse};

use super::golden::{condition_summary, digest};
use super::places;
use super::world::TestCluster;
use crate::controllers::data_import_cron::{OwnedObjects, reconcile};
use crate::engine::queue::Key;
use crate::wake::crons;
use controller_core::meta;

const COUNT: usize = 200;
const PAST: &str = "2026-01-01T00:00:00Z";
/// The duration of a response, so that concurrent requests overlap.
const MOMENT: Duration = Duration::from_millis(1);

/// A registry that has the same image under every name. Records its requests and the largest number at a time.
struct Registry {
    stub: Stub,
    asked: Arc<Mutex<Vec<StubRequest>>>,
    most: Arc<AtomicUsize>,
}

impl Registry {
    fn start() -> Self {
        let asked = Arc::<Mutex<Vec<StubRequest>>>::default();
        let most = Arc::<AtomicUsize>::default();
        let (noted, at_most, at_once) =
            (Arc::clone(&asked), Arc::clone(&most), AtomicUsize::new(0));
        let stub = Stub::start_tls(move |request| {
            at_most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(MOMENT);
            noted.lock().unwrap().push(request.clone());
            at_once.fetch_sub(1, Ordering::SeqCst);
            let etag = format!("\"{}\"", digest(1));
            if request.header("if-none-match") == Some(&etag) {
                return StubResponse::new(304, "").with("ETag", etag);
            }
            StubResponse::new(200, "").with("Docker-Content-Digest", digest(1))
        });
        Self { stub, asked, most }
    }

    /// `127.0.0.1:12345`
    fn host(&self) -> String {
        self.stub.url("").trim_start_matches("https://").to_owned()
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<StubRequest> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// Reconciles the queued crons without delivering watch events. Returns the number of requests to the API server.
async fn look_at_all(world: &TestCluster) -> usize {
    let before = world.fake.0.lock().unwrap().requests;
    let queue = &world.engine.queues.crons;
    while let Ok(key) = tokio::time::timeout(Duration::from_secs(2), queue.next()).await {
        let next = reconcile(Arc::clone(&world.engine), key.clone()).await.unwrap();
        queue.finish(key, next);
    }
    world.fake.0.lock().unwrap().requests - before
}

/// Creates the crons, and for each the PVC of the image that its poll finds.
fn make_all(world: &TestCluster, registry: &Registry) {
    let authorities = json!({ "ca.pem": registry.stub.authority() });
    world.fake.put(
        "configmaps",
        json!({ "metadata": { "name": "ca", "namespace": "cdi" }, "data": authorities }),
    );
    for number in 0..COUNT {
        let image = format!("image{number:03}");
        let url = format!("docker://{}/{image}:latest", registry.host());
        world.fake.put(
            "dataimportcrons",
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
                "metadata": { "name": format!("cron{number:03}"), "namespace": "vms" },
                "spec": {
                    "schedule": "0 */12 * * *", "managedDataSource": image,
                    "template": { "spec": {
                        "source": { "registry": { "url": url, "certConfigMap": "ca" } },
                        "pvc": { "storageClassName": "fast", "accessModes": ["ReadWriteOnce"] },
                    } },
                },
            }),
        );
        let name = format!("{image}-{}", &digest(1)["sha256:".len()..][..12]);
        world.fake.put(
            "persistentvolumeclaims",
            json!({
                "metadata": { "name": name, "namespace": "vms" },
                "spec": { "storageClassName": "fast" }, "status": { "phase": "Bound" },
            }),
        );
    }
}

/// The attack: with a scan for each match, one change of the PVC cost 400 million comparisons.
#[tokio::test]
async fn change_of_a_pvc_reads_each_of_its_data_sources_once() {
    const SOURCES: usize = 20_000;
    let world = TestCluster::new("Immediate", true);
    let caches = &world.engine.api.caches;
    let source = |name: &str, source: Value| -> DataSource {
        let metadata =
            json!({ "name": name, "namespace": "vms", "uid": name, "resourceVersion": "1" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": { "source": source } }))
            .unwrap()
    };
    for number in 0..SOURCES {
        let disk = json!({ "pvc": { "namespace": "vms", "name": "disk" } });
        caches.data_sources.take(Event::Apply(source(&format!("source-{number}"), disk)));
    }
    let pointer = json!({ "dataSource": { "namespace": "vms", "name": "source-0" } });
    caches.data_sources.take(Event::Apply(source("pointer", pointer)));
    let looks = || caches.data_sources.looks.swap(0, Ordering::Relaxed);
    let woken = || world.engine.queues.data_sources.depth().0;
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("vms".to_owned()),
        ..ObjectMeta::default()
    };
    looks();
    crons::claim(&world.engine, &metadata("disk"));
    assert_eq!((looks(), woken()), (SOURCES + 1, SOURCES + 1));
    crons::claim(&world.engine, &metadata("other"));
    crons::snapshot(&world.engine, &metadata("disk"));
    assert_eq!(looks(), 0, "no DataSource refers to these");
    crons::data_source(&world.engine, &metadata("source-0"));
    assert_eq!(looks(), 1, "the one that points to it");
}

/// The objects of a cron are found without reading all objects of its namespace.
#[tokio::test]
async fn cron_reads_only_objects_with_its_label_or_name_prefix() {
    const CLAIMS: usize = 1000;
    let world = TestCluster::new("Immediate", true);
    let caches = &world.engine.api.caches;
    for number in 0..CLAIMS {
        let (name, labels) = match number {
            0 => ("fedora-by-hand".to_owned(), json!({})),
            1 => ("labelled".to_owned(), json!({ "cdi.kubevirt.io/dataImportCron": "cron" })),
            2 => ("fedora-1".to_owned(), json!({ "cdi.kubevirt.io/dataImportCron": "cron" })),
            3 => ("another".to_owned(), json!({ "cdi.kubevirt.io/dataImportCron": "other" })),
            _ => (format!("disk-{number}"), json!({})),
        };
        let metadata = json!({
            "name": name, "namespace": "vms", "uid": name, "resourceVersion": "1", "labels": labels,
        });
        let claim = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        caches.claims.take(Event::Apply(claim));
    }
    caches.claims.looks.store(0, Ordering::Relaxed);
    let owned = OwnedObjects::observe(caches, &Key::new("vms", "cron"), Some("fedora"));
    let all = owned.all();
    let names: Vec<_> = all.claims.iter().map(|claim| meta::name(&claim.metadata)).collect();
    assert_eq!(names, ["fedora-1", "fedora-by-hand", "labelled"]);
    assert_eq!(caches.claims.looks.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_crons_cost_one_request_and_one_write_per_poll_and_no_pods() {
    let registry = Registry::start();
    let mut world = TestCluster::new("Immediate", true);
    make_all(&world, &registry);
    world.deliver_watch_events();
    // The existing image is found and labelled, and the DataSource refers to it.
    let requests = look_at_all(&world).await;
    assert!(requests <= 8 * COUNT, "{requests}");
    let asked = registry.asked();
    assert_eq!(asked.len(), COUNT);
    assert!(asked.iter().all(|one| one.method == "HEAD"), "{:?}", asked[0]);
    assert_eq!(places(&world, "datasources").len(), COUNT);
    world.deliver_watch_events();
    look_at_all(&world).await;

    // One schedule, spread over time.
    let crons = places(&world, "dataimportcrons");
    let mut times = BTreeMap::<String, usize>::new();
    for place in &crons {
        let cron = world.fake.0.lock().unwrap().objects[place].clone();
        let next = cron["metadata"]["annotations"][key::NEXT_TIME].as_str().unwrap().to_owned();
        *times.entry(next).or_default() += 1;
    }
    assert!(times.len() > COUNT / 2, "{} times", times.len());
    assert!(times.values().all(|count| *count <= 6), "{times:?}");

    // Even where all are due at once, as after a night without a controller.
    for place in &crons {
        world.fake.change(place, |cron| {
            cron["metadata"]["annotations"][key::NEXT_TIME] = PAST.into();
        });
    }
    world.deliver_watch_events();
    // One write, and one read of the ConfigMap with the registry's CA.
    assert_eq!(look_at_all(&world).await, 2 * COUNT);
    let asked = registry.asked();
    assert_eq!(asked.len(), COUNT);
    assert!(asked.iter().all(|one| one.header("if-none-match").is_some()), "{:?}", asked[0]);
    // And when it is not yet time.
    world.deliver_watch_events();
    assert_eq!((look_at_all(&world).await, registry.asked().len()), (0, 0));
    for plural in ["pods", "cronjobs", "jobs", "datavolumes"] {
        assert_eq!(places(&world, plural), [""; 0], "{plural}");
    }
    assert!(registry.most.load(Ordering::SeqCst) <= 2, "{:?} at a time", registry.most);
    let settled = world.fake.get("dataimportcrons", "vms", "cron000").unwrap();
    assert_eq!(condition_summary(&settled, "UpToDate"), "True UpToDate");
}
