//! Attacks by tenants that may write DataImportCrons, their status, and objects with the names of imports.

use std::time::SystemTime;

use api::annotations::{cron as key, import};
use api::labels;
use auth::token::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::clones::Rights;
use super::golden::{
    PLACE, annotate, create_cron, cron, data_source_target, digest, keep_snapshots, name, ready,
    run_until_stable, set_desired_digest,
};
use super::world::TestCluster;
use super::{DONE, places};
use controller_core::data_import_cron::ProvenImage;

const CLAIM: &str = "persistentvolumeclaims/vms";

/// The controllers with their signing keys.
fn world(rights: &Rights) -> TestCluster {
    rights.controllers(TestCluster::new("Immediate", true).fake, &[])
}

/// Whether an object has a proof that it holds the image of this digest.
fn is_proven(world: &TestCluster, rights: &Rights, plural: &str, digest: &str) -> bool {
    let resource =
        if plural == "volumesnapshots" { Resource::snapshots() } else { Resource::pvcs() };
    let object = world.fake.get(plural, "vms", &name(1)).unwrap();
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
    let cron_uid = cron(world)["metadata"]["uid"].as_str().unwrap().to_owned();
    let image = ProvenImage { cron_uid, digest: digest.to_owned() };
    image.is_proven_by(&rights.verifying_key(), resource, &metadata, SystemTime::now())
}

fn proof(world: &TestCluster, plural: &str) -> Value {
    let object = world.fake.get(plural, "vms", &name(1)).unwrap();
    object["metadata"]["annotations"][import::GOLDEN_IMAGE_PROOF].clone()
}

#[tokio::test(start_paused = true)]
async fn only_the_pvc_that_the_controller_imported_is_proven() {
    let rights = Rights::new();
    let mut world = world(&rights);
    create_cron(&world, json!({}));
    set_desired_digest(&world, 1);
    run_until_stable(&mut world, DONE).await;
    assert!(is_proven(&world, &rights, "persistentvolumeclaims", &digest(1)));
    assert!(!is_proven(&world, &rights, "persistentvolumeclaims", &digest(2)));
    let genuine = proof(&world, "persistentvolumeclaims");

    // A tenant replaces the PVC by another one, with the proof of the first.
    world.fake.delete(&format!("datavolumes/vms/{}", name(1)));
    world.fake.delete(&format!("{CLAIM}/{}", name(1)));
    world.work().await;
    world.fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": {
                "name": name(1), "namespace": "vms", "uid": "forged",
                "annotations": { import::GOLDEN_IMAGE_PROOF: genuine },
            },
            "spec": { "storageClassName": "fast" }, "status": { "phase": "Bound" },
        }),
    );
    assert!(!is_proven(&world, &rights, "persistentvolumeclaims", &digest(1)));
}

#[tokio::test(start_paused = true)]
async fn pvc_that_existed_before_the_import_is_never_proven() {
    let rights = Rights::new();
    for with_volume in [false, true] {
        let mut world = world(&rights);
        create_cron(&world, json!({}));
        if with_volume {
            // A DataVolume of the name of the import, which imports something else.
            world.fake.put(
                "datavolumes",
                json!({
                    "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                    "metadata": {
                        "name": name(1), "namespace": "vms",
                        "labels": { labels::DATA_IMPORT_CRON: "cron" },
                    },
                    "spec": {
                        "source": { "registry": { "url": "docker://evil.example/image" } },
                        "pvc": {
                            "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                            "volumeMode": "Block", "resources": { "requests": { "storage": "1Gi" } },
                        },
                    },
                }),
            );
        } else {
            world.fake.put(
                "persistentvolumeclaims",
                json!({
                    "metadata": {
                        "name": name(1), "namespace": "vms", "labels": { labels::DATA_IMPORT_CRON: "cron" },
                    },
                    "spec": { "storageClassName": "fast" }, "status": { "phase": "Bound" },
                }),
            );
        }
        set_desired_digest(&world, 1);
        run_until_stable(&mut world, DONE).await;
        // It is used as the import, and clones of the DataSource copy it.
        assert_eq!(data_source_target(&world), ready("pvc", 1), "{with_volume}");
        assert!(proof(&world, "persistentvolumeclaims").is_null(), "{with_volume}");
    }
}

#[tokio::test(start_paused = true)]
async fn digest_with_the_same_prefix_is_not_proven() {
    let rights = Rights::new();
    let mut world = world(&rights);
    create_cron(&world, json!({}));
    set_desired_digest(&world, 1);
    world.work().await;
    // The name has twelve digits, the import is of the first digest.
    let other = format!("{}f", &digest(1)[..digest(1).len() - 1]);
    world.fake.change(PLACE, |cron| {
        cron["status"]["currentImports"][0]["Digest"] = other.as_str().into();
        cron["metadata"]["annotations"][key::DESIRED_DIGEST] = other.as_str().into();
    });
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("pvc", 1));
    assert!(!is_proven(&world, &rights, "persistentvolumeclaims", &other));
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_a_proven_image_is_proven_if_the_controller_took_it() {
    let rights = Rights::new();
    for is_forged in [false, true] {
        let mut world = world(&rights);
        keep_snapshots(&world);
        create_cron(&world, json!({}));
        set_desired_digest(&world, 1);
        world.work().await;
        if is_forged {
            // Taken before the image is complete, or of another claim.
            world.fake.put(
                "volumesnapshots",
                json!({
                    "metadata": { "name": name(1), "namespace": "vms" },
                    "spec": {
                        "source": { "persistentVolumeClaimName": "evil" },
                        "volumeSnapshotClassName": "snap",
                    },
                }),
            );
        }
        run_until_stable(&mut world, DONE).await;
        world.fake.change(&format!("volumesnapshots/vms/{}", name(1)), |snapshot| {
            snapshot["status"] = json!({ "readyToUse": true, "restoreSize": "1Gi" });
        });
        run_until_stable(&mut world, DONE).await;
        assert_eq!(data_source_target(&world), ready("snapshot", 1), "{is_forged}");
        let is_proven = is_proven(&world, &rights, "volumesnapshots", &digest(1));
        assert_eq!(is_proven, !is_forged);
    }
}

#[tokio::test(start_paused = true)]
async fn status_that_names_a_foreign_pvc_does_not_change_it() {
    let rights = Rights::new();
    let mut world = world(&rights);
    create_cron(&world, json!({ "importsToKeep": 0 }));
    set_desired_digest(&world, 1);
    run_until_stable(&mut world, DONE).await;
    for phase in ["Bound", "Pending"] {
        world.fake.put(
            "persistentvolumeclaims",
            json!({
                "metadata": { "name": "fedora-victim", "namespace": "vms", "uid": "victim" },
                "spec": { "storageClassName": "other" }, "status": { "phase": phase },
            }),
        );
        world.fake.change(PLACE, |cron| {
            cron["status"]["currentImports"] =
                json!([{ "DataVolumeName": "fedora-victim", "Digest": digest(1) }]);
        });
        run_until_stable(&mut world, DONE).await;
        let victim = world.fake.get("persistentvolumeclaims", "vms", "fedora-victim").unwrap();
        assert!(victim["metadata"]["labels"].is_null(), "{phase}: {victim}");
        assert!(victim["metadata"]["annotations"].is_null(), "{phase}: {victim}");
        assert_eq!(data_source_target(&world), ready("pvc", 1), "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn controller_annotations_and_labels_of_a_template_are_dropped() {
    let rights = Rights::new();
    let world = &mut world(&rights);
    create_cron(world, json!({}));
    let texts = include_str!("../../../api/src/annotations.rs");
    let own = texts.split('"').skip(1).step_by(2).filter(|text| text.contains("cdi.kube"));
    let mut annotations: serde_json::Map<_, _> =
        own.map(|key| (key.to_owned(), json!("of-template"))).collect();
    assert!(annotations.len() > 80);
    for key in ["k8s.io/CloneRequest", "k8s.v1.cni.cncf.io/networks", "example.com/a"] {
        annotations.insert(key.into(), json!("of-template"));
    }
    let labels = json!({
        labels::OWNED_BY_UID: "x", labels::COMPONENT: "importer", labels::DATA_IMPORT_CRON: "other",
        labels::DATA_IMPORT_CRON_CLEANUP: "true", labels::UPLOAD_TARGET: "x",
        labels::APPLY_STORAGE_PROFILE: "true", labels::DEFAULT_INSTANCETYPE: "u1", "team": "a",
    });
    world.fake.change(PLACE, |cron| {
        cron["spec"]["template"]["metadata"] =
            json!({ "annotations": annotations, "labels": labels });
        cron["metadata"]["labels"][labels::OWNED_BY_UID] = "x".into();
    });
    annotate(world, key::DESIRED_DIGEST, &digest(1));
    world.work().await;
    let made = places(world, "datavolumes");
    assert_eq!(made, [format!("datavolumes/vms/{}", name(1))]);
    let found = world.fake.get("datavolumes", "vms", &name(1)).unwrap();
    let kept: Vec<_> = found["metadata"]["annotations"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, value)| *value == "of-template")
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(
        kept,
        [
            "cdi.kubevirt.io/permissiveClone",
            "cdi.kubevirt.io/storage.deleteAfterCompletion",
            "cdi.kubevirt.io/storage.pod.priorityclassname",
            "cdi.kubevirt.io/storage.pod.retainAfterCompletion",
            "cdi.kubevirt.io/storage.sourceFormat",
            "cdi.kubevirt.io/storage.usePopulator",
            "example.com/a",
            "k8s.v1.cni.cncf.io/networks",
        ]
    );
    let labels = &found["metadata"]["labels"];
    for (key, expected) in [
        (labels::OWNED_BY_UID, json!(null)),
        (labels::COMPONENT, json!(null)),
        (labels::DATA_IMPORT_CRON, json!("cron")),
        (labels::DATA_IMPORT_CRON_CLEANUP, json!(null)),
        (labels::UPLOAD_TARGET, json!(null)),
        (labels::APPLY_STORAGE_PROFILE, json!("true")),
        (labels::DEFAULT_INSTANCETYPE, json!("u1")),
        ("team", json!("a")),
    ] {
        assert_eq!(labels[key], expected, "{key}");
    }
    let source = world.fake.get("datasources", "vms", "fedora").unwrap();
    assert!(source["metadata"]["labels"][labels::OWNED_BY_UID].is_null(), "{source}");
}
