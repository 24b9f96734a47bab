//! Failures: the DataVolume alone shows what is wrong, and where.

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{REGISTRY, Test, condition_is_false_with, run_installed};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, ResourceQuota};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{Fault, MIB, ServerCertificate, pattern};

use crate::world::{annotated, disk, of_web, server, volume};

/// Waits until a condition of the DataVolume is False with this reason.
async fn wait_for_condition(test: &Test, name: &str, condition: &str, words: &str) -> Result<()> {
    let good = |volume: &DataVolume| condition_is_false_with(volume, condition, words);
    test.wait(name, &format!("reported: {words:?}"), good).await.map(|_| ())
}

async fn refused(test: &Test, name: &str, source: Value, words: &str) -> Result<()> {
    test.apply(volume(name, "csi", "Block", source)).await?;
    wait_for_condition(test, name, "Running", words).await.with_context(|| name.to_owned())
}

#[test]
fn server_errors_are_reported() {
    run_installed("refusals", async |test| {
        let gone = server(&disk()).always(Fault::Status(404));
        let guarded = server(&disk()).always(Fault::Status(401));
        let unknown = server(&disk()).tls();
        let http = |url: String| json!({ "http": { "url": url } });
        refused(&test, "gone", http(gone.url_of("/gone.img")), "404").await?;
        refused(&test, "guarded", http(guarded.url_of("/guarded.img")), "401").await?;
        refused(&test, "unknown", http(unknown.url_of("/a.img")), "certificate").await?;
        let unreachable = "http://10.98.0.1:9/disk.img".to_owned();
        refused(&test, "unreachable", http(unreachable), "10.98.0.1:9").await?;
        let message = test.event_message("gone", "Error").await?;
        ensure!(message.contains("404"), "{message}");
        Ok(())
    });
}

#[test]
fn wrong_password_and_wrong_ca_are_reported() {
    run_installed("wrong-secrets", async |test| {
        test.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "wrong" },
            "stringData": { "accessKeyId": "anna", "secretKey": "nothing like it" },
        }))
        .await?;
        let others = ServerCertificate::new().ca;
        test.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "wrong" },
            "data": { "ca.pem": others },
        }))
        .await?;
        let wanted = Fault::BasicAuth("anna".into(), "open sesame".into());
        let guarded = server(&disk()).always(wanted);
        let unknown = server(&disk()).tls();
        let source = json!({ "http": { "url": guarded.url_of("/a.img"), "secretRef": "wrong" } });
        refused(&test, "password", source, "401").await?;
        let url = unknown.url_of("/a.img");
        let source = json!({ "http": { "url": url, "certConfigMap": "wrong" } });
        refused(&test, "authority", source, "certificate").await?;
        // The password appears in no readable object.
        let all = test.all::<DataVolume>().list(&ListParams::default()).await?;
        let events = test.all::<Event>().list(&ListParams::default()).await?;
        let text = serde_json::to_string(&(&all.items, &events.items))?;
        ensure!(!text.contains("nothing like it"), "the password is in an object or event");
        Ok(())
    });
}

/// A volume that a node without this label does not have.
async fn far_volume(test: &Test, name: &str) -> Result<()> {
    let folder = test.state().path(&format!("volumes/local/{name}"));
    std::fs::create_dir_all(&folder)?;
    test.create_global::<StorageClass>(json!({
        "metadata": { "name": name }, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
    }))
    .await?;
    let label = json!({ "key": name, "operator": "Exists" });
    test.create_global::<PersistentVolume>(json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "64Mi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": name,
            "volumeMode": "Filesystem", "local": { "path": folder },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [label] }] } },
        },
    }))
    .await?;
    Ok(())
}

/// Sets a label on all nodes, or removes it.
async fn label_nodes(test: &Test, label: &str, value: Option<&str>) -> Result<()> {
    let nodes = Api::<Node>::all(test.client());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label: value } } }));
    for node in nodes.list(&ListParams::default()).await?.items {
        nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

#[test]
fn unschedulable_worker_is_reported_until_a_node_fits() {
    run_installed("no-node", async |test| {
        let far = test.namespace().to_owned();
        let outcome = async {
            far_volume(&test, &far).await?;
            let server = server(&disk());
            let source = json!({ "http": { "url": server.url_of("/disk.img") } });
            test.apply(volume("disk", &far, "Filesystem", source)).await?;
            wait_for_condition(&test, "disk", "Running", "node affinity").await?;
            let volume = test.all::<DataVolume>().get("disk").await?;
            ensure!(
                condition_is_false_with(&volume, "Running", "Unschedulable"),
                "{:?}",
                volume.status
            );
            label_nodes(&test, &far, Some("yes")).await?;
            test.succeeded("disk").await?;
            test.holds("disk", &disk()).await
        }
        .await;
        label_nodes(&test, &far, None).await?;
        outcome?;
        test.leave().await?;
        test.remove_global::<PersistentVolume>(&far).await?;
        test.remove_global::<StorageClass>(&far).await
    });
}

#[test]
fn too_large_image_is_reported() {
    run_installed("too-small", async |test| {
        let large = server(&pattern(64 * MIB));
        test.apply(of_web("disk", &large)).await?;
        let sizes = "DataVolume too small to contain image: the image needs 67108864 bytes, the volume has ";
        wait_for_condition(&test, "disk", "Running", sizes).await
    });
}

#[test]
fn missing_secrets_and_config_maps_are_reported_until_they_exist() {
    run_installed("missing", async |test| {
        let server = server(&disk());
        let url = server.url_of("/disk.img");
        for (name, key) in [("map", "certConfigMap"), ("secret", "secretRef")] {
            let source = json!({ "http": { "url": url, key: format!("no-{name}") } });
            refused(&test, name, source, &format!("no-{name}")).await?;
        }
        test.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "no-secret" },
            "stringData": { "accessKeyId": "a", "secretKey": "b" },
        }))
        .await?;
        test.succeeded("secret").await.map(|_| ())
    });
}

#[test]
fn missing_storage_class_is_reported() {
    run_installed("no-class", async |test| {
        test.apply(volume("pvc-form", "nowhere", "Block", json!({ "blank": {} }))).await?;
        wait_for_condition(&test, "pvc-form", "Bound", "nowhere").await?;
        let mut other = volume("storage-form", "nowhere", "Block", json!({ "blank": {} }));
        let spec = other["spec"].as_object_mut().context("it has a spec")?;
        let storage = spec.remove("pvc").unwrap_or_default();
        spec.insert("storage".into(), storage);
        test.apply(other).await?;
        wait_for_condition(&test, "storage-form", "Bound", "nowhere").await
    });
}

#[test]
fn exceeded_quota_is_reported_until_it_is_lifted() {
    run_installed("quota", async |test| {
        let quota = |name: &str, what: &str, most: &str| {
            json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": name },
                "spec": { "hard": { what: most } },
            })
        };
        test.apply(quota("storage", "requests.storage", "10Mi")).await?;
        let counted = |quota: &ResourceQuota| {
            quota.status.as_ref().is_some_and(|status| status.hard.is_some())
        };
        test.wait("storage", "in force", counted).await?;
        let server = server(&disk());
        test.apply(of_web("disk", &server)).await?;
        wait_for_condition(&test, "disk", "Bound", "exceeded quota").await?;
        test.event_message("disk", "ErrExceededQuota").await?;
        // The quota permits the PVC and its prime PVC, and no worker.
        test.apply(quota("pods", "pods", "0")).await?;
        test.wait("pods", "in force", counted).await?;
        let quotas = test.all::<ResourceQuota>();
        quotas.delete("storage", &DeleteParams::default()).await?;
        wait_for_condition(&test, "disk", "Running", "exceeded quota").await?;
        quotas.delete("pods", &DeleteParams::default()).await?;
        test.succeeded("disk").await?;
        test.holds("disk", &disk()).await
    });
}

#[test]
fn workers_fit_resource_quotas() {
    run_installed("quota-resources", async |test| {
        // The quota refuses pods without these values.
        let hard = json!({
            "requests.cpu": "4", "requests.memory": "8Gi", "limits.cpu": "8", "limits.memory": "16Gi",
        });
        test.apply(json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "compute" },
            "spec": { "hard": hard },
        }))
        .await?;
        let server = server(&disk());
        test.apply(of_web("disk", &server)).await?;
        test.succeeded("disk").await.map(|_| ())
    });
}

#[test]
fn unpullable_worker_image_is_reported() {
    run_installed("no-image", async |test| {
        let url = format!("docker://{REGISTRY}/missing/image:1");
        let source = json!({ "registry": { "url": url, "pullMethod": "node" } });
        test.apply(volume("node", "csi", "Block", source)).await?;
        wait_for_condition(&test, "node", "Running", "ImagePullFailed").await?;
        let source = json!({ "registry": { "url": url } });
        test.apply(volume("pod", "csi", "Block", source)).await?;
        wait_for_condition(&test, "pod", "Running", "missing/image").await
    });
}

#[test]
fn pvc_of_another_owner_is_not_changed() {
    run_installed("foreign", async |test| {
        e2e::Claim::block("disk", "csi", "32Mi").bound(&test).await?;
        let server = server(&disk());
        let error = test.apply(of_web("disk", &server)).await.expect_err("there is a claim");
        ensure!(format!("{error:#}").contains("already exists"), "{error:#}");
        // Adoption has to be requested.
        let key = "cdi.kubevirt.io/allowClaimAdoption";
        test.apply(annotated(of_web("disk", &server), key, "true")).await?;
        test.succeeded("disk").await?;
        ensure!(server.requests().is_empty(), "what was there was overwritten");
        Ok(())
    });
}
