//! The storage class of a DataVolume that names none: with no, one or several default classes.

use anyhow::{Context, Result, ensure};
use api::v1beta1::{DataVolume, StorageProfile};
use e2e::{Test, condition_is_false_with, run_installed_alone};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::SIZE;

const OF_PLATFORM: &str = "storageclass.kubernetes.io/is-default-class";
const OF_DISKS: &str = "storageclass.kubevirt.io/is-default-virt-class";

fn without_class(name: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": { "name": name },
        "spec": { "source": { "blank": {} }, "storage": {
            "resources": { "requests": { "storage": SIZE } },
        } },
    })
}

async fn default_class(test: &Test, name: &str) -> Result<()> {
    let class = test.create_global::<StorageClass>(json!({
        "metadata": { "name": name, "annotations": { OF_PLATFORM: "true" } },
        "provisioner": "loop.csi.cdi.test", "volumeBindingMode": "Immediate",
        "reclaimPolicy": "Delete",
    }));
    class.await.map(|_| ())
}

/// Sets the properties of the storage, as an administrator does.
async fn describe(test: &Test, class: &str) -> Result<()> {
    let profiles = Api::<StorageProfile>::all(test.client());
    test.wait_among(&profiles, class, "there", |_| true).await?;
    let sets = json!([{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }]);
    let patch = Patch::Merge(json!({ "spec": { "claimPropertySets": sets } }));
    profiles.patch(class, &PatchParams::default(), &patch).await?;
    let is_taken = |profile: &StorageProfile| {
        profile.status.as_ref().is_some_and(|status| status.claim_property_sets.is_some())
    };
    test.wait_among(&profiles, class, "taken over", is_taken).await.map(|_| ())
}

async fn is_on(test: &Test, name: &str, class: &str) -> Result<()> {
    test.succeeded(name).await?;
    let claim = test.all::<PersistentVolumeClaim>().get(name).await?;
    let found = claim.spec.and_then(|spec| spec.storage_class_name);
    ensure!(found.as_deref() == Some(class), "{name} is on {found:?} and not on {class}");
    Ok(())
}

async fn through_all_defaults(test: &Test, older: &str, newer: &str) -> Result<()> {
    test.apply(without_class("first")).await?;
    let words =
        "DataVolume.storage spec is missing accessMode and no storageClass to choose profile";
    test.wait("first", words, |volume: &DataVolume| {
        condition_is_false_with(volume, "Bound", words)
    })
    .await?;
    let message = test.event_message("first", "ErrClaimNotValid").await?;
    ensure!(message == words, "{message}");
    default_class(test, older).await?;
    // Its driver is unknown.
    let words = format!("cannot get access mode from StorageProfile {older}");
    test.wait("first", &words, |volume: &DataVolume| {
        condition_is_false_with(volume, "Bound", &words)
    })
    .await?;
    describe(test, older).await?;
    is_on(test, "first", older).await.context("one default")?;

    default_class(test, newer).await?;
    describe(test, newer).await?;
    test.apply(without_class("second")).await?;
    is_on(test, "second", newer).await.context("the newer of two defaults")?;

    let classes = Api::<StorageClass>::all(test.client());
    let mark = Patch::Merge(json!({ "metadata": { "annotations": { OF_DISKS: "true" } } }));
    classes.patch(older, &PatchParams::default(), &mark).await?;
    // The controllers hear of it a moment later than we.
    let mut error = None;
    for at in 0..10 {
        let name = format!("third-{at}");
        test.apply(without_class(&name)).await?;
        match is_on(test, &name, older).await {
            Ok(()) => return Ok(()),
            Err(other) => error = Some(other),
        }
    }
    error.map_or(Ok(()), Err).context("the default for disks")
}

#[test]
fn missing_default_class_is_reported_and_the_newer_of_two_is_used() {
    run_installed_alone("defaults", async |test| {
        let (older, newer) = (format!("a-{}", test.namespace()), format!("b-{}", test.namespace()));
        let outcome = through_all_defaults(&test, &older, &newer).await;
        for class in [&older, &newer] {
            let classes = Api::<StorageClass>::all(test.client());
            if classes.get_opt(class).await?.is_some() {
                test.remove_global::<StorageClass>(class).await?;
            }
        }
        outcome
    });
}
