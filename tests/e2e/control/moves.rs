//! Volumes that outlive their DataVolume: after its TTL, and after a transfer.

use anyhow::{Context, Result, ensure};
use api::v1beta1::{CdiConfig, DataVolume, ObjectTransfer};
use e2e::{PodPlan, Test, phase, run_installed, run_installed_alone};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{SIZE, annotated, disk, of_web, server};

const KEEP: &str = "cdi.kubevirt.io/storage.deleteAfterCompletion";

async fn live_for(test: &Test, seconds: Value) -> Result<()> {
    let configs = Api::<CdiConfig>::all(test.client());
    let patch = json!({ "spec": { "dataVolumeTTLSeconds": seconds } });
    configs.patch("config", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn one_goes_and_two_stay(test: &Test) -> Result<()> {
    let server = server(&disk());
    test.apply(of_web("before", &server)).await?;
    test.succeeded("before").await?;
    live_for(test, json!(2)).await?;
    test.apply(annotated(of_web("kept", &server), KEEP, "false")).await?;
    test.succeeded("kept").await?;
    test.apply(of_web("gone", &server)).await?;
    let volumes = test.all::<DataVolume>();
    test.wait_until_gone(&volumes, "gone").await?;
    // The garbage collection has read it before another DataVolume can finish.
    test.apply(of_web("after", &server)).await?;
    test.wait_until_gone(&volumes, "after").await?;
    for claim in ["gone", "after"] {
        let found = test.all::<PersistentVolumeClaim>().get(claim).await?;
        let owners = found.metadata.owner_references.unwrap_or_default();
        ensure!(owners.is_empty() && found.metadata.deletion_timestamp.is_none(), "{owners:?}");
        test.holds(claim, &disk()).await?;
    }
    for volume in ["before", "kept"] {
        ensure!(phase(&volumes.get(volume).await?) == "Succeeded", "{volume} stays");
    }
    test.only_these_are_left(&["before", "kept", "gone", "after"]).await
}

#[test]
fn data_volume_is_deleted_after_its_ttl_and_its_pvc_stays() {
    run_installed_alone("lifetime", async |test| {
        let outcome = one_goes_and_two_stay(&test).await;
        live_for(&test, Value::Null).await?;
        outcome
    });
}

/// Has something moved to another namespace; the transfer is named after the test.
async fn transfer(test: &Test, kind: &str, name: &str, target: Value) -> Result<()> {
    test.create_global::<ObjectTransfer>(json!({
        "metadata": { "name": test.namespace() },
        "spec": {
            "source": { "kind": kind, "namespace": test.namespace(), "name": name },
            "target": target,
        },
    }))
    .await?;
    Ok(())
}

fn message_contains(transfer: &ObjectTransfer, words: &str) -> bool {
    let conditions = transfer.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut messages = conditions.into_iter().flatten().filter_map(|one| one.message.as_deref());
    messages.any(|message| message.contains(words))
}

fn is_complete(transfer: &ObjectTransfer) -> bool {
    let phase = transfer.status.as_ref().and_then(|status| status.phase.as_deref());
    let finalizers = transfer.metadata.finalizers.as_deref().unwrap_or_default();
    phase == Some("Complete") && finalizers.is_empty()
}

/// The volume of a PVC, and what becomes of it with the PVC.
async fn volume_of(test: &Test, claim: &str) -> Result<(String, String)> {
    let claim = test.all::<PersistentVolumeClaim>().get(claim).await?;
    let name = claim.spec.and_then(|spec| spec.volume_name).context("it has a volume")?;
    let volume = Api::<PersistentVolume>::all(test.client()).get(&name).await?;
    let policy = volume.spec.and_then(|spec| spec.persistent_volume_reclaim_policy);
    Ok((name, policy.unwrap_or_default()))
}

#[test]
fn pvc_is_transferred_to_another_namespace_and_name() {
    run_installed("moved-claim", async |test| {
        let far = test.other_namespace().await?;
        let server = server(&disk());
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeImportSource",
            "metadata": { "name": "source" },
            "spec": { "source": { "http": { "url": server.url_of("/disk.img") } } },
        }))
        .await?;
        test.apply(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "disk" },
            "spec": {
                "storageClassName": "csi", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": SIZE } },
                "dataSourceRef": {
                    "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "source",
                },
            },
        }))
        .await?;
        test.holds("disk", &disk()).await?;
        let before = volume_of(&test, "disk").await?;
        ensure!(before.1 == "Delete", "the storage deletes unclaimed volumes: {before:?}");
        let target = json!({ "namespace": far.namespace(), "name": "renamed" });
        transfer(&test, "PersistentVolumeClaim", "disk", target).await?;
        let all = Api::<ObjectTransfer>::all(test.client());
        test.wait_among(&all, test.namespace(), "complete", is_complete).await?;
        ensure!(volume_of(&far, "renamed").await? == before, "another volume, or another policy");
        far.holds("renamed", &disk()).await?;
        far.only_these_are_left(&["renamed"]).await?;
        test.only_these_are_left(&[]).await?;
        test.remove_global::<ObjectTransfer>(test.namespace()).await
    });
}

#[test]
fn data_volume_is_transferred_once_unused_and_not_filled_again() {
    run_installed("moved-volume", async |test| {
        let far = test.other_namespace().await?;
        let server = server(&disk());
        test.apply(of_web("disk", &server)).await?;
        test.succeeded("disk").await?;
        let before = volume_of(&test, "disk").await?;
        let asked = server.requests().len();
        PodPlan::new("user", &["pause"]).device("disk", "/disk").start(&test).await?;
        transfer(&test, "DataVolume", "disk", json!({ "namespace": far.namespace() })).await?;
        let all = Api::<ObjectTransfer>::all(test.client());
        let waits = |transfer: &ObjectTransfer| message_contains(transfer, "Pods using PVC");
        test.wait_among(&all, test.namespace(), "waiting for the pod", waits).await?;
        ensure!(phase(&test.all::<DataVolume>().get("disk").await?) == "Succeeded", "untouched");
        test.all::<Pod>().delete("user", &DeleteParams::default()).await?;
        test.wait_among(&all, test.namespace(), "complete", is_complete).await?;
        far.succeeded("disk").await?;
        ensure!(volume_of(&far, "disk").await? == before, "another volume, or another policy");
        ensure!(server.requests().len() == asked, "it was imported again");
        far.holds("disk", &disk()).await?;
        far.only_these_are_left(&["disk"]).await?;
        ensure!(test.all::<DataVolume>().get_opt("disk").await?.is_none(), "it is still here");
        test.only_these_are_left(&[]).await?;
        // The transfer of its PVC is deleted with it, and the volume with its DataVolume.
        test.remove_global::<ObjectTransfer>(test.namespace()).await?;
        far.all::<DataVolume>().delete("disk", &DeleteParams::default()).await?;
        far.wait_until_gone(&far.all::<PersistentVolumeClaim>(), "disk").await?;
        let volumes = Api::<PersistentVolume>::all(test.client());
        test.wait_until_gone(&volumes, &before.0).await
    });
}
