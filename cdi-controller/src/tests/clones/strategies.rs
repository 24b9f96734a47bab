//! Clones by every strategy, from the own namespace and from another one.

use api::annotations::{request, state};
use controller_core::clone::OriginKind;
use serde_json::{Value, json};

use super::super::{places, reasons};
use super::{
    DONE, Rights, block, check_clean, claim_of_a_source, cluster, of_claim, phases, put_snapshot,
    rounds, volume,
};

#[tokio::test(start_paused = true)]
async fn every_clone_strategy_succeeds_and_leaves_no_temporary_objects() {
    let rights = Rights::new();
    for (strategy, has_large_node, expected) in [
        ("csi-clone", true, "CSICloneInProgress"),
        ("snapshot", true, "SnapshotForSmartCloneInProgress"),
        ("copy", true, "CloneInProgress"),
        ("copy", false, "CloneInProgress"),
    ] {
        for namespace in ["vms", "images"] {
            let case = format!("{strategy} from {namespace}, on one node: {has_large_node}");
            let fake = cluster(strategy, namespace, true);
            rights.clone_of_claim(&fake, namespace);
            let mut world = rights.controllers(fake, &[]);
            world.has_large_node = has_large_node;
            let phases = phases(&mut world).await;
            assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{case}: {phases:?}");
            let event_reasons = reasons(&world);
            assert!(
                event_reasons.iter().any(|reason| reason == expected),
                "{case}: {event_reasons:?}"
            );
            let volume = world.fake.get("datavolumes", "vms", "disk").unwrap();
            assert_eq!(volume["metadata"]["annotations"][state::CLONE_TYPE], strategy, "{case}");
            let label =
                &volume["metadata"]["labels"]["instancetype.kubevirt.io/default-preference"];
            assert_eq!(label, "fedora", "{case}");
            assert_eq!(world.status("disk")["progress"], "100.0%", "{case}");
            check_clean(&world, namespace, &case);
            assert!(
                event_reasons.contains(&"CloneSucceeded".to_owned()),
                "{case}: {event_reasons:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_restored_directly_and_through_a_data_source() {
    let rights = Rights::new();
    for through in [false, true] {
        let fake = cluster("snapshot", "images", true);
        put_snapshot(&fake);
        let golden = json!({ "snapshot": { "namespace": "images", "name": "golden" } });
        let mut spec = block(golden.clone(), None);
        if through {
            spec["source"] = Value::Null;
            spec["sourceRef"] =
                json!({ "kind": "DataSource", "name": "fedora", "namespace": "images" });
        }
        volume(&fake, spec, Some(rights.token(OriginKind::Snapshot, "images", "disk")));
        let mut world = rights.controllers(fake, &[]);
        if through {
            world.work().await;
            assert_eq!(places(&world, "persistentvolumeclaims").len(), 1);
            assert!(reasons(&world).contains(&"CloneWithoutSource".to_owned()));
            world.fake.put(
                "datasources",
                json!({
                    "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
                    "metadata": { "name": "fedora", "namespace": "images" },
                    "spec": { "source": golden },
                }),
            );
        }
        let phases = phases(&mut world).await;
        assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{phases:?}");
        check_clean(&world, "images", "snapshot");
        let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1Gi", "its own size");
    }
}

#[tokio::test(start_paused = true)]
async fn instancetype_label_comes_from_the_source_or_the_data_source() {
    const KEY: &str = "instancetype.kubevirt.io/default-preference";
    let rights = Rights::new();
    for (of_source, names_namespace, expected) in [
        (json!({ KEY: "fedora" }), true, json!("fedora")),
        (json!({ "other": "x" }), true, json!("of-data-source")),
        (json!({ "other": "x" }), false, json!(null)),
    ] {
        let fake = cluster("csi-clone", "vms", true);
        let case = format!("{of_source} {names_namespace}");
        fake.change("persistentvolumeclaims/vms/golden", |claim| {
            claim["metadata"]["labels"] = of_source;
        });
        fake.put(
            "datasources",
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
                "metadata": { "name": "fedora", "namespace": "vms", "labels": { KEY: "of-data-source" } },
                "spec": { "source": { "pvc": { "namespace": "vms", "name": "golden" } } },
            }),
        );
        let mut spec = block(json!(null), Some("1Gi"));
        spec["sourceRef"] = json!({
            "kind": "DataSource", "name": "fedora", "namespace": names_namespace.then_some("vms"),
        });
        volume(&fake, spec, None);
        let mut world = rights.controllers(fake, &[]);
        let phases = phases(&mut world).await;
        assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{case}: {phases:?}");
        for plural in ["datavolumes", "persistentvolumeclaims"] {
            let object = world.fake.get(plural, "vms", "disk").unwrap();
            assert_eq!(object["metadata"]["labels"][KEY], expected, "{case} {plural}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clone_has_the_size_of_its_source_or_the_requested_size() {
    let rights = Rights::new();
    for (size, expected) in [(None, Some("1Gi")), (Some("2Gi"), Some("2Gi")), (Some("512Mi"), None)]
    {
        let fake = cluster("csi-clone", "vms", true);
        volume(
            &fake,
            block(json!({ "pvc": { "namespace": "vms", "name": "golden" } }), size),
            None,
        );
        let mut world = rights.controllers(fake, &[]);
        let phases = phases(&mut world).await;
        let claim = world.fake.get("persistentvolumeclaims", "vms", "disk");
        match expected {
            Some(size) => {
                assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{phases:?}");
                let claim = claim.unwrap();
                assert_eq!(claim["spec"]["resources"]["requests"]["storage"], size);
                check_clean(&world, "vms", size);
            }
            None => {
                assert!(claim.is_none());
                let event_reasons = reasons(&world);
                assert!(
                    event_reasons.contains(&"CloneValidationFailed".to_owned()),
                    "{event_reasons:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clones_over_the_limit_are_reported_as_queued() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "vms", true);
    for name in ["a", "b", "c"] {
        fake.put(
            "datavolumes",
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                "metadata": { "name": name, "namespace": "vms" }, "spec": of_claim("vms"),
            }),
        );
    }
    let mut world = rights.controllers(fake, &["-clones-max=1"]);
    let mut were_queued = false;
    for _ in 0..30 {
        world.work().await;
        let claims = world.fake.0.lock().unwrap().objects.clone();
        let active = claims.iter().filter(|(place, claim)| {
            place.contains("/tmp-pvc-")
                && claim["status"]["phase"] != "Bound"
                && claim["status"]["phase"] != "Lost"
        });
        assert!(active.count() <= 1);
        for name in ["a", "b", "c"] {
            let conditions = world.status(name)["conditions"].clone();
            let mut all = conditions.as_array().into_iter().flatten();
            were_queued |= all.any(|condition| condition["reason"] == "Queued");
        }
        world.simulate_cluster(DONE);
    }
    assert!(were_queued);
    for name in ["a", "b", "c"] {
        assert_eq!(world.status(name)["phase"], "Succeeded", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_copy_to_the_target_pvc_without_a_csi_driver() {
    let rights = Rights::new();
    for namespace in ["vms", "images"] {
        let fake = cluster("snapshot", namespace, false);
        rights.clone_of_claim(&fake, namespace);
        let mut world = rights.controllers(fake, &[]);
        let phases = phases(&mut world).await;
        assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{phases:?}");
        let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
        let annotations = &claim["metadata"]["annotations"];
        assert_eq!(annotations[request::CLONE_REQUEST], format!("{namespace}/golden"));
        assert_eq!(annotations[state::CLONE_OF], "true");
        assert_eq!(annotations[state::CLONE_TYPE], "copy");
        assert!(reasons(&world).contains(&"NoPopulator".to_owned()), "{:?}", reasons(&world));
        check_clean(&world, namespace, namespace);
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_another_driver_is_restored_and_copied() {
    let rights = Rights::new();
    let fake = cluster("snapshot", "images", true);
    put_snapshot(&fake);
    fake.put(
        "volumesnapshotcontents",
        json!({ "metadata": { "name": "content" }, "spec": { "driver": "other.example" } }),
    );
    fake.put(
        "storageclasses",
        json!({ "metadata": { "name": "other" }, "provisioner": "other.example" }),
    );
    let golden = json!({ "snapshot": { "namespace": "images", "name": "golden" } });
    volume(
        &fake,
        block(golden, Some("1Gi")),
        Some(rights.token(OriginKind::Snapshot, "images", "disk")),
    );
    let mut world = rights.controllers(fake, &[]);
    let phases = phases(&mut world).await;
    assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{phases:?}");
    let event_reasons = reasons(&world);
    for reason in ["NoProvisionerMatch", "CloneFromSnapshotSourceInProgress", "CloneInProgress"] {
        assert!(event_reasons.iter().any(|found| found == reason), "{reason}: {event_reasons:?}");
    }
    check_clean(&world, "images", "another driver");
}

#[tokio::test(start_paused = true)]
async fn pvc_that_names_a_clone_source_needs_no_data_volume() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "vms", true);
    claim_of_a_source(&fake, "vms", "disk", json!({}));
    let mut world = rights.controllers(fake, &[]);
    rounds(&mut world, 10).await;
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound");
    let annotations = &claim["metadata"]["annotations"];
    assert_eq!(annotations[state::CLONE_PHASE], "Succeeded");
    assert_eq!(annotations[state::POPULATOR_PROGRESS], "100.0%");
    assert!(annotations[state::RUNNING].is_null(), "it was not requested");
    assert_eq!(places(&world, "persistentvolumeclaims").len(), 2);
    assert_eq!(places(&world, "volumeclonesources").len(), 1, "it belongs to the user");
}
