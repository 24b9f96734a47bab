//! Snapshots where no populator is at work: the storage makes a claim of one beside it, and pods copy that.

use api::annotations::request;
use serde_json::{Value, json};

use super::*;

/// Where the claim of a snapshot is, once there is one.
pub(super) fn restored(world: &World) -> Option<(String, Value)> {
    let state = world.fake.0.lock().unwrap();
    let mut all = state.objects.iter();
    let found = all.find(|(place, _)| place.ends_with("-host-assisted-source-pvc"));
    found.map(|(place, claim)| (place.clone(), claim.clone()))
}

/// A cluster without a driver, with a snapshot `golden`, and a DataVolume of it that may have it.
pub(super) fn wanted(rights: &Rights, namespace: &str, size: Option<&str>) -> Fake {
    let fake = cluster("snapshot", namespace, false);
    put_snapshot_in(&fake, namespace);
    let golden = json!({ "snapshot": { "namespace": namespace, "name": "golden" } });
    let token = Some(rights.token(OriginKind::Snapshot, namespace, "disk"));
    volume(&fake, block(golden, size), token);
    fake
}

fn running(world: &World) -> String {
    let conditions = world.status("disk")["conditions"].clone();
    let mut all = conditions.as_array().into_iter().flatten();
    let running = all.find(|condition| condition["type"] == "Running").cloned();
    running.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
}

/// Everybody takes turns until the clone is done; returns what the claim of the snapshot looked like.
async fn copied(world: &mut World, namespace: &str, case: &str) -> Value {
    let mut made = restored(world).map(|(_, claim)| claim);
    for _ in 0..30 {
        world.work().await;
        made = made.or_else(|| restored(world).map(|(_, claim)| claim));
        world.others(DONE);
    }
    assert_eq!(world.status("disk")["phase"], "Succeeded", "{case}: {}", world.status("disk"));
    assert_eq!(world.status("disk")["progress"], "100.0%", "{case}");
    check_clean(world, namespace, case);
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    let said = &claim["metadata"]["annotations"];
    assert_eq!(said[state::CLONE_OF], "true", "{case}");
    assert_eq!(said[state::CLONE_TYPE], "copy", "{case}");
    assert_eq!(said[state::CLONE_PHASE], "Succeeded", "{case}");
    let told = reasons(world);
    for reason in
        ["NoPopulator", "CloneFromSnapshotSourceInProgress", "CloneInProgress", "CloneSucceeded"]
    {
        assert!(told.iter().any(|told| told == reason), "{case}: {reason}: {told:?}");
    }
    made.unwrap()
}

#[tokio::test(start_paused = true)]
async fn without_a_driver_a_snapshot_becomes_a_claim_that_pods_copy() {
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
async fn who_wants_no_populator_gets_the_same_through_a_data_source_too() {
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
        // What the DataSource stands for meanwhile is nothing to a clone that has begun.
        if through {
            world.fake.change("datasources/images/fedora", |source| {
                source["spec"]["source"]["snapshot"]["name"] = "newer".into();
            });
        }
        copied(&mut world, "images", &format!("{through}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_binds_the_claim_where_the_storage_waits_for_one() {
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
        assert!(prep.is_none() || !reads, "{pods:?}: it would be in the way");
        world.others(DONE);
        // It is on its way out, and the claim is not gone yet.
        if prepared && prep.is_none() {
            break;
        }
        prepared |= prep.is_some();
    }
    assert!(prepared);
    let told = reasons(&world);
    assert!(told.contains(&"PrepClaimInProgress".to_owned()), "{told:?}");
    assert!(!told.contains(&"CloneSourceInUse".to_owned()), "{told:?}");
    let made = copied(&mut world, "images", "waits").await;
    assert_eq!(made["spec"]["storageClassName"], "a", "the first by name");
    assert_eq!(made["spec"]["volumeMode"], "Block", "as the target's, where nobody knows");
}

#[tokio::test(start_paused = true)]
async fn what_a_snapshot_waits_for_is_said() {
    type Change = fn(&Fake);
    let table: [(&str, Change, &str, &str); 5] = [
        (
            "not ready",
            |fake| {
                fake.change("volumesnapshots/images/golden", |snapshot| {
                    // Restored later by hand, as whoever takes snapshots here would at once.
                    snapshot["status"]["readyToUse"] = json!(null);
                    snapshot["status"]["error"] = json!({ "message": "busy" });
                });
            },
            "snapshot golden to be ready to use; it says: busy",
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
    for (case, change, said, told) in table {
        let fake = wanted(&rights, "images", Some("1Gi"));
        let mut world = rights.controllers(fake, &[]);
        world.driver_clones = false;
        world.work().await;
        change(&world.fake);
        for _ in 0..4 {
            world.others(DONE);
            world.work().await;
        }
        assert!(running(&world).contains(said), "{case}: {}", world.status("disk"));
        let reasons = reasons(&world);
        assert!(
            case == "slow" || reasons.iter().any(|reason| reason == told),
            "{case}: {reasons:?}"
        );
        let is_made = restored(&world).is_some();
        assert_eq!(is_made, case == "slow", "{case}: nothing is made in vain");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_the_snapshots_namespace_is_told_of() {
    let rights = Rights::new();
    let fake = wanted(&rights, "images", Some("1Gi"));
    let mut world = rights.controllers(fake, &[]);
    world.work().await;
    world.fake.0.lock().unwrap().closed.insert("images".into(), 404);
    for _ in 0..3 {
        world.others(DONE);
        world.work().await;
    }
    assert!(running(&world).contains("the namespace is not there"), "{}", running(&world));
    world.fake.0.lock().unwrap().closed.clear();
    copied(&mut world, "images", "quota").await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_a_snapshot_that_is_deleted_at_any_step_leaves_nothing_behind() {
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
                // The machine that wants the disk.
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
                world.others(DONE);
            }
            world.fake.delete("pods/vms/vm");
            world.fake.delete("datavolumes/vms/disk");
            // The same process goes on, or another takes over at the worst moment.
            let mut world =
                if rounds % 2 == 0 { world } else { rights.controllers(world.fake, &[]) };
            for _ in 0..12 {
                world.fake.collect_garbage();
                world.work().await;
                world.others(DONE);
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
async fn whatever_request_of_a_clone_of_a_snapshot_fails_it_ends_where_it_should() {
    let rights = &Rights::new();
    let run = |refuses: Option<usize>, loses: Option<usize>| async move {
        let fake = wanted(rights, "images", Some("1Gi"));
        {
            let mut state = fake.0.lock().unwrap();
            state.refuses = refuses;
            state.loses_answer = loses;
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
async fn a_claim_of_a_snapshot_that_somebody_deletes_is_made_again() {
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
