//! DataVolumes whose PVC is already populated: neither their source nor the permission for it is checked.

use api::annotations::{request, state};
use serde_json::{Value, json};

use super::super::fake::Fake;
use super::super::places;
use super::super::world::TestCluster;
use super::{DONE, block, rounds};

const CLAIM: &str = "persistentvolumeclaims/vms/disk";
const VOLUME: &str = "persistentvolumes//static";

/// All kinds of sources. None of them exists, and no user has a permission in another namespace.
fn sources() -> Vec<(&'static str, Value)> {
    let place = |namespace: &str| json!({ "namespace": namespace, "name": "gone" });
    let mut by_reference = block(json!(null), None);
    by_reference["sourceRef"] =
        json!({ "kind": "DataSource", "name": "gone", "namespace": "images" });
    vec![
        ("claim elsewhere", block(json!({ "pvc": place("images") }), None)),
        ("claim elsewhere, with a size", block(json!({ "pvc": place("images") }), Some("1Gi"))),
        ("claim, size zero", block(json!({ "pvc": place("vms") }), Some("0"))),
        ("snapshot elsewhere", block(json!({ "snapshot": place("images") }), None)),
        ("snapshot", block(json!({ "snapshot": place("vms") }), None)),
        ("data source", by_reference),
        ("web", block(json!({ "http": { "url": "http://gone" } }), Some("1Gi"))),
        ("upload", block(json!({ "upload": {} }), Some("1Gi"))),
        ("blank", block(json!({ "blank": {} }), Some("1Gi"))),
    ]
}

fn data_volume(fake: &Fake, spec: &Value, annotations: Value) {
    fake.put(
        "datavolumes",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": "disk", "namespace": "vms", "annotations": annotations },
            "spec": spec,
        }),
    );
}

/// A volume that an administrator or a restore has reserved for the PVC.
fn set_aside(fake: &Fake) {
    fake.put(
        "persistentvolumes",
        json!({
            "metadata": { "name": "static" },
            "spec": {
                "claimRef": { "namespace": "vms", "name": "disk" }, "storageClassName": "fast",
                "volumeMode": "Block", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            },
            "status": { "phase": "Available" },
        }),
    );
}

/// As Kubernetes binds the two.
fn bind(fake: &Fake) {
    let claim = fake.get("persistentvolumeclaims", "vms", "disk").expect("there is a claim");
    fake.change(VOLUME, |volume| {
        volume["spec"]["claimRef"]["uid"] = claim["metadata"]["uid"].clone();
        volume["status"]["phase"] = "Bound".into();
    });
    fake.change(CLAIM, |claim| {
        claim["spec"]["volumeName"] = "static".into();
        claim["status"]["phase"] = "Bound".into();
        claim["status"]["capacity"] = json!({ "storage": "1Gi" });
    });
}

fn check_taken_over(world: &TestCluster, case: &str) {
    assert_eq!(world.status("disk")["phase"], "Succeeded", "{case}: {}", world.status("disk"));
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["spec"]["volumeName"], "static", "{case}");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "DataVolume", "{case}");
    assert_eq!(places(world, "persistentvolumeclaims"), [CLAIM], "{case}");
    for plural in ["pods", "volumeimportsources", "volumeuploadsources", "volumeclonesources"] {
        assert_eq!(places(world, plural), [""; 0], "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn static_volume_is_adopted_without_reading_the_source() {
    for (name, spec) in sources() {
        for has_driver in [true, false] {
            for comes_later in [false, true] {
                let is_import = spec["source"].as_object().is_some_and(|source| {
                    !source.contains_key("pvc") && !source.contains_key("snapshot")
                });
                if comes_later && is_import {
                    continue; // it is populated by then
                }
                let case = format!("{name}, driver: {has_driver}, later: {comes_later}");
                let mut world = TestCluster::new("Immediate", has_driver);
                if comes_later {
                    data_volume(&world.fake, &spec, json!({ request::CHECK_STATIC_VOLUME: "" }));
                    world.work().await;
                    assert_eq!(places(&world, "persistentvolumeclaims"), [""; 0], "{case}");
                    set_aside(&world.fake);
                } else {
                    set_aside(&world.fake);
                    data_volume(&world.fake, &spec, json!({ request::CHECK_STATIC_VOLUME: "" }));
                }
                world.work().await;
                let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").expect(&case);
                assert!(claim["spec"]["dataSourceRef"].is_null(), "{case}");
                assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1Gi", "{case}");
                assert_eq!(world.status("disk")["phase"], "Pending", "{case}");
                bind(&world.fake);
                rounds(&mut world, 3).await;
                check_taken_over(&world, &case);
                let annotations = &world.fake.get("datavolumes", "vms", "disk").unwrap()["metadata"]
                    ["annotations"];
                assert_eq!(annotations[request::PRE_POPULATED], "disk", "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn restored_pvc_is_adopted_without_reading_the_source() {
    for (name, spec) in sources() {
        for has_driver in [true, false] {
            for (marked_on, of_claim, of_volume) in [
                ("the claim", json!({ request::POPULATED_FOR: "disk" }), json!({})),
                ("the DataVolume", json!({}), json!({ request::ALLOW_CLAIM_ADOPTION: "true" })),
            ] {
                let case =
                    format!("{name}, driver: {has_driver}, marked as populated on {marked_on}");
                let mut world = TestCluster::new("Immediate", has_driver);
                set_aside(&world.fake);
                world.fake.put(
                    "persistentvolumeclaims",
                    json!({
                        "metadata": { "name": "disk", "namespace": "vms", "annotations": of_claim },
                        "spec": {
                            "storageClassName": "fast", "volumeMode": "Block",
                            "accessModes": ["ReadWriteOnce"],
                            "resources": { "requests": { "storage": "1Gi" } },
                        },
                    }),
                );
                bind(&world.fake);
                data_volume(&world.fake, &spec, of_volume);
                rounds(&mut world, 4).await;
                check_taken_over(&world, &case);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pvc_bound_to_a_later_static_volume_is_complete() {
    let mut world = TestCluster::new("WaitForFirstConsumer", true);
    world.waits_for_pods = true;
    let spec = block(json!({ "blank": {} }), Some("1Gi"));
    data_volume(&world.fake, &spec, json!({ request::CHECK_STATIC_VOLUME: "" }));
    world.work().await;
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["spec"]["dataSourceRef"]["kind"], "VolumeImportSource");
    assert!(claim["metadata"]["annotations"][state::PERSISTENT_VOLUME_LIST].is_null());
    set_aside(&world.fake);
    bind(&world.fake);
    world.until("disk", "Succeeded", DONE).await;
    check_taken_over(&world, "bound by another client");
}
