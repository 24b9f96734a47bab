//! DataVolumes past their TTL are deleted, and their PVCs are kept.

use api::annotations::request;
use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, blank, places, reasons};

const CONFIG: &str = "cdiconfigs//config";
const DISK: &str = "persistentvolumeclaims/vms/disk";

fn cluster(ttl: Value) -> TestCluster {
    let world = TestCluster::new("Immediate", true);
    world.fake.change(CONFIG, |config| config["spec"]["dataVolumeTTLSeconds"] = ttl);
    world
}

/// Alternates controllers and cluster for a fixed number of rounds.
async fn live(world: &mut TestCluster) {
    for _ in 0..12 {
        world.work().await;
        world.simulate_cluster(DONE);
    }
}

/// The PVC is bound and has no owner, and no object of the DataVolume is left.
fn check_only_the_claim_is_left(world: &TestCluster, case: &str) {
    assert_eq!(places(world, "datavolumes"), [""; 0], "{case}");
    assert_eq!(places(world, "persistentvolumeclaims"), [DISK], "{case}");
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound", "{case}");
    assert_eq!(claim["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len), 0, "{case}");
    for plural in ["pods", "volumeimportsources"] {
        assert_eq!(places(world, plural), [""; 0], "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn data_volume_is_deleted_after_its_ttl_and_its_pvc_is_kept() {
    let mut world = cluster(json!(0));
    world.volume("disk", blank());
    live(&mut world).await;
    check_only_the_claim_is_left(&world, "no time at all");
    assert!(reasons(&world).contains(&"DataVolumeCollected".to_owned()), "{:?}", reasons(&world));
    let writes = world.fake.0.lock().unwrap().writes.clone();
    let at = |what: &str| writes.iter().rposition(|write| write == what);
    let released = at(&format!("change {DISK}"));
    assert!(released < at("delete datavolumes/vms/disk"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn data_volume_is_kept_until_its_ttl_without_polling() {
    let mut world = cluster(json!(3600));
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    let requests = world.fake.0.lock().unwrap().requests;
    live(&mut world).await;
    assert_eq!(world.status("disk")["phase"], "Succeeded");
    assert_eq!(world.fake.0.lock().unwrap().requests, requests);
    // An hour later.
    world.fake.change("datavolumes/vms/disk", |volume| {
        for condition in volume["status"]["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = "2020-01-01T00:00:00Z".into();
        }
    });
    live(&mut world).await;
    check_only_the_claim_is_left(&world, "an hour later");
}

#[tokio::test(start_paused = true)]
async fn ttl_that_is_set_later_does_not_apply_to_existing_data_volumes() {
    for (ttl, annotation, is_kept) in [
        (json!(null), None, true),
        (json!(-1), None, true),
        (json!(-1), Some("true"), true),
        (json!(0), Some("false"), true),
        (json!(0), None, false),
    ] {
        let mut world = cluster(ttl.clone());
        world.volume("disk", blank());
        if let Some(annotation) = annotation {
            world.fake.change("datavolumes/vms/disk", |volume| {
                volume["metadata"]["annotations"] =
                    json!({ request::DELETE_AFTER_COMPLETION: annotation });
            });
        }
        live(&mut world).await;
        let case = format!("{ttl} {annotation:?}");
        assert_eq!(places(&world, "datavolumes").len() == 1, is_kept, "{case}");
        if is_kept && annotation.is_none() {
            world.fake.change(CONFIG, |config| config["spec"]["dataVolumeTTLSeconds"] = json!(0));
            live(&mut world).await;
            assert_eq!(places(&world, "datavolumes").len(), 1, "{case}: it was there before");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn data_volume_of_a_vm_is_kept() {
    let mut world = cluster(json!(0));
    let machine = json!({ "metadata": { "name": "vm", "namespace": "vms", "uid": "vm-uid" } });
    world.fake.put("configmaps", machine); // in place of the VirtualMachine
    world.volume("disk", blank());
    world.fake.change("datavolumes/vms/disk", |volume| {
        volume["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid",
            "controller": true, "blockOwnerDeletion": true,
        }]);
    });
    live(&mut world).await;
    assert_eq!(world.status("disk")["phase"], "Succeeded");
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "DataVolume");
    // The VM is deleted, and the garbage collector deletes what it owns.
    world.fake.delete("configmaps/vms/vm");
    live(&mut world).await;
    for plural in ["datavolumes", "persistentvolumeclaims"] {
        assert_eq!(places(&world, plural), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn pvc_survives_ttl_deletion_whichever_request_fails() {
    let requests = {
        let mut world = cluster(json!(0));
        world.volume("disk", blank());
        live(&mut world).await;
        world.fake.0.lock().unwrap().requests
    };
    for number in 1..=requests {
        for is_lost in [false, true] {
            let world = cluster(json!(0));
            {
                let mut state = world.fake.0.lock().unwrap();
                if is_lost {
                    state.loses_response = Some(number)
                } else {
                    state.refuses = Some(number)
                }
            }
            world.volume("disk", blank());
            let mut world = TestCluster::started_on(world.fake);
            live(&mut world).await;
            // A new process, because retries are delayed.
            let mut world = TestCluster::started_on(world.fake);
            live(&mut world).await;
            check_only_the_claim_is_left(&world, &format!("{number} {is_lost}"));
        }
    }
}
