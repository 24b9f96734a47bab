//! Clones of snapshots without a populator: the driver restores the snapshot to a temporary PVC, and pods copy that.

use api::annotations::request;
use serde_json::{Value, json};

use super::*;

/// The path of the restored PVC and the PVC, once it exists.
pub(super) fn restored(world: &TestCluster) -> Option<(String, Value)> {
    let state = world.fake.0.lock().unwrap();
    let mut all = state.objects.iter();
    let found = all.find(|(place, _)| place.ends_with("-host-assisted-source-pvc"));
    found.map(|(place, claim)| (place.clone(), claim.clone()))
}

/// A cluster without a CSI driver, with a snapshot `golden` and a DataVolume that is allowed to clone it.
pub(super) fn wanted(rights: &Rights, namespace: &str, size: Option<&str>) -> Fake {
    let fake = cluster("snapshot", namespace, false);
    put_snapshot_in(&fake, namespace);
    let golden = json!({ "snapshot": { "namespace": namespace, "name": "golden" } });
    let token = Some(rights.token(OriginKind::Snapshot, namespace, "disk"));
    volume(&fake, block(golden, size), token);
    fake
}

fn running(world: &TestCluster) -> String {
    let conditions = world.status("disk")["conditions"].clone();
    let mut all = conditions.as_array().into_iter().flatten();
    let running = all.find(|condition| condition["type"] == "Running").cloned();
    running.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
}

/// Runs until the clone is finished. Returns the restored PVC as it was created.
async fn copied(world: &mut TestCluster, namespace: &str, case: &str) -> Value {
    let mut made = restored(world).map(|(_, claim)| claim);
    for _ in 0..30 {
        world.work().await;
        made = made.or_else(|| restored(world).map(|(_, claim)| claim));
        world.simulate_cluster(DONE);
    }
    assert_eq!(world.status("disk")["phase"], "Succeeded", "{case}: {}", world.status("disk"));
    assert_eq!(world.status("disk")["progress"], "100.0%", "{case}");
    check_clean(world, namespace, case);
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    let annotations = &claim["metadata"]["annotations"];
    assert_eq!(annotations[state::CLONE_OF], "true", "{case}");
    assert_eq!(annotations[state::CLONE_TYPE], "copy", "{case}");
    assert_eq!(annotations[state::CLONE_PHASE], "Succeeded", "{case}");
    let event_reasons = reasons(world);
    for reason in
        ["NoPopulator", "CloneFromSnapshotSourceInProgress", "CloneInProgress", "CloneSucceeded"]
    {
        assert!(
            event_reasons.iter().any(|found| found == reason),
            "{case}: {reason}: {event_reasons:?}"
        );
    }
    made.unwrap()
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_restored_and_copied_without_a_csi_driver() {
    let rights = Rights::new();
    for namespace in ["vms", "images"] {
        for (size, has) in [(None, "1Gi"), (Some("1Gi"), "1Gi"), (Some("2Gi"), "2Gi")] {
            let case = format!("{namespace} {size:?}");
            let fake = wanted(&rights, namespace, size);
            let uid = fake.get("datavolumes", "vms", "disk").unwrap()["metadata"]["uid"].clone();
            let uid = uid.as_str().unwrap().to_owned();
            let mut world = rights.controllers(fake, &[]);
            let made = copied(&mut world, namespace, &case).await;
            let name = format!("{uid}-host-assisted-source-pvc");
            assert_eq!(made["metadata"]["name"], name, "{case}");
            assert_eq!(made["metadata"]["namespace"], namespace, "{case}");
            assert_eq!(made["metadata"]["labels"]["cdi.kubevirt.io/OwnedByUID"], uid, "{case}");
            assert_eq!(made["metadata"]["annotations"][state::OWNED_BY_DATA_VOLUME], "vms/disk");
            let spec = &made["spec"];
            assert_eq!(spec["resources"]["requests"]["storage"], "1Gi", "{case}");
            assert_eq!(spec["dataSource"]["name"], "golden", "{case}");
            assert_eq!(spec["volumeMode"], "Block", "{case}");
            assert_eq!(spec["storageClassName"], "fast", "{case}");
            let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
            assert_eq!(claim["spec"]["resources"]["requests"]["storage"], has, "{case}");
            let wanted = &claim["metadata"]["annotations"][request::CLONE_REQUEST];
            assert_eq!(wanted, &json!(format!("{namespace}/{name}")), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_copied_if_the_populator_is_disabled() {
    let rights = Rights::new();
    for through in [false, true] {
        let fake = cluster("snapshot", "images", true);
        put_snapshot(&fake);
        let golden = json!({ "snapshot": { "namespace": "images", "name": "golden" } });
        let mut spec = block(golden.clone(), Some("1Gi"));
        if through {
            spec["source"] = Value::Null;
            spec["sourceRef"] =
                json!({ "kind": "DataSource", "name": "fedora", "namespace": "images" });
            fake.put(
                "datasources",
                json!({
                    "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
                    "metadata": { "name": "fedora", "namespace": "images" },
                    "spec": { "source": golden },
                }),
            );
        }
        volume(&fake, spec, Some(rights.token(OriginKind::Snapshot, "images", "disk")));
        fake.change("datavolumes/vms/disk", |volume| {
            volume["metadata"]["annotations"][request::USE_POPULATOR] = "false".into();
        });
        let mut world = rights.controllers(fake, &[]);
        world.work().await;
        // A later change of the DataSource does not affect a clone that has started.
        if through {
            world.fake.change("datasources/images/fedora", |source| {
                source["spec"]["source"]["snapshot"]["name"] = "newer".into();
            });
        }
        copied(&mut world, "images", &format!("{through}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn prep_pod_binds_the_restored_pvc_of_a_wait_for_first_consumer_class() {
    let rights = Rights::new();
    let fake = wanted(&rights, "images", Some("1Gi"));
    fake.put(
        "volumesnapshotcontents",
        json!({ "metadata": { "name": "content" }, "spec": { "driver": "other.example" } }),
    );
    for name in ["b", "a"] {
        fake.put(
            "storageclasses",
            json!({
                "metadata": { "name": name }, "provisioner": "other.example",
                "volumeBindingMode": "WaitForFirstConsumer",
            }),
        );
    }
    let mut world = rights.controllers(fake, &[]);
    world.waits_for_pods = true;
    let mut prepared = false;
    for _ in 0..20 {
        world.work().await;
        let pods = places(&world, "pods");
        let prep = pods.iter().find(|place| place.starts_with("pods/images/prep-"));
        let reads = pods.iter().any(|place| place.ends_with("-source-pod"));
        assert!(prep.is_none() || !reads, "{pods:?}: both would mount the PVC");
        world.simulate_cluster(DONE);
        // The pod is deleted, and the PVC still exists.
        if prepared && prep.is_none() {
            break;
        }
        prepared |= prep.is_some();
    }
    assert!(prepared);
    let event_reasons = reasons(&world);
    assert!(event_reasons.contains(&"PrepClaimInProgress".to_owned()), "{event_reasons:?}");
    assert!(!event_reasons.contains(&"CloneSourceInUse".to_owned()), "{event_reasons:?}");
    let made = copied(&mut world, "images", "waits").await;
    assert_eq!(made["spec"]["storageClassName"], "a", "the first by name");
    assert_eq!(
        made["spec"]["volumeMode"], "Block",
        "as the target's, if the mode of the source is unknown"
    );
}

#[tokio::test(start_paused = true)]
async fn cause_of_a_waiting_snapshot_clone_is_reported() {
    type Change = fn(&Fake);
    let table: [(&str, Change, &str, &str); 5] = [
        (
            "not ready",
            |fake| {
                fake.change("volumesnapshots/images/golden", |snapshot| {
                    // Null instead of false, as the simulated cluster would make it ready at once.
                    snapshot["status"]["readyToUse"] = json!(null);
                    snapshot["status"]["error"] = json!({ "message": "busy" });
                });
            },
            "snapshot golden to be ready to use; it reports: busy",
            "CloneFromSnapshotSourceInProgress",
        ),
        (
            "gone",
            |fake| fake.delete("volumesnapshots/images/golden"),
            "The source snapshot golden doesn't exist",
            "CloneWithoutSource",
        ),
        (
            "of a driver without a class",
            |fake| {
                fake.change("volumesnapshotcontents//content", |content| {
                    content["spec"]["driver"] = "other.example".into();
                });
            },
            "there is no storage class of the driver that took snapshot \"golden\"",
            "CloneValidationFailed",
        ),
        (
            "files",
            |fake| {
                fake.change("persistentvolumeclaims/vms/disk", |claim| {
                    claim["metadata"]["annotations"][request::CONTENT_TYPE] = "archive".into();
                    claim["spec"]["volumeMode"] = "Filesystem".into();
                });
            },
            "volumeMode do not match",
            "CloneValidationFailed",
        ),
        ("slow", |_| (), "the storage to make a claim of the snapshot", "CloneScheduled"),
    ];
    let rights = Rights::new();
    for (case, change, message, expected) in table {
        let fake = wanted(&rights, "images", Some("1Gi"));
        let mut world = rights.controllers(fake, &[]);
        world.driver_clones = false;
        world.work().await;
        change(&world.fake);
        for _ in 0..4 {
            world.simulate_cluster(DONE);
            world.work().await;
        }
        assert!(running(&world).contains(message), "{case}: {}", world.status("disk"));
        let reasons = reasons(&world);
        assert!(
            case == "slow" || reasons.iter().any(|reason| reason == expected),
            "{case}: {reasons:?}"
        );
        let is_made = restored(&world).is_some();
        assert_eq!(is_made, case == "slow", "{case}: no PVC is created in vain");
    }
}

#[tokio::test(start_paused = true)]
async fn error_in_the_snapshots_namespace_is_reported() {
    let rights = Rights::new();
    let fake = wanted(&rights, "images", Some("1Gi"));
    let mut world = rights.controllers(fake, &[]);
    world.work().await;
    world.fake.0.lock().unwrap().closed.insert("images".into(), 404);
    for _ in 0..3 {
        world.simulate_cluster(DONE);
        world.work().await;
    }
    assert!(running(&world).contains("the namespace is not there"), "{}", running(&world));
    world.fake.0.lock().unwrap().closed.clear();
    copied(&mut world, "images", "quota").await;
}

#[tokio::test(start_paused = true)]
async fn snapshot_clone_deleted_at_any_step_leaves_no_objects() {
    let rights = Rights::new();
    for (namespace, waits) in [("vms", false), ("images", false), ("images", true)] {
        for rounds in 0..12 {
            let fake = wanted(&rights, namespace, Some("1Gi"));
            if waits {
                fake.change("storageclasses//fast", |class| {
                    class["volumeBindingMode"] = "WaitForFirstConsumer".into();
                });
            }
            let mut world = rights.controllers(fake, &[]);
            world.waits_for_pods = waits;
            for _ in 0..rounds {
                world.work().await;
                // A VM uses the disk.
                if waits {
                    world.fake.put(
                        "pods",
                        json!({
                            "metadata": { "name": "vm", "namespace": "vms" },
                            "spec": { "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "disk" } }] },
                            "status": { "phase": "Succeeded" },
                        }),
                    );
                }
                world.simulate_cluster(DONE);
            }
            world.fake.delete("pods/vms/vm");
            world.fake.delete("datavolumes/vms/disk");
            // The same process goes on, or another takes over at the worst moment.
            let mut world =
                if rounds % 2 == 0 { world } else { rights.controllers(world.fake, &[]) };
            for _ in 0..12 {
                world.fake.collect_garbage();
                world.work().await;
                world.simulate_cluster(DONE);
            }
            let case = format!("{namespace} {waits} after {rounds} rounds");
            assert_eq!(places(&world, "datavolumes"), [""; 0], "{case}");
            let claims = places(&world, "persistentvolumeclaims");
            assert_eq!(claims, [format!("persistentvolumeclaims/{namespace}/golden")], "{case}");
            check_nothing_left(&world, &case);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_clone_succeeds_whichever_request_fails() {
    let rights = &Rights::new();
    let run = |refuses: Option<usize>, loses: Option<usize>| async move {
        let fake = wanted(rights, "images", Some("1Gi"));
        {
            let mut state = fake.0.lock().unwrap();
            state.refuses = refuses;
            state.loses_response = loses;
        }
        let mut world = rights.controllers(fake, &[]);
        world.until("disk", "Succeeded", DONE).await;
        check_clean(&world, "images", &format!("refused {refuses:?}, lost {loses:?}"));
        world.fake.0.lock().unwrap().requests
    };
    let requests = run(None, None).await;
    assert!(requests > 15, "{requests}");
    for number in 1..=requests {
        run(Some(number), None).await;
        run(None, Some(number)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn restored_pvc_that_is_deleted_is_created_again() {
    let rights = Rights::new();
    let fake = wanted(&rights, "images", Some("1Gi"));
    let mut world = rights.controllers(fake, &[]);
    world.driver_clones = false;
    rounds(&mut world, 3).await;
    let (place, first) = restored(&world).unwrap();
    world.fake.delete(&place);
    world.driver_clones = true;
    let made = copied(&mut world, "images", "again").await;
    assert_ne!(made["metadata"]["uid"], first["metadata"]["uid"]);
}
