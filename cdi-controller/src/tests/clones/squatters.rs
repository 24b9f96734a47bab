//! What somebody tries who knows the name of the claim that a snapshot is going to become, or writes on the target.

use api::annotations::request;
use api::labels;
use serde_json::{Value, json};

use super::snapshots::{restored, wanted};
use super::*;

/// A claim of the name that the controller is going to use, before it does. `forged`: with everything that others can see.
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

/// Whether any pod has the claim.
fn is_mounted(world: &World, claim: &Value) -> bool {
    let state = world.fake.0.lock().unwrap();
    let mut pods = state.objects.iter().filter(|(place, _)| place.starts_with("pods/"));
    pods.any(|(_, pod)| {
        let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        pod["metadata"]["namespace"] == claim["metadata"]["namespace"]
            && volumes.any(|v| v["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"])
    })
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_somebody_put_in_the_way_is_neither_read_nor_touched() {
    let rights = Rights::new();
    // Tokens that others can get: the webhook's, and what is written on the DataVolume.
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
                world.others(DONE);
            }
            let (_, now) = restored(&world).unwrap();
            for part in ["uid", "labels", "annotations", "finalizers", "deletionTimestamp"] {
                assert_eq!(now["metadata"][part], squatter["metadata"][part], "{case}: {part}");
            }
            assert_eq!(
                now["spec"]["resources"], squatter["spec"]["resources"],
                "{case}: nobody has changed it"
            );
            let told = reasons(&world);
            assert!(told.contains(&"ErrResourceExists".to_owned()), "{case}: {told:?}");
            let conditions = world.status("disk")["conditions"].to_string();
            assert!(conditions.contains("is not the one that was made"), "{case}: {conditions}");
            assert_eq!(world.status("disk")["phase"], "CloneScheduled", "{case}");

            // Who gives up leaves it where it is; who waits gets what was asked for.
            let mut given_up = rights.controllers(world.fake.copied(), &[]);
            given_up.fake.delete("datavolumes/vms/disk");
            for _ in 0..6 {
                given_up.fake.collect_garbage();
                given_up.work().await;
                given_up.others(DONE);
            }
            assert!(restored(&given_up).is_some(), "{case}");
            check_nothing_left(&given_up, &case);
            world.fake.delete(&place);
            // Another process, as nobody waits here for the next look.
            let mut world = rights.controllers(world.fake, &[]);
            world.until("disk", "Succeeded", DONE).await;
            check_clean(&world, namespace, &case);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_one_claim_is_worth_nothing_on_another() {
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
        world.others(DONE);
    }
    assert!(reasons(&world).contains(&"ErrResourceExists".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_where_a_data_volume_has_no_right() {
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
async fn whoever_writes_on_the_target_gets_no_claim_made_or_read_elsewhere() {
    let rights = Rights::new();
    type Order = fn(&str, &str) -> Value;
    let table: [(&str, Order); 5] = [
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
            "somebody else's claim of the snapshot",
            |_, other| json!({ request::CLONE_REQUEST: format!("images/{other}") }),
        ),
    ];
    for (case, order) in table {
        let fake = wanted(&rights, "images", Some("1Gi"));
        put_snapshot_in(&fake, "secret");
        let mut snapshot = fake.get("volumesnapshots", "images", "golden").unwrap();
        snapshot["metadata"]["name"] = "other".into();
        snapshot["metadata"]["uid"] = Value::Null;
        fake.put("volumesnapshots", snapshot);
        let uid = fake.get("datavolumes", "vms", "disk").unwrap()["metadata"]["uid"].clone();
        let name = format!("{}-host-assisted-source-pvc", uid.as_str().unwrap());
        // As it was made for another DataVolume: whose mark it has does not matter, as it is of another UID.
        let other = "somebody-host-assisted-source-pvc";
        let of = json!({
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "golden",
        });
        fake.put(
            "persistentvolumeclaims",
            json!({
                "metadata": {
                    "name": other, "namespace": "images", "labels": { labels::OWNED_BY_UID: "somebody" },
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
                for (key, value) in order(&name, other).as_object().unwrap() {
                    match value {
                        Value::Null => all.remove(key),
                        value => all.insert(key.clone(), value.clone()),
                    };
                }
                all.insert(state::CLONE_PHASE.into(), "HostClone".into());
            });
            world.others(DONE);
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
async fn a_data_volume_that_was_made_to_vanish_leaves_no_claim_elsewhere() {
    let rights = Rights::new();
    let fake = wanted(&rights, "images", Some("1Gi"));
    let mut world = rights.controllers(fake, &[]);
    world.driver_clones = false;
    rounds(&mut world, 3).await;
    assert!(restored(&world).is_some());
    // It is gone with everything on it, and there is another one of its name before anybody looks.
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
