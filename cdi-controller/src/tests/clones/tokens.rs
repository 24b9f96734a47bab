//! Which token of a DataVolume is valid, and what is disclosed of a source without a valid one.

use auth::token::ISSUER_CONTROLLER;

use super::*;

const LABEL: &str = "instancetype.kubevirt.io/default-preference";

fn claims(world: &TestCluster) -> Vec<String> {
    places(world, "persistentvolumeclaims")
}

/// Another user of the namespace creates a DataVolume with the name and the token of an authorized one.
#[tokio::test(start_paused = true)]
async fn token_of_another_data_volume_with_the_same_name_is_invalid() {
    let rights = Rights::new();
    let of = |uid: Option<&str>| {
        rights.signed(OriginKind::Claim, "images", ("disk", uid), ISSUER_CONTROLLER)
    };
    for (case, token, uid, is_cloned) in [
        ("its own", of(Some("mine")), "mine", true),
        ("of the one before", of(Some("before")), "mine", false),
        // As controllers of upstream CDI have signed for DataVolumes.
        ("without a UID", of(None), "mine", false),
        ("of an empty UID", of(Some("")), "mine", false),
    ] {
        let fake = cluster("csi-clone", "images", true);
        volume(&fake, of_claim("images"), None);
        fake.change("datavolumes/vms/disk", |volume| {
            volume["metadata"]["uid"] = uid.into();
            volume["metadata"]["annotations"] = json!({ state::EXTENDED_CLONE_TOKEN: token });
        });
        let mut world = rights.controllers(fake, &[]);
        rounds(&mut world, 20).await;
        let is_done = world.status("disk")["phase"] == "Succeeded";
        assert_eq!(is_done, is_cloned, "{case}: {:?}", reasons(&world));
        if !is_cloned {
            assert_eq!(claims(&world), ["persistentvolumeclaims/images/golden"], "{case}");
            assert!(reasons(&world).contains(&"CloneValidationFailed".to_owned()), "{case}");
        }
        if case == "without a UID" {
            let state = world.fake.0.lock().unwrap();
            let is_explained = state
                .events
                .iter()
                .any(|event| event["message"].to_string().contains("create it again"));
            assert!(is_explained, "{:?}", state.events);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn restored_data_volume_uses_its_new_token() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "images", true);
    rights.clone_of_claim(&fake, "images");
    let old =
        rights.signed(OriginKind::Claim, "images", ("disk", Some("before")), ISSUER_CONTROLLER);
    fake.change("datavolumes/vms/disk", |volume| {
        volume["metadata"]["annotations"][state::EXTENDED_CLONE_TOKEN] = old.as_str().into();
    });
    let mut world = rights.controllers(fake, &[]);
    rounds(&mut world, 20).await;
    assert_eq!(world.status("disk")["phase"], "Succeeded", "{:?}", reasons(&world));
    let volume = world.fake.get("datavolumes", "vms", "disk").unwrap();
    assert_ne!(volume["metadata"]["annotations"][state::EXTENDED_CLONE_TOKEN], old.as_str());
}

/// The DataVolume of a user without permission to clone the source, if the webhook did not reject it.
#[tokio::test(start_paused = true)]
async fn labels_of_a_foreign_source_require_a_clone_token() {
    let rights = Rights::new();
    let by_reference = json!({
        "sourceRef": { "kind": "DataSource", "name": "fedora", "namespace": "images" },
        "storage": { "storageClassName": "fast" },
    });
    for spec in [of_claim("images"), by_reference] {
        for (has_right, expected) in [(false, json!(null)), (true, json!("fedora"))] {
            for of_source in [true, false] {
                let fake = cluster("csi-clone", "images", true);
                let labels = json!({ LABEL: "fedora" });
                if !of_source {
                    fake.change("persistentvolumeclaims/images/golden", |claim| {
                        claim["metadata"]["labels"] = json!({ "other": "x" });
                    });
                }
                fake.put(
                    "datasources",
                    json!({
                        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
                        "metadata": { "name": "fedora", "namespace": "images", "labels": labels },
                        "spec": { "source": { "pvc": { "namespace": "images", "name": "golden" } } },
                    }),
                );
                let token = has_right.then(|| rights.token(OriginKind::Claim, "images", "disk"));
                volume(&fake, spec.clone(), token);
                let mut world = rights.controllers(fake, &[]);
                rounds(&mut world, 4).await;
                let found = world.fake.get("datavolumes", "vms", "disk").unwrap();
                let is_through = spec["sourceRef"].is_object();
                let expected = if of_source || is_through { &expected } else { &json!(null) };
                let case = format!("{has_right} {of_source} {spec}");
                assert_eq!(&found["metadata"]["labels"][LABEL], expected, "{case}");
            }
        }
    }
}

/// A DataSource of another namespace may refer to a PVC of the own one. Access to the PVC gives none to the DataSource.
#[tokio::test(start_paused = true)]
async fn labels_of_a_foreign_data_source_are_not_copied() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "vms", true);
    fake.change("persistentvolumeclaims/vms/golden", |claim| {
        claim["metadata"]["labels"] = json!({ "other": "x" });
    });
    fake.put(
        "datasources",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": "theirs", "namespace": "images", "labels": { LABEL: "secret" } },
            "spec": { "source": { "pvc": { "namespace": "vms", "name": "golden" } } },
        }),
    );
    let spec = json!({
        "sourceRef": { "kind": "DataSource", "name": "theirs", "namespace": "images" },
        "storage": { "storageClassName": "fast" },
    });
    volume(&fake, spec, None);
    let mut world = rights.controllers(fake, &[]);
    rounds(&mut world, 4).await;
    let found = world.fake.get("datavolumes", "vms", "disk").unwrap();
    assert!(found["metadata"]["labels"][LABEL].is_null(), "{found}");
}

/// A PVC that names the VolumeCloneSource of another namespace.
#[tokio::test(start_paused = true)]
async fn foreign_volume_clone_source_is_not_disclosed_without_permission() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "images", true);
    fake.put(
        "volumeclonesources",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeCloneSource",
            "metadata": { "name": "theirs", "namespace": "images" },
            "spec": { "source": { "kind": "PersistentVolumeClaim", "name": "golden" } },
        }),
    );
    fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": {
                "name": "disk", "namespace": "vms",
                "annotations": { state::DATA_SOURCE_NAMESPACE: "images" },
            },
            "spec": {
                "storageClassName": "fast", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
                "dataSourceRef": {
                    "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "theirs",
                },
            },
            "status": { "phase": "Pending" },
        }),
    );
    let mut world = rights.controllers(fake, &[]);
    rounds(&mut world, 4).await;
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    let why = claim["metadata"]["annotations"][state::CLONE_ERROR].as_str().unwrap().to_owned();
    assert!(why.contains("VolumeCloneSource images/theirs may not be cloned"), "{why}");
    assert!(!claim.to_string().contains("golden"), "{claim}");
    let state = world.fake.0.lock().unwrap();
    assert!(!state.events.iter().any(|event| event.to_string().contains("golden")));
}

/// The owner of a PVC annotates it with another source snapshot.
#[tokio::test(start_paused = true)]
async fn snapshot_without_a_token_is_not_disclosed() {
    let rights = Rights::new();
    let mut messages = Vec::new();
    for is_there in [false, true] {
        let fake = cluster("copy", "images", false);
        put_snapshot(&fake);
        if is_there {
            fake.put(
                "volumesnapshots",
                json!({
                    "metadata": { "name": "secret", "namespace": "images" }, "spec": { "source": {} },
                    "status": { "readyToUse": false, "error": { "message": "LUN 7 is lost" } },
                }),
            );
        }
        let spec =
            block(json!({ "snapshot": { "namespace": "images", "name": "golden" } }), Some("1Gi"));
        volume(&fake, spec, Some(rights.token(OriginKind::Snapshot, "images", "disk")));
        let mut world = rights.controllers(fake, &[]);
        world.work().await;
        world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
            claim["metadata"]["annotations"][state::CLONE_SOURCE_SNAPSHOT] = "secret".into();
        });
        rounds(&mut world, 6).await;
        assert!(
            places(&world, "persistentvolumeclaims").iter().all(|place| !place.contains("source"))
        );
        let status = world.status("disk")["conditions"].to_string();
        assert!(!status.contains("LUN"), "{status}");
        let state = world.fake.0.lock().unwrap();
        let mut events: Vec<_> =
            state.events.iter().map(|event| event["message"].to_string()).collect();
        events.sort();
        events.dedup();
        assert!(events.iter().any(|message| message.contains("invalid token")), "{events:?}");
        messages.push(events);
    }
    assert_eq!(messages[0], messages[1], "whether the snapshot exists or not");
}
