//! Attacks by tenants that know the name of the restored PVC of a snapshot, or annotate the target.

use api::annotations::request;
use api::labels;
use serde_json::{Value, json};

use super::snapshots::{restored, wanted};
use super::*;

/// Creates a PVC with the name of the restored PVC before the controller does. `forged`: the fields that it copies.
fn squat(fake: &Fake, namespace: &str, forged: Forged, token: Option<&str>) -> (String, Value) {
    let volume = fake.get("datavolumes", "vms", "disk").unwrap();
    let uid = volume["metadata"]["uid"].as_str().unwrap();
    let name = format!("{uid}-host-assisted-source-pvc");
    let mut claim = json!({
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "storageClassName": "fast", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    if forged != Forged::Name {
        claim["metadata"]["labels"] = json!({ labels::OWNED_BY_UID: uid });
        claim["metadata"]["annotations"] = json!({
            state::OWNED_BY_DATA_VOLUME: "vms/disk", state::OWNER_UID: uid,
            state::EXTENDED_CLONE_TOKEN: token.unwrap_or("no token"),
        });
    }
    if forged == Forged::All {
        let of = json!({
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "golden",
        });
        claim["spec"]["dataSource"] = of.clone();
        claim["spec"]["dataSourceRef"] = of;
    }
    fake.put("persistentvolumeclaims", claim);
    let place = format!("persistentvolumeclaims/{namespace}/{name}");
    let made = fake.get("persistentvolumeclaims", namespace, &name).unwrap();
    (place, made)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Forged {
    Name,
    Marks,
    All,
}

/// Whether a pod mounts the PVC.
fn is_mounted(world: &TestCluster, claim: &Value) -> bool {
    let state = world.fake.0.lock().unwrap();
    let mut pods = state.objects.iter().filter(|(place, _)| place.starts_with("pods/"));
    pods.any(|(_, pod)| {
        let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        pod["metadata"]["namespace"] == claim["metadata"]["namespace"]
            && volumes.any(|v| v["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"])
    })
}

#[tokio::test(start_paused = true)]
async fn foreign_pvc_with_the_name_of_the_restored_pvc_is_neither_read_nor_changed() {
    let rights = Rights::new();
    // A token that a tenant can get from the webhook or the DataVolume.
    let tokens = [None, Some(rights.token(OriginKind::Snapshot, "images", "disk"))];
    for namespace in ["vms", "images"] {
        for (forged, token) in [
            (Forged::Name, &tokens[0]),
            (Forged::Marks, &tokens[0]),
            (Forged::All, &tokens[0]),
            (Forged::All, &tokens[1]),
        ] {
            let case = format!("{namespace} {forged:?} {}", token.is_some());
            let fake = wanted(&rights, namespace, Some("1Gi"));
            let (place, squatter) = squat(&fake, namespace, forged, token.as_deref());
            let mut world = rights.controllers(fake, &[]);
            for _ in 0..6 {
                world.work().await;
                assert!(!is_mounted(&world, &squatter), "{case}");
                world.simulate_cluster(DONE);
            }
            let (_, now) = restored(&world).unwrap();
            for part in ["uid", "labels", "annotations", "finalizers", "deletionTimestamp"] {
                assert_eq!(now["metadata"][part], squatter["metadata"][part], "{case}: {part}");
            }
            assert_eq!(
                now["spec"]["resources"], squatter["spec"]["resources"],
                "{case}: it has not changed"
            );
            let event_reasons = reasons(&world);
            assert!(
                event_reasons.contains(&"ErrResourceExists".to_owned()),
                "{case}: {event_reasons:?}"
            );
            let conditions = world.status("disk")["conditions"].to_string();
            assert!(conditions.contains("was not created for this clone"), "{case}: {conditions}");
            assert_eq!(world.status("disk")["phase"], "CloneScheduled", "{case}");

            // A deleted DataVolume does not delete it. If it is deleted, the clone continues.
            let mut abandoned = rights.controllers(world.fake.copied(), &[]);
            abandoned.fake.delete("datavolumes/vms/disk");
            for _ in 0..6 {
                abandoned.fake.collect_garbage();
                abandoned.work().await;
                abandoned.simulate_cluster(DONE);
            }
            assert!(restored(&abandoned).is_some(), "{case}");
            check_nothing_left(&abandoned, &case);
            world.fake.delete(&place);
            // Another process, to skip the retry delay.
            let mut world = rights.controllers(world.fake, &[]);
            world.until("disk", "Succeeded", DONE).await;
            check_clean(&world, namespace, &case);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn token_of_one_restored_pvc_is_invalid_on_another() {
    let rights = Rights::new();
    let first = wanted(&rights, "images", Some("1Gi"));
    let mut world = rights.controllers(first, &[]);
    world.driver_clones = false;
    rounds(&mut world, 3).await;
    let (_, made) = restored(&world).unwrap();
    let mark = made["metadata"]["annotations"][state::EXTENDED_CLONE_TOKEN].as_str().unwrap();
    // A DataVolume of the same name, later.
    let fake = wanted(&rights, "images", Some("1Gi"));
    fake.change("datavolumes/vms/disk", |volume| volume["metadata"]["uid"] = "later".into());
    let (_, squatter) = squat(&fake, "images", Forged::All, Some(mark));
    let mut world = rights.controllers(fake, &[]);
    for _ in 0..4 {
        world.work().await;
        assert!(!is_mounted(&world, &squatter));
        world.simulate_cluster(DONE);
    }
    assert!(reasons(&world).contains(&"ErrResourceExists".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn no_pvc_is_restored_without_a_valid_clone_token() {
    let rights = Rights::new();
    for token in [
        None,
        Some(rights.token(OriginKind::Claim, "images", "disk")),
        Some(rights.token(OriginKind::Snapshot, "images", "other")),
        Some(rights.token(OriginKind::Snapshot, "secret", "disk")),
    ] {
        let fake = cluster("snapshot", "images", false);
        put_snapshot(&fake);
        let golden = json!({ "snapshot": { "namespace": "images", "name": "golden" } });
        volume(&fake, block(golden, Some("1Gi")), token);
        let mut world = rights.controllers(fake, &[]);
        rounds(&mut world, 4).await;
        assert_eq!(places(&world, "persistentvolumeclaims").len(), 1);
        check_nothing_left(&world, "no right");
        assert!(world.status("disk")["conditions"].to_string().contains("invalid token"));
    }
}

#[tokio::test(start_paused = true)]
async fn annotations_of_the_target_do_not_redirect_the_restored_pvc() {
    let rights = Rights::new();
    type Annotations = fn(&str, &str) -> Value;
    let table: [(&str, Annotations); 5] = [
        (
            "another namespace",
            |name, _| json!({ request::CLONE_REQUEST: format!("secret/{name}") }),
        ),
        ("another snapshot", |_, _| json!({ state::CLONE_SOURCE_SNAPSHOT: "other" })),
        ("another claim", |_, _| json!({ request::CLONE_REQUEST: "images/golden" })),
        (
            "another claim, as it is",
            |_, _| json!({ request::CLONE_REQUEST: "images/golden", state::CLONE_SOURCE_SNAPSHOT: null }),
        ),
        (
            "restored PVC of another DataVolume",
            |_, other| json!({ request::CLONE_REQUEST: format!("images/{other}") }),
        ),
    ];
    for (case, annotations_for) in table {
        let fake = wanted(&rights, "images", Some("1Gi"));
        put_snapshot_in(&fake, "secret");
        let mut snapshot = fake.get("volumesnapshots", "images", "golden").unwrap();
        snapshot["metadata"]["name"] = "other".into();
        snapshot["metadata"]["uid"] = Value::Null;
        fake.put("volumesnapshots", snapshot);
        let uid = fake.get("datavolumes", "vms", "disk").unwrap()["metadata"]["uid"].clone();
        let name = format!("{}-host-assisted-source-pvc", uid.as_str().unwrap());
        // Restored for another DataVolume. Its token does not matter, as it is of another UID.
        let other = "other-uid-host-assisted-source-pvc";
        let of = json!({
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "golden",
        });
        fake.put(
            "persistentvolumeclaims",
            json!({
                "metadata": {
                    "name": other, "namespace": "images", "labels": { labels::OWNED_BY_UID: "other-uid" },
                },
                "spec": { "dataSource": of, "storageClassName": "fast", "volumeMode": "Block" },
                "status": { "phase": "Bound" },
            }),
        );
        let mut world = rights.controllers(fake, &[]);
        world.work().await;
        for _ in 0..6 {
            world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
                let all = claim["metadata"]["annotations"].as_object_mut().unwrap();
                for (key, value) in annotations_for(&name, other).as_object().unwrap() {
                    match value {
                        Value::Null => all.remove(key),
                        value => all.insert(key.clone(), value.clone()),
                    };
                }
                all.insert(state::CLONE_PHASE.into(), "HostClone".into());
            });
            world.simulate_cluster(DONE);
            world.work().await;
            for place in places(&world, "persistentvolumeclaims") {
                let is_known = place.ends_with("/disk")
                    || place.ends_with("/golden")
                    || place.ends_with(other);
                assert!(is_known, "{case}: {place}");
            }
            assert!(!places(&world, "pods").iter().any(|place| !place.starts_with("pods/vms/")));
        }
        assert!(world.fake.get("persistentvolumeclaims", "images", other).is_some(), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn replaced_data_volume_leaves_no_restored_pvc() {
    let rights = Rights::new();
    let fake = wanted(&rights, "images", Some("1Gi"));
    let mut world = rights.controllers(fake, &[]);
    world.driver_clones = false;
    rounds(&mut world, 3).await;
    assert!(restored(&world).is_some());
    // It is deleted, and another one of its name is created before a controller sees it.
    world.fake.delete("persistentvolumeclaims/vms/disk");
    world.fake.delete("datavolumes/vms/disk");
    world.fake.put(
        "datavolumes",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": "disk", "namespace": "vms", "uid": "new" },
            "spec": block(json!({ "blank": {} }), Some("1Gi")),
        }),
    );
    let mut world = rights.controllers(world.fake, &[]);
    rounds(&mut world, 4).await;
    assert!(restored(&world).is_none());
}
