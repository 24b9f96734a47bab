//! Tests of clones, and what they share: a cluster with a source, and the rights that clones take.

mod adopted;
mod again;
mod attacks;
mod chosen;
mod failures;
mod sizes;
mod snapshots;
mod squatters;
mod strategies;
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
