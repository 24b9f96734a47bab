//! DataImportCrons from one image to the next, with nobody but a fake API server.

use api::annotations::cron as key;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::world::World;
use super::{DONE, places, reasons};

pub const PLACE: &str = "dataimportcrons/vms/cron";
/// What the importer says of an image that is not the one that was promised.
const BAD: &str = r#"{"message":"checksum mismatch: sha256:00 expected"}"#;
const ROUNDS: usize = 40;
/// Rounds in which nothing happens, until nothing is going to happen.
const QUIET_ROUNDS: usize = 3;

pub fn digest(number: u32) -> String {
    format!("sha256:{number:012x}{:052x}", 0)
}

/// What an import of that digest is called.
pub fn name(number: u32) -> String {
    format!("fedora-{number:012x}")
}

/// A cron. Without a schedule, so that somebody has to say what is newest.
pub fn make(world: &World, change: Value) {
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

pub fn annotate(world: &World, key: &str, value: &str) {
    world.fake.change(PLACE, |cron| cron["metadata"]["annotations"][key] = value.into());
}

/// The storage can take snapshots, and its profile prefers them for images.
pub fn keep_snapshots(world: &World) {
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

/// Somebody says which image is wanted.
pub fn want(world: &World, number: u32) {
    annotate(world, key::DESIRED_DIGEST, &digest(number));
}

/// Everybody takes turns, until nothing happens any more.
pub async fn settle(world: &mut World, last_words: &str) {
    let mut quiet = 0;
    for _ in 0..ROUNDS {
        let before = world.fake.version();
        world.work().await;
        world.others(last_words);
        quiet = if world.fake.version() == before { quiet + 1 } else { 0 };
        // A source that is asked in the background answers between two rounds.
        if quiet == QUIET_ROUNDS {
            return;
        }
    }
    panic!("it never ends: {:?}", world.fake.0.lock().unwrap().writes.last());
}

pub fn cron(world: &World) -> Value {
    world.fake.get("dataimportcrons", "vms", "cron").unwrap_or_default()
}

/// `status reason` of a condition.
pub fn says(object: &Value, type_: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let said = all.into_iter().find(|said| said["type"] == type_).unwrap_or_default();
    let text = |member: &str| said[member].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("status"), text("reason"))
}

/// What the DataSource stands for, and whether that is ready.
pub fn stands_for(world: &World) -> (String, String) {
    let source = world.fake.get("datasources", "vms", "fedora").unwrap_or_default();
    let of = &source["spec"]["source"];
    let text = |kind: &str| of[kind]["name"].as_str().map(|name| format!("{kind} {name}"));
    (text("pvc").or_else(|| text("snapshot")).unwrap_or_default(), says(&source, "Ready"))
}

pub fn ready(kind: &str, number: u32) -> (String, String) {
    (format!("{kind} {}", name(number)), "True Ready".to_owned())
}

fn claims(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(|number| format!("persistentvolumeclaims/vms/{}", name(*number))).collect()
}

async fn imported(world: &mut World, number: u32) {
    want(world, number);
    settle(world, DONE).await;
    assert_eq!(stands_for(world), ready("pvc", number));
    assert_eq!(says(&cron(world), "UpToDate"), "True UpToDate");
}

#[tokio::test(start_paused = true)]
async fn a_newer_image_takes_the_place_of_the_one_before_once_it_is_complete() {
    let mut world = World::new("Immediate", true);
    make(&world, json!({ "importsToKeep": 1 }));
    world.work().await;
    assert_eq!(stands_for(&world), (String::new(), "False NoSource".to_owned()));
    assert_eq!(says(&cron(&world), "UpToDate"), "False NoDigest");
    let metric = |world: &World| {
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

    want(&world, 2);
    world.work().await;
    assert_eq!(stands_for(&world), ready("pvc", 1), "until the next one is complete");
    assert_ne!(says(&cron(&world), "UpToDate"), "True UpToDate");
    settle(&mut world, DONE).await;
    assert_eq!(stands_for(&world), ready("pvc", 2));
    assert_eq!(places(&world, "persistentvolumeclaims"), claims(&[2]), "one is kept");
    // Another process takes over, and has nothing to do.
    let mut world = World::over(world.fake);
    let before = world.fake.0.lock().unwrap().writes.len();
    world.work().await;
    let state = world.fake.0.lock().unwrap();
    assert_eq!(state.writes.len(), before, "{:?}", state.writes.last());
}

#[tokio::test(start_paused = true)]
async fn a_bad_image_leaves_the_good_one_where_it_is_and_the_next_one_gets_through() {
    let mut world = World::new("Immediate", true);
    make(&world, json!({ "source": { "http": { "url": "http://web.example/a.img" } } }));
    imported(&mut world, 1).await;
    imported(&mut world, 2).await;
    want(&world, 3);
    settle(&mut world, BAD).await;
    assert_eq!(world.status(&name(3))["phase"], "Failed");
    assert_eq!(stands_for(&world), ready("pvc", 2));
    assert_eq!(says(&cron(&world), "UpToDate"), "False ImportFailed");
    let told = cron(&world)["status"]["conditions"].to_string();
    assert!(told.contains("checksum mismatch"), "{told}");
    imported(&mut world, 4).await;
    let places = places(&world, "datavolumes");
    assert!(!places.contains(&format!("datavolumes/vms/{}", name(3))), "{places:?}");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_kept_is_gone_back_to_without_another_import() {
    let mut world = World::new("Immediate", true);
    make(&world, json!({}));
    for number in 1..=3 {
        imported(&mut world, number).await;
    }
    let claims_before = places(&world, "persistentvolumeclaims");
    assert_eq!(claims_before, claims(&[1, 2, 3]));
    annotate(&world, key::PINNED_DIGEST, &digest(1));
    settle(&mut world, DONE).await;
    assert_eq!(stands_for(&world), ready("pvc", 1));
    assert_eq!(says(&cron(&world), "UpToDate"), "True Pinned");
    assert_eq!(places(&world, "persistentvolumeclaims"), claims_before);
}

#[tokio::test(start_paused = true)]
async fn a_cron_that_goes_takes_along_what_its_policy_says_whenever_it_goes() {
    for policy in ["All", "None"] {
        for moment in ["at once", "during an import", "afterwards", "while nobody looks"] {
            let mut world = World::new("Immediate", true);
            make(&world, json!({ "retentionPolicy": policy }));
            want(&world, 1);
            match moment {
                "at once" => {}
                "during an import" => {
                    world.work().await;
                    world.others(DONE);
                    world.work().await;
                }
                _ => settle(&mut world, DONE).await,
            }
            world.fake.0.lock().unwrap().objects.remove(PLACE);
            if moment == "while nobody looks" {
                world = World::over(world.fake);
            }
            settle(&mut world, DONE).await;
            let stays = policy == "All" && moment != "at once";
            for plural in ["datasources", "datavolumes", "persistentvolumeclaims"] {
                let count = places(&world, plural).len();
                assert_eq!(count, usize::from(stays), "{policy}, {moment}: {plural}");
            }
            if stays {
                let source = stands_for(&world).0;
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
async fn whatever_request_fails_the_next_look_ends_where_it_should() {
    async fn life(world: &mut World) {
        for number in 1..=2 {
            want(world, number);
            settle(world, DONE).await;
        }
    }
    let begin = || {
        let world = World::new("Immediate", true);
        make(&world, json!({ "importsToKeep": 1 }));
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
                if is_lost { state.loses_answer = fails } else { state.refuses = fails }
            }
            life(&mut world).await;
            assert_eq!(stands_for(&world), ready("pvc", 2), "{number} {is_lost}");
            assert_eq!(says(&cron(&world), "UpToDate"), "True UpToDate", "{number} {is_lost}");
            let left = places(&world, "persistentvolumeclaims");
            assert_eq!(left, claims(&[2]), "{number} {is_lost}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_crons_do_not_pull_one_source_to_and_fro() {
    let mut world = World::new("Immediate", true);
    make(&world, json!({}));
    imported(&mut world, 1).await;
    let mut other = cron(&world);
    other["metadata"] = json!({
        "name": "other", "namespace": "vms", "annotations": { key::DESIRED_DIGEST: digest(2) },
    });
    other["status"] = Value::Null;
    world.fake.put("dataimportcrons", other);
    settle(&mut world, DONE).await;
    assert_eq!(stands_for(&world), ready("pvc", 1));
    assert!(reasons(&world).contains(&"ErrDataSourceAlreadyManaged".to_owned()));
    assert_eq!(places(&world, "datavolumes").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_is_ready_while_what_it_stands_for_is_there_and_so_is_who_points_to_it() {
    let mut world = World::new("Immediate", true);
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
    let check = |world: &World, name: &str, expected: &str| {
        let found = world.fake.get("datasources", "vms", name).unwrap();
        assert_eq!(says(&found, "Ready"), expected, "{name}: {found}");
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
