//! Clones by every strategy, from the own namespace and from another one.

mod adopted;
mod again;
mod attacks;
mod chosen;
mod failures;
mod sizes;
mod snapshots;
mod squatters;
mod tokens;

use std::time::{Duration, SystemTime};

use api::annotations::{request, state};
use auth::token::{ISSUER_API_SERVER, KeyTexts, LIFETIME, SigningKey, VerifyingKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fake::Fake;
use super::world::TestCluster;
use super::{places, reasons};
use controller_core::clone::{Origin, OriginKind};

const DONE: &str = r#"{"preallocationApplied":false,"message":"Clone Complete"}"#;

/// The CAs of source pods and upload servers, and the signing keys of tokens.
pub(super) struct Rights(TempDir);

impl Rights {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(86_400);
        for name in ["cdi-uploadserver-signer", "cdi-uploadserver-client-signer"] {
            let made = auth::CertificateAuthority::create(name, day, SystemTime::now()).unwrap();
            let signer = folder.path().join("certs").join(name);
            let bundle = folder.path().join("ca-bundle").join(format!("{name}-bundle"));
            for folder in [&signer, &bundle] {
                std::fs::create_dir_all(folder).unwrap();
            }
            std::fs::write(signer.join("tls.crt"), &made.certificate).unwrap();
            std::fs::write(signer.join("tls.key"), &made.key).unwrap();
            std::fs::write(bundle.join("ca-bundle.crt"), &made.certificate).unwrap();
        }
        let keys = KeyTexts::generate().unwrap();
        std::fs::write(folder.path().join("id_rsa"), keys.private).unwrap();
        std::fs::write(folder.path().join("id_rsa.pub"), keys.public).unwrap();
        Self(folder)
    }

    pub(super) fn controllers(&self, fake: Fake, more: &[&str]) -> TestCluster {
        let folder = self.0.path().display();
        let flags = [format!("-certificates={folder}"), format!("-token-keys={folder}")];
        let flags = flags.iter().map(String::as_str).chain(more.iter().copied());
        TestCluster::with_flags(fake, &flags.collect::<Vec<_>>())
    }

    /// A clone token, as the webhook signs it.
    fn token(&self, kind: OriginKind, namespace: &str, target: &str) -> String {
        self.signed(kind, namespace, (target, None), ISSUER_API_SERVER)
    }

    /// A clone token for the object with this UID only, or of another issuer.
    fn signed(
        &self,
        kind: OriginKind,
        namespace: &str,
        (target, uid): (&str, Option<&str>),
        issuer: &str,
    ) -> String {
        let key = std::fs::read(self.0.path().join("id_rsa")).unwrap();
        let origin = Origin { kind, namespace: namespace.into(), name: "golden".into() };
        let target = ObjectMeta {
            name: Some(target.into()),
            namespace: Some("vms".into()),
            ..ObjectMeta::default()
        };
        let key = SigningKey::from_pem(&key).unwrap();
        let claims = origin.clone_claims(&target, uid);
        key.sign(&claims, issuer, LIFETIME, SystemTime::now()).unwrap()
    }

    /// The key that verifies the signatures of these keys.
    pub(super) fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey::from_pem(&std::fs::read(self.0.path().join("id_rsa.pub")).unwrap()).unwrap()
    }

    pub(super) fn clone_of_claim(&self, fake: &Fake, namespace: &str) {
        let token = Some(self.token(OriginKind::Claim, namespace, "disk"));
        volume(fake, of_claim(namespace), token);
    }
}

/// A cluster with a claim of 1 GiB named `golden`, and a storage class that is cloned by `strategy`.
pub(super) fn cluster(strategy: &str, namespace: &str, has_driver: bool) -> Fake {
    let fake = TestCluster::new("Immediate", has_driver).fake;
    fake.put(
        "storageclasses",
        json!({
            "metadata": {
                "name": "fast",
                "annotations": {
                    "storageclass.kubernetes.io/is-default-class": "true", request::CLONE_STRATEGY: strategy,
                },
            },
            "provisioner": "csi.example", "allowVolumeExpansion": true, "volumeBindingMode": "Immediate",
        }),
    );
    fake.put(
        "volumesnapshotclasses",
        json!({ "metadata": { "name": "snap" }, "driver": "csi.example" }),
    );
    fake.put(
        "volumesnapshotcontents",
        json!({
            "metadata": { "name": "content" },
            "spec": { "driver": "csi.example", "sourceVolumeMode": "Block" },
        }),
    );
    fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": {
                "name": "golden", "namespace": namespace, "uid": "golden-uid",
                "labels": { "instancetype.kubevirt.io/default-preference": "fedora" },
            },
            "spec": {
                "storageClassName": "fast", "volumeMode": "Block", "volumeName": "pv-golden",
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
        }),
    );
    fake.put(
        "persistentvolumes",
        json!({
            "metadata": { "name": "pv-golden" },
            "spec": {
                "claimRef": { "namespace": namespace, "name": "golden", "uid": "golden-uid" },
                "csi": { "driver": "csi.example", "volumeHandle": "h" }, "storageClassName": "fast",
            },
        }),
    );
    fake
}

fn block(source: Value, size: Option<&str>) -> Value {
    let requests = size.map(|size| json!({ "requests": { "storage": size } }));
    json!({
        "source": source,
        "storage": {
            "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "resources": requests,
        },
    })
}

/// A snapshot `golden`, ready to be restored.
fn put_snapshot(fake: &Fake) {
    put_snapshot_in(fake, "images");
}

fn put_snapshot_in(fake: &Fake, namespace: &str) {
    fake.put(
        "volumesnapshots",
        json!({
            "metadata": { "name": "golden", "namespace": namespace },
            "spec": { "source": {} },
            "status": {
                "readyToUse": true, "restoreSize": "1Gi", "creationTime": "2026-01-01T00:00:00Z",
                "boundVolumeSnapshotContentName": "content",
            },
        }),
    );
}

pub(super) fn of_claim(namespace: &str) -> Value {
    block(json!({ "pvc": { "namespace": namespace, "name": "golden" } }), Some("1Gi"))
}

/// A DataVolume `disk` in the namespace `vms`, as it comes out of the webhook.
fn volume(fake: &Fake, spec: Value, token: Option<String>) {
    fake.put(
        "datavolumes",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {
                "name": "disk", "namespace": "vms",
                "annotations": token.map(|token| json!({ request::CLONE_TOKEN: token })),
            },
            "spec": spec,
        }),
    );
}

/// Runs so many rounds of controllers and cluster.
async fn rounds(world: &mut TestCluster, count: usize) {
    for _ in 0..count {
        world.work().await;
        world.simulate_cluster(DONE);
    }
}

/// Runs until the clone is finished. Returns the phases of the DataVolume.
async fn phases(world: &mut TestCluster) -> Vec<String> {
    let mut phases: Vec<String> = Vec::new();
    for _ in 0..40 {
        world.work().await;
        let phase = world.status("disk")["phase"].as_str().unwrap_or_default().to_owned();
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
        world.simulate_cluster(DONE);
    }
    phases
}

/// The clone is complete, and none of its temporary objects is left.
fn check_clean(world: &TestCluster, namespace: &str, case: &str) {
    let mut claims = vec![
        format!("persistentvolumeclaims/{namespace}/golden"),
        "persistentvolumeclaims/vms/disk".into(),
    ];
    claims.sort();
    assert_eq!(places(world, "persistentvolumeclaims"), claims, "{case}");
    check_nothing_left(world, case);
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound", "{case}");
    assert_eq!(claim["metadata"]["finalizers"].as_array().map_or(0, Vec::len), 0, "{case}");
    let volume = world.fake.get("datavolumes", "vms", "disk").unwrap();
    assert_eq!(volume["metadata"]["finalizers"].as_array().map_or(0, Vec::len), 0, "{case}");
}

fn check_nothing_left(world: &TestCluster, case: &str) {
    for plural in ["pods", "secrets", "services", "volumeclonesources"] {
        assert_eq!(places(world, plural), [""; 0], "{case}");
    }
    let snapshots = places(world, "volumesnapshots");
    assert!(snapshots.iter().all(|place| place.ends_with("/golden")), "{case}: {snapshots:?}");
}

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

/// A PVC in `vms` that names a VolumeCloneSource, which refers to the PVC `golden` of `namespace`.
fn claim_of_a_source(fake: &Fake, namespace: &str, name: &str, annotations: Value) {
    fake.put(
        "volumeclonesources",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeCloneSource",
            "metadata": { "name": "source", "namespace": namespace },
            "spec": { "source": { "kind": "PersistentVolumeClaim", "name": "golden" } },
        }),
    );
    fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": name, "namespace": "vms", "annotations": annotations },
            "spec": {
                "storageClassName": "fast", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
                "dataSourceRef": { "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "source" },
            },
        }),
    );
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
