//! Clones of a disk in a namespace in which the tenant has no permissions: by plain requests, by forged tokens, and by
//! the controllers' own permissions, through golden images that are "reused".

use anyhow::{Result, ensure};
use api::annotations::{cron as key, request};
use api::v1beta1::DataVolume;
use e2e::{Test, is_bound, sha256, volume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{cron, make, patch_cron};
use crate::scenario::{SECRET_DISK, Scenario, image, secret};

/// The prefix of the names of all objects that a thief creates.
const NAME: &str = "steal";
/// Between two rounds.
const PAUSE: u64 = 20;
/// Keeps the controllers off a cron that is being deleted.
const FINALIZER: &str = "hostile.cdi.test/keep";

pub async fn attack(tenant: &Test, scenario: &Scenario) {
    for round in 0.. {
        if scenario.is_over() {
            break;
        }
        plain(tenant, scenario, round).await;
        forged(tenant, scenario, round).await;
        reused(tenant, scenario, round).await;
        scenario.pause(PAUSE).await;
    }
}

/// A clone by name, and by DataSources, as the API is meant to refuse them.
async fn plain(tenant: &Test, scenario: &Scenario, round: u32) {
    let of_vault = json!({ "pvc": { "namespace": scenario.vault, "name": SECRET_DISK } });
    let name = format!("{NAME}-plain-{round}");
    let mut object = volume(&name, "csi", "Block", of_vault.clone());
    object["metadata"]["annotations"] = json!({ request::REUSE_GOLDEN_IMAGE: "true" });
    make(tenant, scenario, "clones let through", "clones refused", object).await;
    let source = format!("{NAME}-source-{round}");
    let object = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": { "name": source }, "spec": { "source": of_vault },
    });
    make(tenant, scenario, "DataSources created", "DataSources refused", object).await;
    let name = format!("{NAME}-reference-{round}");
    let mut object = volume(&name, "csi", "Block", Value::Null);
    object["spec"]["sourceRef"] = json!({ "kind": "DataSource", "name": source });
    make(tenant, scenario, "clones let through", "clones refused", object).await;
}

/// A PVC whose annotations claim that it may be filled from the vault.
async fn forged(tenant: &Test, scenario: &Scenario, round: u32) {
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": format!("{NAME}-forged-{round}"), "annotations": {
            "cdi.kubevirt.io/dataSourceNamespace": scenario.vault,
            "cdi.kubevirt.io/storage.clone.token": "not.a.token",
            "cdi.kubevirt.io/storage.extended.clone.token": "not.a.token",
            "k8s.io/CloneRequest": format!("{}/{SECRET_DISK}", scenario.vault),
        } },
        "spec": {
            "storageClassName": "csi", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": e2e::SIZE } },
            "dataSourceRef": {
                "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": SECRET_DISK,
            },
        },
    });
    make(tenant, scenario, "PVCs with forged tokens", "PVCs refused", object).await;
}

/// Two crons: the status of the first, which is being deleted, names the vault's disk as its image; the second causes
/// the controllers to create a DataVolume that clones such an image.
async fn reused(tenant: &Test, scenario: &Scenario, round: u32) {
    let digest = format!("sha256:{}", sha256(format!("{}-{round}", tenant.namespace()).as_bytes()));
    let lure = format!("{NAME}-lure-{round}");
    let url = image(tenant, "lure:latest");
    let registry = json!({ "registry": { "url": url } });
    let mut first = cron(&lure, &registry);
    first["metadata"]["finalizers"] = json!([FINALIZER]);
    make(tenant, scenario, "crons created", "crons refused", first).await;
    let source = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource", "metadata": { "name": lure },
        "spec": { "source": { "pvc": { "namespace": scenario.vault, "name": SECRET_DISK } } },
    });
    let crons = tenant.all_of("cdi.kubevirt.io", "v1beta1", "DataImportCron");
    let _ = crons.delete(&lure, &Default::default()).await;
    make(tenant, scenario, "DataSources created", "DataSources refused", source.clone()).await;
    let sources = tenant.all_of("cdi.kubevirt.io", "v1beta1", "DataSource");
    // The controllers may have created it before.
    let patch = Patch::Merge(json!({ "spec": source["spec"] }));
    let _ = sources.patch(&lure, &PatchParams::default(), &patch).await;
    let status = json!({ "status": {
        "currentImports": [{ "DataVolumeName": SECRET_DISK, "Digest": digest }],
        "lastImportedPVC": { "namespace": scenario.vault, "name": SECRET_DISK },
    } });
    patch_cron(tenant, &lure, &status).await;

    let mut second = cron(&format!("{NAME}-reuse-{round}"), &registry);
    second["metadata"]["annotations"] = json!({ key::PINNED_DIGEST: digest });
    second["spec"]["template"]["metadata"]["annotations"] =
        json!({ request::REUSE_GOLDEN_IMAGE: "true" });
    make(tenant, scenario, "crons created", "crons refused", second).await;
    scenario.count("reuses of a foreign disk tried");
}

/// Fails if a tenant has a DataVolume that may be cloned from the vault, or a PVC with the content of the secret disk.
/// Reads as `admin`, since a thief may delete objects.
pub async fn check(admin: &Test, tenants: &[Test], scenario: &Scenario) -> Result<()> {
    let everything = ListParams::default();
    let mut stolen = Vec::new();
    for tenant in tenants {
        let namespace = tenant.namespace();
        let volumes = kube::Api::<DataVolume>::namespaced(admin.client(), namespace);
        for volume in volumes.list(&everything).await?.items {
            let name = volume.name_any();
            let source = volume.spec.source.as_ref();
            let from = source.and_then(|source| source.pvc.as_ref());
            let is_of_vault = from.is_some_and(|from| from.namespace == scenario.vault);
            if is_of_vault && name.starts_with(NAME) {
                stolen.push(format!("DataVolume {namespace}/{name} is a clone of the vault's"));
            }
        }
        for claim in tenant.all::<PersistentVolumeClaim>().list(&everything).await?.items {
            let name = claim.name_any();
            if name.starts_with(NAME) && is_bound(&claim) && holds_secret(tenant, &name).await? {
                stolen.push(format!("PVC {namespace}/{name} holds the secret"));
            }
        }
    }
    ensure!(stolen.is_empty(), "tenants took what is not theirs: {}", stolen.join(", "));
    Ok(())
}

/// Whether a PVC's disk begins as the secret one does.
pub async fn holds_secret(tenant: &Test, claim: &str) -> Result<bool> {
    let secret = secret();
    let found = tenant.read(claim, secret.len() as u64).await?;
    Ok(found.starts_with(&sha256(&secret)))
}
