//! Objects of a tenant that the controllers cannot decode do not affect the objects of others.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::golden::{self, data_source_target, name, ready, run_until_stable, set_desired_digest};
use super::world::TestCluster;
use super::{DONE, blank, places};
use crate::controllers;
use crate::engine::metrics::page;
use crate::engine::watch;

/// More than all lists take.
const LISTED: Duration = Duration::from_secs(60);
const ROUNDS: usize = 60;

/// Nested more deeply than JSON is read, and still accepted in the metadata of a template by the schema.
fn deep() -> Value {
    (0..300).fold(json!(1), |inner, _| json!({ "a": inner }))
}

fn undecodable_cron(name: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": name, "namespace": "evil" },
        "spec": {
            "schedule": "", "managedDataSource": "d",
            "template": { "metadata": { "x": deep() }, "spec": {} },
        },
    })
}

fn undecodable_source(name: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": { "name": name, "namespace": "evil" },
        "spec": { "source": {} }, "status": { "conditions": "none" },
    })
}

fn undecodable_volume(name: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": name, "namespace": "evil" },
        "spec": blank(), "status": { "restartCount": "many" },
    })
}

fn count(world: &TestCluster, kind: &str) -> u64 {
    let series = format!("kubevirt_cdi_undecodable_objects{{kind=\"{kind}\"}} ");
    let text = page(&world.engine);
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

/// `kind namespace/name` and message of each CannotDecode event.
fn reports(world: &TestCluster) -> Vec<(String, String)> {
    let state = world.fake.0.lock().unwrap();
    let reports = state.events.iter().filter(|event| event["reason"] == "CannotDecode");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut reports: Vec<_> = reports
        .map(|event| {
            let about = &event["involvedObject"];
            assert!(about["uid"].is_string() && event["type"] == "Warning", "{event}");
            let (kind, namespace) = (text(&about["kind"]), text(&about["namespace"]));
            (format!("{kind} {namespace}/{}", text(&about["name"])), text(&event["message"]))
        })
        .collect();
    reports.sort();
    reports
}

async fn until_done(world: &TestCluster, name: &str) {
    for _ in 0..ROUNDS {
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.simulate_cluster(DONE);
        if world.status(name)["phase"] == "Succeeded" {
            return;
        }
    }
    panic!("{name} is not done: {}", world.status(name));
}

/// The attack: with typed lists the first list never completed, and no controller started.
#[tokio::test(start_paused = true)]
async fn undecodable_objects_of_one_tenant_do_not_block_controllers() {
    let world = TestCluster::new("Immediate", true);
    world.fake.put("dataimportcrons", undecodable_cron("cron"));
    world.fake.put("datasources", undecodable_source("source"));
    world.fake.put("datavolumes", undecodable_volume("disk"));
    world.volume("before", blank());
    let follow = tokio::spawn(watch::follow_all(Arc::clone(&world.engine)));
    let listed = tokio::time::timeout(LISTED, watch::ready(&world.engine.api.caches)).await;
    assert!(listed.is_ok(), "one object keeps a list from being complete");
    let work = tokio::spawn(controllers::work(&world.engine));
    until_done(&world, "before").await;
    assert_eq!(
        ["DataImportCron", "DataSource", "DataVolume", "PersistentVolumeClaim"]
            .map(|kind| count(&world, kind)),
        [1, 1, 1, 0]
    );

    // And while they run.
    for kind in ["dataimportcrons", "datasources", "datavolumes"] {
        let object = match kind {
            "dataimportcrons" => undecodable_cron("later"),
            "datasources" => undecodable_source("later"),
            _ => undecodable_volume("later"),
        };
        world.fake.put(kind, object);
    }
    world.volume("after", blank());
    until_done(&world, "after").await;
    assert_eq!(
        ["DataImportCron", "DataSource", "DataVolume"].map(|kind| count(&world, kind)),
        [2, 2, 2]
    );
    let reports = reports(&world);
    let about: Vec<_> = reports.iter().map(|(about, _)| about.as_str()).collect();
    assert_eq!(
        about,
        [
            "DataImportCron evil/cron",
            "DataImportCron evil/later",
            "DataSource evil/later",
            "DataSource evil/source",
            "DataVolume evil/disk",
            "DataVolume evil/later",
        ]
    );
    assert_eq!(
        reports[5].1,
        "The controllers skip this object: cannot decode status.restartCount: invalid type: string \"many\", \
         expected i32. Correct or delete it"
    );
    // The tenant corrects one, and deletes another.
    world.fake.change("datavolumes/evil/disk", |volume| volume["status"] = json!({}));
    world.fake.delete("dataimportcrons/evil/cron");
    for _ in 0..ROUNDS {
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.simulate_cluster(DONE);
    }
    let disk = world.fake.get("datavolumes", "evil", "disk").unwrap();
    assert_eq!(disk["status"]["phase"], "Succeeded");
    assert_eq!(
        ["DataImportCron", "DataSource", "DataVolume"].map(|kind| count(&world, kind)),
        [1, 2, 1]
    );
    assert_eq!(self::reports(&world).len(), 6, "each is reported once");
    work.abort();
    follow.abort();
}

#[tokio::test(start_paused = true)]
async fn undecodable_data_volume_keeps_its_pvc_and_continues_when_corrected() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    world.until_worker(DONE).await;
    let claims = places(&world, "persistentvolumeclaims");
    let pods = places(&world, "pods");
    let status = world.status("disk");
    world.fake.change("datavolumes/vms/disk", |volume| volume["status"]["conditions"] = json!("x"));
    for _ in 0..5 {
        world.work().await;
    }
    assert_eq!(places(&world, "persistentvolumeclaims"), claims);
    assert_eq!(places(&world, "pods"), pods);
    assert_eq!(count(&world, "DataVolume"), 1);
    world.fake.change("datavolumes/vms/disk", |volume| volume["status"] = status);
    world.until("disk", "Succeeded", DONE).await;
    assert_eq!(count(&world, "DataVolume"), 0);
}

#[tokio::test(start_paused = true)]
async fn undecodable_cron_keeps_its_objects_until_it_is_deleted() {
    let mut world = TestCluster::new("Immediate", true);
    golden::create_cron(&world, json!({ "retentionPolicy": "None" }));
    set_desired_digest(&world, 1);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("pvc", 1));
    let cron = golden::cron(&world);
    world.fake.change(golden::PLACE, |cron| {
        cron["spec"]["template"]["metadata"] = json!({ "x": deep() });
    });
    run_until_stable(&mut world, DONE).await;
    assert_eq!(count(&world, "DataImportCron"), 1);
    assert_eq!(data_source_target(&world), ready("pvc", 1));

    // Restarted controllers know only the undecodable version.
    let mut world = TestCluster::started_on(world.fake);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(count(&world, "DataImportCron"), 1);
    assert_eq!(data_source_target(&world), ready("pvc", 1));

    // After the correction, it continues.
    world.fake.change(golden::PLACE, |present| present["spec"] = cron["spec"].clone());
    set_desired_digest(&world, 2);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("pvc", 2));

    world.fake.change(golden::PLACE, |cron| {
        cron["spec"]["template"]["metadata"] = json!({ "x": deep() });
    });
    run_until_stable(&mut world, DONE).await;
    world.fake.delete(golden::PLACE);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(count(&world, "DataImportCron"), 0);
    assert_eq!(places(&world, "datasources"), [""; 0], "{}", name(2));
}
