//! PVCs that refer to an oVirt disk or an OpenStack image, from creation to completion.

use std::sync::Arc;

use serde_json::{Value, json};

use super::world::TestCluster;
use super::{places, reasons};
use crate::controllers;
use crate::engine::queue::Key;

const DISK: &str = "persistentvolumeclaims/vms/disk";

fn disk_of_ovirt(world: &TestCluster) {
    world.fake.put(
        "ovirtvolumepopulators",
        json!({
            "apiVersion": "forklift.cdi.kubevirt.io/v1beta1", "kind": "OvirtVolumePopulator",
            "metadata": {
                "name": "source", "namespace": "vms",
                // Its owner need not be the PVC that it fills.
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

fn image_of_openstack(world: &TestCluster) {
    world.fake.put(
        "openstackvolumepopulators",
        json!({
            "apiVersion": "forklift.cdi.kubevirt.io/v1beta1", "kind": "OpenstackVolumePopulator",
            "metadata": { "name": "source", "namespace": "vms" },
            "spec": { "identityUrl": "https://keystone/v3", "secretRef": "keys", "imageId": "i-1" },
        }),
    );
}

fn claim(world: &TestCluster, kind: &str, annotations: Value) {
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

fn of_ovirt() -> TestCluster {
    let world = TestCluster::new("Immediate", true);
    disk_of_ovirt(&world);
    claim(&world, "OvirtVolumePopulator", json!({}));
    world
}

/// Alternates controllers and cluster for a fixed number of rounds.
async fn live(world: &mut TestCluster) {
    for _ in 0..8 {
        world.work().await;
        world.simulate_cluster("");
    }
    world.work().await;
}

fn the_claim(world: &TestCluster) -> Value {
    world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap()
}

fn annotation(world: &TestCluster, key: &str) -> Value {
    the_claim(world)["metadata"]["annotations"][format!("cdi.kubevirt.io/storage.{key}")].clone()
}

/// The PVC has the filled volume, and no temporary object is left.
fn check_filled(world: &TestCluster, case: &str) {
    let claim = the_claim(world);
    assert_eq!(claim["status"]["phase"], "Bound", "{case}: {claim}");
    assert_eq!(annotation(world, "pod.phase"), "Succeeded", "{case}");
    assert_eq!(annotation(world, "populator.progress"), "100.0%", "{case}");
    assert_eq!(places(world, "persistentvolumeclaims"), [DISK], "{case}");
    assert_eq!(places(world, "pods"), [""; 0], "{case}");
    let volume = format!("persistentvolumes//{}", claim["spec"]["volumeName"].as_str().unwrap());
    let state = world.fake.0.lock().unwrap();
    let owner = &state.objects[&volume]["spec"]["claimRef"]["uid"];
    assert_eq!(owner, &claim["metadata"]["uid"], "{case}");
}

#[tokio::test(start_paused = true)]
async fn forklift_pvc_is_filled_through_its_prime_pvc_by_either_populator() {
    for (kind, program) in [
        ("OvirtVolumePopulator", "ovirt-populator"),
        ("OpenstackVolumePopulator", "openstack-populator"),
    ] {
        let mut world = TestCluster::new("Immediate", true);
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

        // It runs, and has not reported its progress yet.
        world.fake.change(&place, |pod| {
            pod["status"] = json!({ "phase": "Running", "containerStatuses": [{
                "name": "populate", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": {} },
            }] });
        });
        world.work().await;
        assert_eq!(annotation(&world, "pod.phase"), "Running");
        assert_eq!(annotation(&world, "populator.progress"), "N/A");
        assert_eq!(annotation(&world, "populator.pvcPrime"), format!("prime-{uid}"));
        live(&mut world).await;
        check_filled(&world, kind);
        let event_reasons = reasons(&world);
        for reason in ["CreatedPVCPrimeSuccessfully", "importSucceeded"] {
            assert!(event_reasons.contains(&reason.to_owned()), "{event_reasons:?}");
        }
        let events = world.fake.0.lock().unwrap().events.clone();
        let ours = |event: &&Value| event["source"]["component"] == "forklift-populator-controller";
        assert_eq!(events.iter().filter(ours).count(), 2, "{events:?}");
        assert!(!event_reasons.contains(&"importFailed".to_owned()), "{event_reasons:?}");

        // Another process takes over and has nothing to do.
        let mut world = TestCluster::started_on(world.fake);
        let writes = world.fake.0.lock().unwrap().writes.len();
        live(&mut world).await;
        assert_eq!(world.fake.0.lock().unwrap().writes.len(), writes);
    }
}

#[tokio::test(start_paused = true)]
async fn forklift_pvc_waits_for_its_source_and_its_consumer() {
    let mut world = TestCluster::new("WaitForFirstConsumer", true);
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
async fn forklift_pvc_waits_for_a_source_deleted_before_its_pod_is_created() {
    let mut world = of_ovirt();
    // The prime PVC is created, and the pod is not created yet.
    world.deliver_watch_events();
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
async fn populator_failure_is_reported_on_the_target_pvc_and_retried() {
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
    assert_eq!(annotation(&world, "condition.running"), "false");
    assert_eq!(annotation(&world, "condition.running.message"), "Cannot authenticate");
    let events = world.fake.0.lock().unwrap().events.clone();
    let failures: Vec<_> = events.iter().filter(|e| e["reason"] == "importFailed").collect();
    // The second failure has the same message within ten minutes.
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["involvedObject"]["name"], "disk");
    assert_eq!(failures[0]["message"], "import into disk failed: Cannot authenticate");
    assert_eq!(failures[0]["source"]["component"], "forklift-populator-controller");
    world.fake.change(&place, |pod| pod["status"] = json!({ "phase": "Pending" }));
    live(&mut world).await;
    check_filled(&world, "after failures");
}

#[tokio::test(start_paused = true)]
async fn pod_and_prime_pvc_are_kept_if_retained() {
    let mut world = TestCluster::new("Immediate", true);
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
async fn populator_succeeds_whichever_request_fails() {
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
                    state.loses_response = Some(number)
                } else {
                    state.refuses = Some(number)
                }
            }
            live(&mut world).await;
            let mut world = TestCluster::started_on(world.fake);
            live(&mut world).await;
            check_filled(&world, &format!("{number} {is_lost}"));
        }
    }
}

/// Claims have the finalizer of Kubernetes: they stay for as long as a pod has them mounted.
#[tokio::test(start_paused = true)]
async fn forklift_pvc_deleted_at_any_step_leaves_no_objects() {
    for turns in 0..8 {
        let mut world = of_ovirt();
        for _ in 0..turns {
            world.work().await;
            world.simulate_cluster("");
        }
        for place in places(&world, "persistentvolumeclaims") {
            world.fake.change(&place, |claim| {
                claim["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
            });
        }
        // The target PVC has no pod and is removed at once. The prime PVC is terminating until its pod is gone.
        world.fake.change(DISK, |claim| claim["metadata"]["finalizers"] = json!([]));
        world.fake.delete(DISK);
        for _ in 0..4 {
            world.simulate_cluster("");
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
async fn unlabelled_pod_of_upstream_cdi_is_followed_without_a_watch() {
    let mut world = of_ovirt();
    let place = world.until_worker("").await;
    world.fake.change(&place, |pod| pod["metadata"]["labels"] = Value::Null);
    // A new process does not see the pod, because the watch selects by label.
    let mut world = TestCluster::started_on(world.fake);
    live(&mut world).await;
    check_filled(&world, "without labels");
}
