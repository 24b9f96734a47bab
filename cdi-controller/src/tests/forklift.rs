//! Claims that refer to a disk of oVirt or an image of OpenStack, from their beginning to their end.

use std::sync::Arc;

use serde_json::{Value, json};

use super::world::World;
use super::{places, reasons};
use crate::controllers;
use crate::engine::queue::Key;

const DISK: &str = "persistentvolumeclaims/vms/disk";

fn disk_of_ovirt(world: &World) {
    world.fake.put(
        "ovirtvolumepopulators",
        json!({
            "apiVersion": "forklift.cdi.kubevirt.io/v1beta1", "kind": "OvirtVolumePopulator",
            "metadata": {
                "name": "source", "namespace": "vms",
                // Whoever controls it need not be what it fills.
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "plan", "uid": "plan-uid", "controller": true,
                }],
            },
            "spec": { "engineUrl": "https://engine/api", "secretRef": "keys", "diskId": "d-1" },
        }),
    );
    world.fake.put(
        "configmaps",
        json!({ "metadata": { "name": "plan", "namespace": "vms", "uid": "plan-uid" } }),
    );
}

fn image_of_openstack(world: &World) {
    world.fake.put(
        "openstackvolumepopulators",
        json!({
            "apiVersion": "forklift.cdi.kubevirt.io/v1beta1", "kind": "OpenstackVolumePopulator",
            "metadata": { "name": "source", "namespace": "vms" },
            "spec": { "identityUrl": "https://keystone/v3", "secretRef": "keys", "imageId": "i-1" },
        }),
    );
}

fn claim(world: &World, kind: &str, annotations: Value) {
    world.fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": "disk", "namespace": "vms", "annotations": annotations },
            "spec": {
                "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "resources": { "requests": { "storage": "1Gi" } },
                "dataSourceRef": {
                    "apiGroup": "forklift.cdi.kubevirt.io", "kind": kind, "name": "source",
                },
            },
        }),
    );
}

fn of_ovirt() -> World {
    let world = World::new("Immediate", true);
    disk_of_ovirt(&world);
    claim(&world, "OvirtVolumePopulator", json!({}));
    world
}

/// Everybody takes turns for a while.
async fn live(world: &mut World) {
    for _ in 0..8 {
        world.work().await;
        world.others("");
    }
    world.work().await;
}

fn the_claim(world: &World) -> Value {
    world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap()
}

fn said(world: &World, key: &str) -> Value {
    the_claim(world)["metadata"]["annotations"][format!("cdi.kubevirt.io/storage.{key}")].clone()
}

/// The claim has the volume that was filled, and nothing else is left.
fn check_filled(world: &World, case: &str) {
    let claim = the_claim(world);
    assert_eq!(claim["status"]["phase"], "Bound", "{case}: {claim}");
    assert_eq!(said(world, "pod.phase"), "Succeeded", "{case}");
    assert_eq!(said(world, "populator.progress"), "100.0%", "{case}");
    assert_eq!(places(world, "persistentvolumeclaims"), [DISK], "{case}");
    assert_eq!(places(world, "pods"), [""; 0], "{case}");
    let volume = format!("persistentvolumes//{}", claim["spec"]["volumeName"].as_str().unwrap());
    let state = world.fake.0.lock().unwrap();
    let owner = &state.objects[&volume]["spec"]["claimRef"]["uid"];
    assert_eq!(owner, &claim["metadata"]["uid"], "{case}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_filled_out_of_sight_by_either_program() {
    for (kind, program) in [
        ("OvirtVolumePopulator", "ovirt-populator"),
        ("OpenstackVolumePopulator", "openstack-populator"),
    ] {
        let mut world = World::new("Immediate", true);
        disk_of_ovirt(&world);
        image_of_openstack(&world);
        claim(&world, kind, json!({}));
        let place = world.until_worker("").await;
        let uid = the_claim(&world)["metadata"]["uid"].as_str().unwrap().to_owned();
        assert_eq!(place, format!("pods/vms/populate-{uid}"));
        let pod = world.fake.0.lock().unwrap().objects[&place].clone();
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!([program]));
        assert_eq!(container["image"], "cdi-importer");
        let arguments = container["args"].as_array().unwrap();
        assert!(arguments.contains(&json!(format!("--owner-uid={uid}"))), "{arguments:?}");
        assert!(arguments.contains(&json!("--pvc-size=1073741824")), "{arguments:?}");

        // It runs, and does not say yet how far it is.
        world.fake.change(&place, |pod| {
            pod["status"] = json!({ "phase": "Running", "containerStatuses": [{
                "name": "populate", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": {} },
            }] });
        });
        world.work().await;
        assert_eq!(said(&world, "pod.phase"), "Running");
        assert_eq!(said(&world, "populator.progress"), "N/A");
        assert_eq!(said(&world, "populator.pvcPrime"), format!("prime-{uid}"));
        live(&mut world).await;
        check_filled(&world, kind);
        let told = reasons(&world);
        for reason in ["CreatedPVCPrimeSuccessfully", "importSucceeded"] {
            assert!(told.contains(&reason.to_owned()), "{told:?}");
        }
        let events = world.fake.0.lock().unwrap().events.clone();
        let ours = |event: &&Value| event["source"]["component"] == "forklift-populator-controller";
        assert_eq!(events.iter().filter(ours).count(), 2, "{events:?}");
        assert!(!told.contains(&"importFailed".to_owned()), "{told:?}");

        // Another process takes over and has nothing to do.
        let mut world = World::over(world.fake);
        let writes = world.fake.0.lock().unwrap().writes.len();
        live(&mut world).await;
        assert_eq!(world.fake.0.lock().unwrap().writes.len(), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_last_is_waited_for() {
    let mut world = World::new("WaitForFirstConsumer", true);
    claim(&world, "OvirtVolumePopulator", json!({}));
    live(&mut world).await;
    assert_eq!(places(&world, "persistentvolumeclaims"), [DISK], "there is no source");
    disk_of_ovirt(&world);
    live(&mut world).await;
    assert_eq!(places(&world, "persistentvolumeclaims"), [DISK], "there is no consumer");
    world.fake.change(DISK, |claim| {
        claim["metadata"]["annotations"] = json!({ "volume.kubernetes.io/selected-node": "n-1" });
    });
    let place = world.until_worker("").await;
    let pod = world.fake.0.lock().unwrap().objects[&place].clone();
    assert!(pod["spec"]["affinity"].to_string().contains("n-1"), "{pod}");
    live(&mut world).await;
    check_filled(&world, "all is there");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_goes_before_the_pod_is_made_is_waited_for() {
    let mut world = of_ovirt();
    // The claim beside it is made, and then the controllers have no time for a pod.
    world.tell();
    let engine = Arc::clone(&world.engine);
    controllers::populator::reconcile(engine, Key::new("vms", "disk")).await.unwrap();
    assert_eq!(places(&world, "persistentvolumeclaims").len(), 2);
    world.fake.delete("ovirtvolumepopulators/vms/source");
    live(&mut world).await;
    assert_eq!(places(&world, "pods"), [""; 0]);
    assert_eq!(the_claim(&world)["status"]["phase"], "Pending");
    disk_of_ovirt(&world);
    live(&mut world).await;
    check_filled(&world, "it is there again");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_of_the_claim_that_people_look_at_and_then_it_goes_on() {
    let mut world = of_ovirt();
    let place = world.until_worker("").await;
    let ended = |restarts: u32| {
        json!({ "phase": "Running", "containerStatuses": [{
            "name": "populate", "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
            "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": {
                "exitCode": 255, "reason": "Error",
                "message": "T ERROR importer::populator: cannot populate the volume: Cannot authenticate\n",
            } },
        }] })
    };
    for restarts in [0, 0, 1] {
        world.fake.change(&place, |pod| pod["status"] = ended(restarts));
        world.work().await;
    }
    assert_eq!(said(&world, "condition.running"), "false");
    assert_eq!(said(&world, "condition.running.message"), "Cannot authenticate");
    let events = world.fake.0.lock().unwrap().events.clone();
    let failures: Vec<_> = events.iter().filter(|e| e["reason"] == "importFailed").collect();
    // The second one has the same words within ten minutes.
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["involvedObject"]["name"], "disk");
    assert_eq!(failures[0]["message"], "import into disk failed: Cannot authenticate");
    assert_eq!(failures[0]["source"]["component"], "forklift-populator-controller");
    world.fake.change(&place, |pod| pod["status"] = json!({ "phase": "Pending" }));
    live(&mut world).await;
    check_filled(&world, "after failures");
}

#[tokio::test(start_paused = true)]
async fn what_is_retained_stays() {
    let mut world = World::new("Immediate", true);
    image_of_openstack(&world);
    let retain = json!({ "cdi.kubevirt.io/storage.pod.retainAfterCompletion": "true" });
    claim(&world, "OpenstackVolumePopulator", retain);
    live(&mut world).await;
    assert_eq!(the_claim(&world)["status"]["phase"], "Bound");
    assert_eq!(
        (places(&world, "pods").len(), places(&world, "persistentvolumeclaims").len()),
        (1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_request_fails_the_next_try_ends_where_it_should() {
    let requests = {
        let mut world = of_ovirt();
        live(&mut world).await;
        check_filled(&world, "nothing fails");
        world.fake.0.lock().unwrap().requests
    };
    assert!(requests > 8, "{requests}");
    for number in 1..=requests {
        for is_lost in [false, true] {
            let mut world = of_ovirt();
            {
                let mut state = world.fake.0.lock().unwrap();
                if is_lost {
                    state.loses_answer = Some(number)
                } else {
                    state.refuses = Some(number)
                }
            }
            live(&mut world).await;
            let mut world = World::over(world.fake);
            live(&mut world).await;
            check_filled(&world, &format!("{number} {is_lost}"));
        }
    }
}

/// Claims have the finalizer of Kubernetes: they stay for as long as a pod has them mounted.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_at_any_moment_leaves_nothing() {
    for turns in 0..8 {
        let mut world = of_ovirt();
        for _ in 0..turns {
            world.work().await;
            world.others("");
        }
        for place in places(&world, "persistentvolumeclaims") {
            world.fake.change(&place, |claim| {
                claim["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
            });
        }
        // The user's has no pod, and goes at once; the one beside it is collected, and stays until its pod is gone.
        world.fake.change(DISK, |claim| claim["metadata"]["finalizers"] = json!([]));
        world.fake.delete(DISK);
        for _ in 0..4 {
            world.others("");
            world.work().await;
            if places(&world, "pods").is_empty() {
                for place in places(&world, "persistentvolumeclaims") {
                    world.fake.change(&place, |claim| claim["metadata"]["finalizers"] = json!([]));
                    world.fake.delete(&place);
                }
            }
        }
        for plural in ["persistentvolumeclaims", "pods"] {
            assert_eq!(places(&world, plural), [""; 0], "{turns}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_reference_made_is_followed_though_no_watch_tells_of_it() {
    let mut world = of_ovirt();
    let place = world.until_worker("").await;
    world.fake.change(&place, |pod| pod["metadata"]["labels"] = Value::Null);
    // A process that never heard of it, as the watch asks for labels.
    let mut world = World::over(world.fake);
    live(&mut world).await;
    check_filled(&world, "without labels");
}
