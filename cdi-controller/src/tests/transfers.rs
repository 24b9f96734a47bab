//! Transfers of PVCs and DataVolumes, on storage that deletes every released volume whose policy allows it.

use serde_json::{Value, json};

use super::fake::Fake;
use super::world::TestCluster;
use super::{DONE, blank, places};

const TRANSFER: &str = "objecttransfers//move";
const CLAIM: &str = "persistentvolumeclaims/vms/disk";

/// A PVC and its volume with the reclaim policy Delete.
fn claim_with_volume(fake: &Fake) {
    fake.put(
        "persistentvolumes",
        json!({
            "metadata": { "name": "pv-disk" },
            "spec": {
                "claimRef": { "namespace": "vms", "name": "disk", "uid": "claim-uid" },
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
            },
        }),
    );
    fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": {
                "name": "disk", "namespace": "vms", "uid": "claim-uid", "labels": { "mine": "yes" },
            },
            "spec": {
                "storageClassName": "fast", "volumeMode": "Block", "volumeName": "pv-disk",
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
        }),
    );
}

fn transfer(fake: &Fake, kind: &str, target: Value) {
    fake.put(
        "objecttransfers",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "ObjectTransfer",
            "metadata": { "name": "move" },
            "spec": {
                "source": { "kind": kind, "namespace": "vms", "name": "disk" }, "target": target,
            },
        }),
    );
}

/// Deletes released volumes, unless their policy is Retain.
fn reclaim(fake: &Fake) {
    let objects = fake.0.lock().unwrap().objects.clone();
    let uids: Vec<_> = objects.values().map(|object| object["metadata"]["uid"].clone()).collect();
    for (place, volume) in
        objects.iter().filter(|(place, _)| place.starts_with("persistentvolumes/"))
    {
        let owner = &volume["spec"]["claimRef"]["uid"];
        let is_left = !owner.is_null() && !uids.contains(owner);
        if is_left && volume["spec"]["persistentVolumeReclaimPolicy"] != "Retain" {
            fake.delete(place);
        }
    }
}

async fn run_round(world: &mut TestCluster) {
    world.work().await;
    reclaim(&world.fake);
    world.simulate_cluster(DONE);
    reclaim(&world.fake);
}

fn phase(world: &TestCluster) -> String {
    let transfer = world.fake.get("objecttransfers", "", "move").unwrap_or_default();
    transfer["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

async fn run_until_complete(world: &mut TestCluster) {
    for _ in 0..20 {
        run_round(world).await;
        if phase(world) == "Complete" {
            return run_round(world).await;
        }
    }
    panic!("it never completes: {:?}", world.fake.get("objecttransfers", "", "move"));
}

/// The PVC is at the target, bound to its volume with the policy Delete, and no other PVC is left.
fn check_moved(world: &TestCluster, namespace: &str, name: &str, volume: &str, case: &str) {
    let claims = places(world, "persistentvolumeclaims");
    assert_eq!(claims, [format!("persistentvolumeclaims/{namespace}/{name}")], "{case}");
    let claim = world.fake.get("persistentvolumeclaims", namespace, name).unwrap();
    assert_eq!(claim["status"]["phase"], "Bound", "{case}");
    assert_eq!(claim["spec"]["volumeName"], volume, "{case}");
    let mark = &claim["metadata"]["annotations"]["cdi.kubevirt.io/objectTransferName"];
    assert!(mark.is_null(), "{case}: {claim}");
    let volume = world.fake.get("persistentvolumes", "", volume).unwrap();
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete", "{case}");
    assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"], "{case}");
    assert_eq!(places(world, "persistentvolumes").len(), 1, "{case}");
}

fn check_complete(world: &TestCluster, case: &str) {
    let transfer = world.fake.get("objecttransfers", "", "move").unwrap();
    assert_eq!(transfer["status"]["phase"], "Complete", "{case}");
    let held = transfer["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
    assert_eq!(held, 0, "{case}: {transfer}");
}

#[tokio::test(start_paused = true)]
async fn pvc_is_transferred_with_its_volume() {
    for (target, namespace, name) in [
        (json!({ "namespace": "other" }), "other", "disk"),
        (json!({ "name": "renamed" }), "vms", "renamed"),
        (json!({ "namespace": "other", "name": "renamed" }), "other", "renamed"),
    ] {
        let mut world = TestCluster::new("Immediate", true);
        claim_with_volume(&world.fake);
        transfer(&world.fake, "PersistentVolumeClaim", target.clone());
        run_until_complete(&mut world).await;
        check_moved(&world, namespace, name, "pv-disk", &target.to_string());
        check_complete(&world, &target.to_string());
        let claim = world.fake.get("persistentvolumeclaims", namespace, name).unwrap();
        assert_eq!(claim["metadata"]["labels"]["mine"], "yes");
    }
}

#[tokio::test(start_paused = true)]
async fn pvc_transfer_completes_whichever_request_fails() {
    let requests = {
        let mut world = TestCluster::new("Immediate", true);
        claim_with_volume(&world.fake);
        transfer(&world.fake, "PersistentVolumeClaim", json!({ "namespace": "other" }));
        run_until_complete(&mut world).await;
        world.fake.0.lock().unwrap().requests
    };
    assert!(requests > 20, "{requests}");
    for number in 1..=requests {
        for is_lost in [false, true] {
            let world = TestCluster::new("Immediate", true);
            claim_with_volume(&world.fake);
            {
                let mut state = world.fake.0.lock().unwrap();
                if is_lost {
                    state.loses_response = Some(number)
                } else {
                    state.refuses = Some(number)
                }
            }
            transfer(&world.fake, "PersistentVolumeClaim", json!({ "namespace": "other" }));
            let mut world = TestCluster::started_on(world.fake);
            run_until_complete(&mut world).await;
            // A new process finds what the last one could not finish.
            let mut world = TestCluster::started_on(world.fake);
            run_round(&mut world).await;
            let case = format!("{number} {is_lost}");
            check_moved(&world, "other", "disk", "pv-disk", &case);
            check_complete(&world, &case);
        }
    }
}

/// A finished DataVolume on a volume with the reclaim policy Delete.
async fn finished_data_volume() -> TestCluster {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    let volume = places(&world, "persistentvolumes").remove(0);
    world.fake.change(&volume, |volume| {
        volume["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into();
    });
    world
}

fn volume_name(world: &TestCluster) -> String {
    places(world, "persistentvolumes")[0].rsplit('/').next().unwrap().to_owned()
}

fn check_data_volume(world: &TestCluster, volume: &str, case: &str) {
    check_moved(world, "other", "disk", volume, case);
    assert_eq!(places(world, "datavolumes"), ["datavolumes/other/disk"], "{case}");
    let moved = world.fake.get("datavolumes", "other", "disk").unwrap();
    assert_eq!(moved["status"]["phase"], "Succeeded", "{case}");
    let claim = world.fake.get("persistentvolumeclaims", "other", "disk").unwrap();
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], moved["metadata"]["uid"], "{case}");
    assert_eq!(places(world, "pods"), [""; 0], "nothing is imported again: {case}");
}

#[tokio::test(start_paused = true)]
async fn data_volume_is_transferred_with_its_pvc_and_not_filled_again() {
    let mut world = finished_data_volume().await;
    let volume = volume_name(&world);
    transfer(&world.fake, "DataVolume", json!({ "namespace": "other" }));
    run_until_complete(&mut world).await;
    check_data_volume(&world, &volume, "");
    check_complete(&world, "");
}

#[tokio::test(start_paused = true)]
async fn data_volume_transfer_completes_whichever_request_fails() {
    let begin = finished_data_volume().await.fake;
    transfer(&begin, "DataVolume", json!({ "namespace": "other" }));
    begin.0.lock().unwrap().requests = 0;
    let requests = {
        let mut world = TestCluster::started_on(begin.copied());
        run_until_complete(&mut world).await;
        world.fake.0.lock().unwrap().requests
    };
    for number in 1..=requests {
        for is_lost in [false, true] {
            let mut world = TestCluster::started_on(begin.copied());
            let volume = volume_name(&world);
            {
                let mut state = world.fake.0.lock().unwrap();
                if is_lost {
                    state.loses_response = Some(number)
                } else {
                    state.refuses = Some(number)
                }
            }
            run_until_complete(&mut world).await;
            let mut world = TestCluster::started_on(world.fake);
            run_round(&mut world).await;
            check_data_volume(&world, &volume, &format!("{number} {is_lost}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_transfer_leaves_the_pvc_in_exactly_one_namespace() {
    for turns in 0..4 {
        for work in [1, 3, 5, 8] {
            let mut world = TestCluster::new("Immediate", true);
            claim_with_volume(&world.fake);
            transfer(&world.fake, "PersistentVolumeClaim", json!({ "namespace": "other" }));
            // The controller is also killed during a reconciliation.
            world.fake.0.lock().unwrap().refuses = Some(work);
            for _ in 0..turns {
                run_round(&mut world).await;
            }
            world.fake.delete(TRANSFER);
            let mut world = TestCluster::started_on(world.fake);
            for _ in 0..6 {
                run_round(&mut world).await;
            }
            let case = format!("after {turns} turns and {work} requests");
            assert_eq!(places(&world, "objecttransfers"), [""; 0], "{case}");
            match places(&world, "persistentvolumeclaims").first().map(String::as_str) {
                Some(CLAIM) => check_moved(&world, "vms", "disk", "pv-disk", &case),
                _ => check_moved(&world, "other", "disk", "pv-disk", &case),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn transfer_to_an_existing_target_changes_nothing() {
    let mut world = TestCluster::new("Immediate", true);
    claim_with_volume(&world.fake);
    // Created after the webhook has admitted the transfer.
    world.fake.put(
        "persistentvolumeclaims",
        json!({ "metadata": { "name": "disk", "namespace": "other" }, "spec": {} }),
    );
    transfer(&world.fake, "PersistentVolumeClaim", json!({ "namespace": "other" }));
    for _ in 0..4 {
        run_round(&mut world).await;
    }
    assert_eq!(phase(&world), "Pending");
    let transfer = world.fake.get("objecttransfers", "", "move").unwrap();
    let condition = &transfer["status"]["conditions"][0];
    assert_eq!(condition["type"], "Complete");
    assert_eq!(condition["message"], "The target exists already");
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound");
}

#[tokio::test(start_paused = true)]
async fn transfer_that_cannot_complete_can_be_deleted() {
    for (case, kind) in [("volume", ""), ("missing", ""), ("ending", ""), ("missing", "DataVolume")]
    {
        let mut world = match kind {
            "" => TestCluster::new("Immediate", true),
            _ => finished_data_volume().await,
        };
        if kind.is_empty() {
            claim_with_volume(&world.fake);
        }
        let kind = if kind.is_empty() { "PersistentVolumeClaim" } else { kind };
        transfer(&world.fake, kind, json!({ "namespace": "other" }));
        // The dry-run create succeeds, as the namespace exists then.
        let code = if case == "ending" { 403 } else { 404 };
        world.fake.0.lock().unwrap().closed.insert("other".into(), code);
        for _ in 0..6 {
            run_round(&mut world).await;
        }
        let case = format!("{kind}: {case}");
        assert!(["Running", "Error"].contains(&phase(&world).as_str()), "{case}");
        let volume = places(&world, "persistentvolumes").remove(0);
        if case.ends_with("volume") {
            world.fake.delete(&volume);
        }
        world.fake.delete(TRANSFER);
        for _ in 0..8 {
            run_round(&mut world).await;
            world.fake.collect_garbage();
        }
        assert_eq!(places(&world, "objecttransfers"), [""; 0], "{case}");
        if !case.ends_with("volume") {
            let volume = world.fake.0.lock().unwrap().objects[&volume].clone();
            assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain", "{case}");
        }
    }
}

/// An administrator's clone is transferred to a tenant, who deletes the PVC and removes the mark that it is populated.
#[tokio::test(start_paused = true)]
async fn transferred_data_volume_loses_its_clone_tokens() {
    use super::clones::{Rights, cluster, of_claim};
    use api::annotations::{request, state};

    let rights = Rights::new();
    let fake = cluster("csi-clone", "images", true);
    rights.clone_of_claim(&fake, "images");
    let mut world = rights.controllers(fake, &[]);
    world.until("disk", "Succeeded", DONE).await;
    for _ in 0..5 {
        run_round(&mut world).await;
    }
    let before = world.fake.get("datavolumes", "vms", "disk").unwrap();
    assert_eq!(before["spec"]["source"], of_claim("images")["source"]);
    for token in [request::CLONE_TOKEN, state::EXTENDED_CLONE_TOKEN] {
        assert!(before["metadata"]["annotations"][token].is_string(), "{token}");
    }
    transfer(&world.fake, "DataVolume", json!({ "namespace": "other" }));
    run_until_complete(&mut world).await;
    let moved = world.fake.get("datavolumes", "other", "disk").unwrap();
    assert_eq!(moved["spec"]["source"], before["spec"]["source"]);
    for token in [request::CLONE_TOKEN, state::EXTENDED_CLONE_TOKEN] {
        assert!(moved["metadata"]["annotations"][token].is_null(), "{token}");
    }
    // The tenant may also add the earlier tokens.
    for tokens in [json!({}), before["metadata"]["annotations"].clone()] {
        world.fake.change("datavolumes/other/disk", |volume| {
            let all = volume["metadata"]["annotations"].as_object_mut().unwrap();
            all.remove(request::PRE_POPULATED);
            for token in [request::CLONE_TOKEN, state::EXTENDED_CLONE_TOKEN] {
                all.insert(token.into(), tokens[token].clone());
            }
            all.retain(|_, value| !value.is_null());
            volume["status"]["phase"] = "Pending".into();
        });
        if world.fake.get("persistentvolumeclaims", "other", "disk").is_some() {
            world.fake.delete("persistentvolumeclaims/other/disk");
        }
        for _ in 0..10 {
            run_round(&mut world).await;
        }
        assert_eq!(
            places(&world, "persistentvolumeclaims"),
            ["persistentvolumeclaims/images/golden"]
        );
        let event_reasons = super::reasons(&world);
        assert!(event_reasons.contains(&"CloneValidationFailed".to_owned()), "{event_reasons:?}");
    }
}
