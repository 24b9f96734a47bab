//! DataImportCrons from one image to the next, against a fake API server.

use api::annotations::cron as key;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, places, reasons};

pub const PLACE: &str = "dataimportcrons/vms/cron";
/// The importer's message for an image with a wrong checksum.
const BAD: &str = r#"{"message":"checksum mismatch: sha256:00 expected"}"#;
const ROUNDS: usize = 40;
/// Rounds without a change after which the state is stable.
const QUIET_ROUNDS: usize = 3;

pub fn digest(number: u32) -> String {
    format!("sha256:{number:012x}{:052x}", 0)
}

/// The name of the import of that digest.
pub fn name(number: u32) -> String {
    format!("fedora-{number:012x}")
}

/// Creates a cron without a schedule, so that the test sets the desired digest.
pub fn create_cron(world: &TestCluster, change: Value) {
    let mut spec = json!({
        "schedule": "", "managedDataSource": "fedora",
        "template": { "metadata": {}, "spec": {
            "source": { "registry": { "url": "docker://registry.example/fedora:latest" } },
            "pvc": {
                "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        } },
    });
    for (member, value) in change.as_object().unwrap() {
        match member.as_str() {
            "source" => spec["template"]["spec"]["source"] = value.clone(),
            member => spec[member] = value.clone(),
        }
    }
    world.fake.put(
        "dataimportcrons",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
            "metadata": {
                "name": "cron", "namespace": "vms",
                "labels": { "instancetype.kubevirt.io/default-preference": "fedora" },
            },
            "spec": spec,
        }),
    );
}

pub fn annotate(world: &TestCluster, key: &str, value: &str) {
    world.fake.change(PLACE, |cron| cron["metadata"]["annotations"][key] = value.into());
}

/// The storage can take snapshots, and its profile prefers them for images.
pub fn keep_snapshots(world: &TestCluster) {
    let caches = &world.engine.api.caches;
    caches.snapshots.take(Event::InitDone);
    caches.snapshot_classes.take(Event::InitDone);
    world.fake.put(
        "volumesnapshotclasses",
        json!({ "metadata": { "name": "snap" }, "driver": "csi.example", "deletionPolicy": "Delete" }),
    );
    world.fake.put(
        "storageprofiles",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile",
            "metadata": { "name": "fast" }, "spec": { "dataImportCronSourceFormat": "snapshot" },
        }),
    );
}

/// Sets the digest to import, as the poller does.
pub fn set_desired_digest(world: &TestCluster, number: u32) {
    annotate(world, key::DESIRED_DIGEST, &digest(number));
}

/// Alternates controllers and cluster until nothing changes.
pub async fn run_until_stable(world: &mut TestCluster, termination_message: &str) {
    let mut quiet = 0;
    for _ in 0..ROUNDS {
        let before = world.fake.version();
        world.work().await;
        world.simulate_cluster(termination_message);
        quiet = if world.fake.version() == before { quiet + 1 } else { 0 };
        // The result of a background poll arrives between two rounds.
        if quiet == QUIET_ROUNDS {
            return;
        }
    }
    panic!("it never ends: {:?}", world.fake.0.lock().unwrap().writes.last());
}

pub fn cron(world: &TestCluster) -> Value {
    world.fake.get("dataimportcrons", "vms", "cron").unwrap_or_default()
}

/// `status reason` of a condition.
pub fn condition_summary(object: &Value, type_: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = all.into_iter().find(|one| one["type"] == type_).unwrap_or_default();
    let text = |member: &str| condition[member].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("status"), text("reason"))
}

/// What the DataSource refers to, and its Ready condition.
pub fn data_source_target(world: &TestCluster) -> (String, String) {
    let source = world.fake.get("datasources", "vms", "fedora").unwrap_or_default();
    let of = &source["spec"]["source"];
    let text = |kind: &str| of[kind]["name"].as_str().map(|name| format!("{kind} {name}"));
    (
        text("pvc").or_else(|| text("snapshot")).unwrap_or_default(),
        condition_summary(&source, "Ready"),
    )
}

pub fn ready(kind: &str, number: u32) -> (String, String) {
    (format!("{kind} {}", name(number)), "True Ready".to_owned())
}

fn claims(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(|number| format!("persistentvolumeclaims/vms/{}", name(*number))).collect()
}

async fn imported(world: &mut TestCluster, number: u32) {
    set_desired_digest(world, number);
    run_until_stable(world, DONE).await;
    assert_eq!(data_source_target(world), ready("pvc", number));
    assert_eq!(condition_summary(&cron(world), "UpToDate"), "True UpToDate");
}

#[tokio::test(start_paused = true)]
async fn data_source_switches_to_a_newer_image_once_its_import_is_complete() {
    let mut world = TestCluster::new("Immediate", true);
    create_cron(&world, json!({ "importsToKeep": 1 }));
    world.work().await;
    assert_eq!(data_source_target(&world), (String::new(), "False NoSource".to_owned()));
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "False NoDigest");
    let metric = |world: &TestCluster| {
        let text = crate::engine::metrics::page(&world.engine);
        let mut lines = text.lines().filter(|line| line.starts_with("kubevirt_cdi_dataimportcron"));
        lines.next().unwrap_or_default().to_owned()
    };
    let labels = "namespace=\"vms\",cron_name=\"cron\",pending=\"false\"";
    assert_eq!(metric(&world), format!("kubevirt_cdi_dataimportcron_outdated{{{labels}}} 1"));
    imported(&mut world, 1).await;
    assert_eq!(metric(&world), format!("kubevirt_cdi_dataimportcron_outdated{{{labels}}} 0"));
    let status = cron(&world)["status"].clone();
    assert_eq!(status["lastImportedPVC"], json!({ "namespace": "vms", "name": name(1) }));
    assert_eq!(status["sourceFormat"], "pvc");
    let source = world.fake.get("datasources", "vms", "fedora").unwrap();
    let labels = &source["metadata"]["labels"];
    assert_eq!(labels["instancetype.kubevirt.io/default-preference"], "fedora");
    assert_eq!(labels["cdi.kubevirt.io/dataImportCron"], "cron");
    let volume = world.fake.get("datavolumes", "vms", &name(1)).unwrap();
    let url = format!("docker://registry.example/fedora@{}", digest(1));
    assert_eq!(volume["spec"]["source"]["registry"]["url"], url);

    set_desired_digest(&world, 2);
    world.work().await;
    assert_eq!(data_source_target(&world), ready("pvc", 1), "until the next one is complete");
    assert_ne!(condition_summary(&cron(&world), "UpToDate"), "True UpToDate");
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("pvc", 2));
    assert_eq!(places(&world, "persistentvolumeclaims"), claims(&[2]), "one is kept");
    // Another process takes over, and has nothing to do.
    let mut world = TestCluster::started_on(world.fake);
    let before = world.fake.0.lock().unwrap().writes.len();
    world.work().await;
    let state = world.fake.0.lock().unwrap();
    assert_eq!(state.writes.len(), before, "{:?}", state.writes.last());
}

#[tokio::test(start_paused = true)]
async fn failed_import_keeps_the_last_image_and_does_not_block_the_next() {
    let mut world = TestCluster::new("Immediate", true);
    create_cron(&world, json!({ "source": { "http": { "url": "http://web.example/a.img" } } }));
    imported(&mut world, 1).await;
    imported(&mut world, 2).await;
    set_desired_digest(&world, 3);
    run_until_stable(&mut world, BAD).await;
    assert_eq!(world.status(&name(3))["phase"], "Failed");
    assert_eq!(data_source_target(&world), ready("pvc", 2));
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "False ImportFailed");
    let conditions = cron(&world)["status"]["conditions"].to_string();
    assert!(conditions.contains("checksum mismatch"), "{conditions}");
    imported(&mut world, 4).await;
    let places = places(&world, "datavolumes");
    assert!(!places.contains(&format!("datavolumes/vms/{}", name(3))), "{places:?}");
}

#[tokio::test(start_paused = true)]
async fn pinned_image_that_is_retained_is_not_imported_again() {
    let mut world = TestCluster::new("Immediate", true);
    create_cron(&world, json!({}));
    for number in 1..=3 {
        imported(&mut world, number).await;
    }
    let claims_before = places(&world, "persistentvolumeclaims");
    assert_eq!(claims_before, claims(&[1, 2, 3]));
    annotate(&world, key::PINNED_DIGEST, &digest(1));
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("pvc", 1));
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "True Pinned");
    assert_eq!(places(&world, "persistentvolumeclaims"), claims_before);
}

#[tokio::test(start_paused = true)]
async fn deleted_cron_follows_its_retention_policy_at_any_step() {
    for policy in ["All", "None"] {
        for moment in ["at once", "during an import", "afterwards", "without a controller"] {
            let mut world = TestCluster::new("Immediate", true);
            create_cron(&world, json!({ "retentionPolicy": policy }));
            set_desired_digest(&world, 1);
            match moment {
                "at once" => {}
                "during an import" => {
                    world.work().await;
                    world.simulate_cluster(DONE);
                    world.work().await;
                }
                _ => run_until_stable(&mut world, DONE).await,
            }
            world.fake.0.lock().unwrap().objects.remove(PLACE);
            if moment == "without a controller" {
                world = TestCluster::started_on(world.fake);
            }
            run_until_stable(&mut world, DONE).await;
            let stays = policy == "All" && moment != "at once";
            for plural in ["datasources", "datavolumes", "persistentvolumeclaims"] {
                let count = places(&world, plural).len();
                assert_eq!(count, usize::from(stays), "{policy}, {moment}: {plural}");
            }
            if stays {
                let source = data_source_target(&world).0;
                let expected = if moment == "during an import" {
                    String::new()
                } else {
                    format!("pvc {}", name(1))
                };
                assert_eq!(source, expected, "{moment}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cron_reaches_the_latest_image_whichever_request_fails() {
    async fn life(world: &mut TestCluster) {
        for number in 1..=2 {
            set_desired_digest(world, number);
            run_until_stable(world, DONE).await;
        }
    }
    let begin = || {
        let world = TestCluster::new("Immediate", true);
        create_cron(&world, json!({ "importsToKeep": 1 }));
        world
    };
    let mut world = begin();
    life(&mut world).await;
    let requests = world.fake.0.lock().unwrap().requests;
    assert!(requests > 30, "{requests}");
    for number in 1..=requests {
        for is_lost in [false, true] {
            let mut world = begin();
            {
                let mut state = world.fake.0.lock().unwrap();
                let fails = Some(number);
                if is_lost { state.loses_response = fails } else { state.refuses = fails }
            }
            life(&mut world).await;
            assert_eq!(data_source_target(&world), ready("pvc", 2), "{number} {is_lost}");
            assert_eq!(
                condition_summary(&cron(&world), "UpToDate"),
                "True UpToDate",
                "{number} {is_lost}"
            );
            let left = places(&world, "persistentvolumeclaims");
            assert_eq!(left, claims(&[2]), "{number} {is_lost}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn second_cron_does_not_take_over_a_managed_data_source() {
    let mut world = TestCluster::new("Immediate", true);
    create_cron(&world, json!({}));
    imported(&mut world, 1).await;
    let mut other = cron(&world);
    other["metadata"] = json!({
        "name": "other", "namespace": "vms", "annotations": { key::DESIRED_DIGEST: digest(2) },
    });
    other["status"] = Value::Null;
    world.fake.put("dataimportcrons", other);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("pvc", 1));
    assert!(reasons(&world).contains(&"ErrDataSourceAlreadyManaged".to_owned()));
    assert_eq!(places(&world, "datavolumes").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn data_source_and_references_to_it_are_ready_while_its_pvc_exists() {
    let mut world = TestCluster::new("Immediate", true);
    let source = |name: &str, of: Value| {
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": name, "namespace": "vms" }, "spec": { "source": of },
        })
    };
    let pointer = |to: &str| json!({ "dataSource": { "namespace": "vms", "name": to } });
    world.fake.put("datasources", source("pointer", pointer("first")));
    world.fake.put("datasources", source("itself", pointer("itself")));
    let of_claim = json!({ "pvc": { "namespace": "vms", "name": "disk" } });
    let check = |world: &TestCluster, name: &str, expected: &str| {
        let found = world.fake.get("datasources", "vms", name).unwrap();
        assert_eq!(condition_summary(&found, "Ready"), expected, "{name}: {found}");
        found["status"]["source"].clone()
    };
    world.work().await;
    check(&world, "pointer", "False NotFound");
    check(&world, "itself", "False SelfReference");
    world.fake.put("datasources", source("first", of_claim.clone()));
    world.work().await;
    check(&world, "first", "False NotFound");
    world.fake.put(
        "persistentvolumeclaims",
        json!({ "metadata": { "name": "disk", "namespace": "vms" }, "spec": {} }),
    );
    world.work().await;
    assert_eq!(check(&world, "first", "True Ready"), of_claim);
    assert_eq!(check(&world, "pointer", "True Ready"), of_claim);
    world.fake.0.lock().unwrap().objects.remove("persistentvolumeclaims/vms/disk");
    world.work().await;
    assert_eq!(check(&world, "first", "False NotFound"), json!({}));
    assert_eq!(check(&world, "pointer", "False NotFound"), json!({}));
}
