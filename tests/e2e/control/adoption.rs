//! PVCs that were filled otherwise: by a restore, another populator, an administrator.

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Claim, PodPlan, Test, is_bound, run_installed};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{SIZE, annotated, disk, of_web, server, volume};

const SIZE_OF_ORIGINALS: &str = "32Mi";
const BYTES: u64 = 32 << 20;

#[test]
fn pvc_restored_before_its_data_volume_is_adopted() {
    run_installed("restored", async |test| {
        let server = server(&disk());
        test.apply(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "disk", "annotations": { "cdi.kubevirt.io/storage.populatedFor": "disk" },
            },
            "spec": {
                "storageClassName": "csi", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": SIZE } },
            },
        }))
        .await?;
        test.wait("disk", "bound", is_bound).await?;
        test.apply(of_web("disk", &server)).await?;
        test.succeeded("disk").await?;
        ensure!(server.requests().is_empty(), "what was there was overwritten");
        let claim = test.all::<PersistentVolumeClaim>().get("disk").await?;
        let owner = claim.metadata.owner_references.unwrap_or_default();
        ensure!(owner.iter().any(|owner| owner.kind == "DataVolume"), "{owner:?}");
        Ok(())
    });
}

/// A DataVolume whose PVC another program fills.
fn external(name: &str, reference: Value) -> Value {
    let mut object = volume(name, "csi", "Block", json!({}));
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("source");
    }
    object["spec"]["pvc"]["dataSourceRef"] = reference;
    object["spec"]["pvc"]["resources"] = json!({ "requests": { "storage": SIZE_OF_ORIGINALS } });
    object
}

#[test]
fn data_volume_waits_for_an_external_population() {
    run_installed("external", async |test| {
        Claim::block("original", "csi", SIZE_OF_ORIGINALS).bound(&test).await?;
        let words = ["fill", "/disk", "all", "external"];
        PodPlan::new("writer", &words).device("original", "/disk").output(&test).await?;
        let written = test.read("original", BYTES).await?;
        test.take_snapshot("original", "snapshot").await?;
        let group = "snapshot.storage.k8s.io";
        for (name, reference) in [
            ("of-claim", json!({ "kind": "PersistentVolumeClaim", "name": "original" })),
            (
                "of-snapshot",
                json!({ "apiGroup": group, "kind": "VolumeSnapshot", "name": "snapshot" }),
            ),
        ] {
            test.apply(external(name, reference)).await.context(name)?;
            test.succeeded(name).await?;
            test.event_message(name, "ExternalPopulationSucceeded").await?;
            let found = test.read(name, BYTES).await?;
            ensure!(found == written, "{name} holds something else: {found}");
        }
        Ok(())
    });
}

/// Keeps the volume of a PVC whose DataVolume is deleted, and reserves it for a PVC of another name.
async fn set_aside(test: &Test, from: &str, to: &str) -> Result<String> {
    let claims = test.all::<PersistentVolumeClaim>();
    let claim = claims.get(from).await?;
    let name = claim.spec.and_then(|spec| spec.volume_name).context("it has a volume")?;
    let volumes = Api::<PersistentVolume>::all(test.client());
    let merge = async |patch: Value| {
        volumes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
    };
    merge(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } })).await?;
    test.all::<DataVolume>().delete(from, &DeleteParams::background()).await?;
    test.wait_until_gone(&claims, from).await?;
    let is_in = |phase: &'static str| {
        move |volume: &PersistentVolume| {
            volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
        }
    };
    test.wait_among(&volumes, &name, "released", is_in("Released")).await?;
    let owner = json!({ "name": to, "uid": null, "resourceVersion": null });
    merge(json!({ "spec": { "claimRef": owner } })).await?;
    test.wait_among(&volumes, &name, "available", is_in("Available")).await?;
    Ok(name)
}

#[test]
fn static_volume_of_a_data_volume_is_used() {
    run_installed("set-aside", async |test| {
        let server = server(&disk());
        test.apply(of_web("before", &server)).await?;
        test.succeeded("before").await?;
        let volume = set_aside(&test, "before", "after").await?;
        let asked = server.requests().len();
        let key = "cdi.kubevirt.io/storage.checkStaticVolume";
        test.apply(annotated(of_web("after", &server), key, "")).await?;
        test.succeeded("after").await?;
        let claim = test.all::<PersistentVolumeClaim>().get("after").await?;
        let found = claim.spec.and_then(|spec| spec.volume_name);
        ensure!(found.as_deref() == Some(&*volume), "it has {found:?} and not {volume}");
        ensure!(server.requests().len() == asked, "it was imported once more");
        test.holds("after", &disk()).await?;
        goes_with_its_claim(&test, &volume).await?;
        test.only_these_are_left(&["after"]).await
    });
}

/// So that a volume is deleted with its namespace.
async fn goes_with_its_claim(test: &Test, volume: &str) -> Result<()> {
    let volumes = Api::<PersistentVolume>::all(test.client());
    let goes = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    volumes.patch(volume, &PatchParams::default(), &Patch::Merge(goes)).await?;
    Ok(())
}

#[test]
fn static_volume_of_a_clone_is_used_without_its_source() {
    run_installed("set-aside-clone", async |test| {
        let server = server(&disk());
        test.apply(of_web("before", &server)).await?;
        test.succeeded("before").await?;
        let set_aside = set_aside(&test, "before", "after").await?;
        // Neither the namespace of the source nor a permission for it is there.
        let source = json!({ "pvc": { "namespace": "cdi-e2e-gone", "name": "golden" } });
        let clone = volume("after", "csi", "Block", source);
        test.apply(annotated(clone, "cdi.kubevirt.io/storage.checkStaticVolume", "")).await?;
        test.succeeded("after").await?;
        let claim = test.all::<PersistentVolumeClaim>().get("after").await?;
        let found = claim.spec.and_then(|spec| spec.volume_name);
        ensure!(found.as_deref() == Some(&*set_aside), "it has {found:?} and not {set_aside}");
        test.holds("after", &disk()).await?;
        goes_with_its_claim(&test, &set_aside).await?;
        test.only_these_are_left(&["after"]).await
    });
}

#[test]
fn data_volume_without_a_class_uses_a_volume_without_one() {
    run_installed("classless", async |test| {
        let server = server(&disk());
        test.apply(of_web("before", &server)).await?;
        test.succeeded("before").await?;
        // A namespace of its own, so that no PVC of another test takes the volume before.
        let set_aside = set_aside(&test, "before", "after").await?;
        let volumes = Api::<PersistentVolume>::all(test.client());
        let none = Patch::Merge(json!({ "spec": { "storageClassName": null } }));
        volumes.patch(&set_aside, &PatchParams::default(), &none).await?;
        let mut wanted = of_web("after", &server);
        if let Some(spec) = wanted["spec"].as_object_mut() {
            spec.remove("pvc");
        }
        wanted["spec"]["storage"] = json!({
            "storageClassName": "", "resources": { "requests": { "storage": "8Mi" } },
        });
        test.apply(wanted).await?;
        test.succeeded("after").await?;
        let claim = test.all::<PersistentVolumeClaim>().get("after").await?;
        let found = claim.spec.and_then(|spec| spec.volume_name);
        ensure!(found.as_deref() == Some(&*set_aside), "it has {found:?} and not {set_aside}");
        test.holds("after", &disk()).await?;
        goes_with_its_claim(&test, &set_aside).await?;
        test.only_these_are_left(&["after"]).await
    });
}
