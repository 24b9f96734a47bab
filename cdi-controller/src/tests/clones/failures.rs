//! Clones with failed requests, early deletion, a driver that does not clone, or no permission.

use api::annotations::{request, state};
use serde_json::{Value, json};

use super::super::world::TestCluster;
use super::super::{places, reasons};
use super::{
    DONE, Rights, check_clean, check_nothing_left, claim_of_a_source, cluster, of_claim, phases,
    rounds, volume,
};
use controller_core::clone::OriginKind;

#[tokio::test(start_paused = true)]
async fn clone_succeeds_whichever_request_fails() {
    let rights = &Rights::new();
    let strategies = [
        ("csi-clone", "vms", true),
        ("snapshot", "images", true),
        ("copy", "images", true),
        ("copy", "vms", false),
    ];
    for (index, (strategy, namespace, has_large_node)) in strategies.into_iter().enumerate() {
        let run = |refuses: Option<usize>, loses: Option<usize>| async move {
            println!(
                "{strategy} of {namespace}: request {refuses:?} refused, response {loses:?} lost"
            );
            let fake = cluster(strategy, namespace, true);
            {
                let mut state = fake.0.lock().unwrap();
                state.refuses = refuses;
                state.loses_response = loses;
            }
            rights.clone_of_claim(&fake, namespace);
            let mut world = rights.controllers(fake, &[]);
            world.has_large_node = has_large_node;
            world.until("disk", "Succeeded", DONE).await;
            check_clean(&world, namespace, strategy);
            world.fake.0.lock().unwrap().requests
        };
        let requests = run(None, None).await;
        assert!(requests > 15, "{requests}");
        // Each request is refused with some strategies, and executed without a response with the others.
        for number in 1..=requests {
            if number % 2 == index % 2 {
                run(Some(number), None).await
            } else {
                run(None, Some(number)).await
            };
        }
    }
}

/// The upload server has received all and its pod is lost before the controller has seen its end. Found by `soak chaos`: the
/// pod that replaced it waited for a copy that had ended.
#[tokio::test(start_paused = true)]
async fn copy_is_repeated_if_its_upload_server_is_lost_at_its_end() {
    let rights = Rights::new();
    for has_driver in [true, false] {
        let fake = cluster("copy", "images", has_driver);
        rights.clone_of_claim(&fake, "images");
        let mut world = rights.controllers(fake, &[]);
        world.has_large_node = false;
        let place = |world: &TestCluster, is_reader: bool| {
            places(world, "pods")
                .into_iter()
                .find(|place| place.ends_with("-source-pod") == is_reader)
        };
        let pod = |world: &TestCluster, place: &str| {
            let parts: Vec<_> = place.splitn(3, '/').collect();
            world.fake.get("pods", parts[1], parts[2])
        };
        let mut reader = None;
        for _ in 0..30 {
            if reader.is_some() {
                break;
            }
            world.work().await;
            world.simulate_cluster(DONE);
            let server = place(&world, false);
            let has_ended = |pod: Value| {
                pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
            };
            let server = server.filter(|server| pod(&world, server).is_some_and(has_ended));
            if let Some(server) = server {
                world.fake.delete(&server);
                reader = place(&world, true);
            }
        }
        let reader = reader.expect("no upload server ended");
        let uid =
            |world: &TestCluster| pod(world, &reader).map(|pod| pod["metadata"]["uid"].clone());
        let first = uid(&world);
        let mut was_repeated = false;
        for _ in 0..30 {
            world.work().await;
            was_repeated |= uid(&world).is_some_and(|uid| Some(uid) != first);
            world.simulate_cluster(DONE);
        }
        assert!(was_repeated, "with a driver: {has_driver}: no second pod has read the source");
        assert_eq!(world.status("disk")["phase"], "Succeeded", "with a driver: {has_driver}");
        check_clean(&world, "images", "copy");
    }
}

#[tokio::test(start_paused = true)]
async fn clone_deleted_at_any_step_leaves_no_objects() {
    let rights = Rights::new();
    for (strategy, namespace) in [("csi-clone", "vms"), ("snapshot", "images"), ("copy", "images")]
    {
        for rounds in 0..12 {
            let fake = cluster(strategy, namespace, true);
            rights.clone_of_claim(&fake, namespace);
            let mut world = rights.controllers(fake, &[]);
            for _ in 0..rounds {
                world.work().await;
                world.simulate_cluster(DONE);
            }
            world.fake.delete("datavolumes/vms/disk");
            // Another process takes over at the worst moment.
            let mut world = rights.controllers(world.fake, &[]);
            for _ in 0..12 {
                world.fake.collect_garbage();
                world.work().await;
                world.simulate_cluster(DONE);
            }
            let case = format!("{strategy} after {rounds} rounds");
            assert_eq!(places(&world, "datavolumes"), [""; 0], "{case}");
            let claims = places(&world, "persistentvolumeclaims");
            assert_eq!(claims, [format!("persistentvolumeclaims/{namespace}/golden")], "{case}");
            check_nothing_left(&world, &case);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clone_falls_back_to_a_copy_if_the_driver_does_not_clone() {
    let rights = Rights::new();
    for strategy in ["csi-clone", "snapshot"] {
        let fake = cluster(strategy, "vms", true);
        rights.clone_of_claim(&fake, "vms");
        let mut world = rights.controllers(fake, &[]);
        world.driver_clones = false;
        rounds(&mut world, 4).await;
        let helpers: Vec<_> = places(&world, "persistentvolumeclaims")
            .into_iter()
            .filter(|place| place.contains("/tmp-pvc-"))
            .collect();
        assert_eq!(helpers.len(), 1, "{strategy}");
        world.fake.change(&helpers[0], |claim| {
            claim["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
        });
        let phases = phases(&mut world).await;
        assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{phases:?}");
        assert!(reasons(&world).contains(&"CloneTimedOut".to_owned()), "{:?}", reasons(&world));
        let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
        let annotations = &claim["metadata"]["annotations"];
        assert_eq!(annotations[state::CLONE_TYPE], "copy");
        let why = annotations[state::CLONE_FALLBACK_REASON].as_str().unwrap();
        assert!(why.starts_with("The storage driver did not clone within"), "{why}");
        check_clean(&world, "vms", strategy);
    }
}

#[tokio::test(start_paused = true)]
async fn clone_without_a_valid_token_is_refused() {
    let rights = Rights::new();
    for token in [
        None,
        Some("no token".to_owned()),
        Some(rights.token(OriginKind::Claim, "images", "other")),
        Some(rights.token(OriginKind::Snapshot, "images", "disk")),
        Some(rights.token(OriginKind::Claim, "secret", "disk")),
    ] {
        let fake = cluster("copy", "images", true);
        volume(&fake, of_claim("images"), token);
        let mut world = rights.controllers(fake, &[]);
        rounds(&mut world, 4).await;
        assert_eq!(places(&world, "persistentvolumeclaims").len(), 1);
        check_nothing_left(&world, "no right");
        let conditions = world.status("disk")["conditions"].clone();
        let bound = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Bound").unwrap();
        assert_eq!(bound["reason"], "CloneValidationFailed");
        assert!(bound["message"].as_str().unwrap().contains("invalid token"), "{bound}");
    }
}

#[tokio::test(start_paused = true)]
async fn disk_can_be_cloned_to_a_block_volume_and_an_archive_cannot() {
    for (content, is_done) in [("kubevirt", true), ("archive", false)] {
        let rights = Rights::new();
        let fake = cluster("csi-clone", "vms", true);
        fake.change("persistentvolumeclaims/vms/golden", |claim| {
            claim["spec"]["volumeMode"] = "Filesystem".into();
            claim["metadata"]["annotations"] = json!({ request::CONTENT_TYPE: content });
        });
        let mut spec = of_claim("vms");
        spec["contentType"] = content.into();
        let storage = spec.as_object_mut().unwrap().remove("storage").unwrap();
        spec["pvc"] = storage;
        volume(&fake, spec, None);
        let mut world = rights.controllers(fake, &[]);
        let phases = phases(&mut world).await;
        if is_done {
            assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{phases:?}");
            continue;
        }
        let claims = places(&world, "persistentvolumeclaims");
        assert_eq!(claims, ["persistentvolumeclaims/vms/golden"]);
        check_nothing_left(&world, content);
        let conditions = world.status("disk")["conditions"].clone();
        let bound = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Bound").unwrap();
        assert_eq!(bound["reason"], "CloneValidationFailed");
        assert!(bound["message"].as_str().unwrap().contains("volumeMode"), "{bound}");
    }
}

#[tokio::test(start_paused = true)]
async fn pvc_reports_that_an_archive_cannot_be_cloned_to_a_block_volume() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "vms", true);
    fake.change("persistentvolumeclaims/vms/golden", |claim| {
        claim["spec"]["volumeMode"] = "Filesystem".into();
        claim["metadata"]["annotations"] = json!({ request::CONTENT_TYPE: "archive" });
    });
    let archive = json!({ request::CONTENT_TYPE: "archive" });
    claim_of_a_source(&fake, "vms", "files", archive);
    let mut world = rights.controllers(fake, &[]);
    rounds(&mut world, 4).await;
    let claim = world.fake.get("persistentvolumeclaims", "vms", "files").unwrap();
    let error = claim["metadata"]["annotations"][state::CLONE_ERROR].as_str().unwrap_or_default();
    assert!(error.contains("volumeMode do not match"), "{claim}");
    assert_eq!(places(&world, "persistentvolumeclaims").len(), 2, "no object was created for it");
    assert!(reasons(&world).contains(&"ErrIncompatiblePVC".to_owned()), "{:?}", reasons(&world));
}

#[tokio::test(start_paused = true)]
async fn pvc_with_a_forged_source_namespace_is_refused() {
    let rights = Rights::new();
    // A client that calls the webhook directly gets such a token for any volume.
    let called_for = rights.token(OriginKind::Claim, "images", "disk");
    for annotations in [
        json!({ state::DATA_SOURCE_NAMESPACE: "images" }),
        json!({ state::DATA_SOURCE_NAMESPACE: "images", request::CLONE_TOKEN: called_for }),
        json!({ state::DATA_SOURCE_NAMESPACE: "images", state::EXTENDED_CLONE_TOKEN: called_for }),
    ] {
        gets_nothing(&rights, annotations).await;
    }
}

async fn gets_nothing(rights: &Rights, annotations: Value) {
    let fake = cluster("csi-clone", "images", true);
    claim_of_a_source(&fake, "images", "disk", annotations);
    let mut world = rights.controllers(fake, &[]);
    rounds(&mut world, 4).await;
    assert_eq!(places(&world, "persistentvolumeclaims").len(), 2);
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["metadata"]["annotations"][state::CLONE_PHASE], "Error");
    let why = claim["metadata"]["annotations"][state::CLONE_ERROR].as_str().unwrap();
    assert!(why.contains("invalid token"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn clone_waits_for_a_source_in_use_and_names_its_user() {
    let rights = Rights::new();
    for (strategy, has_driver) in
        [("csi-clone", true), ("snapshot", true), ("copy", true), ("copy", false)]
    {
        let fake = cluster(strategy, "vms", has_driver);
        fake.put(
            "pods",
            json!({
                "metadata": { "name": "vm", "namespace": "vms" },
                "spec": {
                    "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "golden" } }],
                    "containers": [{ "name": "c", "image": "i", "volumeDevices": [{ "name": "d", "devicePath": "/d" }] }],
                },
                "status": { "phase": "Unknown" },
            }),
        );
        rights.clone_of_claim(&fake, "vms");
        let mut world = rights.controllers(fake, &[]);
        rounds(&mut world, 8).await;
        assert!(reasons(&world).contains(&"CloneSourceInUse".to_owned()), "{strategy}");
        let status = world.status("disk");
        assert_ne!(status["phase"], "Succeeded");
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let running = conditions.find(|condition| condition["type"] == "Running").unwrap();
        let message = running["message"].as_str().unwrap_or_default();
        assert!(message.contains("golden to be free: it is used by vm"), "{strategy}: {running}");
        world.fake.delete("pods/vms/vm");
        let phases = phases(&mut world).await;
        assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{strategy} {phases:?}");
        check_clean(&world, "vms", strategy);
    }
}
