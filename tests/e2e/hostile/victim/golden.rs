//! A golden image that follows a tag.

use anyhow::Result;
use api::annotations::cron as key;
use api::v1beta1::{DataImportCron, DataSource};
use e2e::{Pushed, Test, files_of_disk};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Prepared;
use super::prepare::disk;

/// Of the cron and of the DataSource.
pub const NAME: &str = "golden-image";
/// When everything was due.
const PAST: &str = "2026-01-01T00:00:00Z";
/// Of a digest, in names.
const DIGEST_PART: usize = 12;

/// Has the tag name an image that differs from those of all other numbers.
pub fn publish(tenant: &Test, number: usize) -> Result<Pushed> {
    let mut bytes = disk();
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    tenant.push("golden", "latest", files_of_disk(bytes))
}

/// Follows the tag, and keeps no image but the newest.
pub fn cron(image: &Pushed) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": NAME },
        "spec": {
            "schedule": "0 0 1 1 *", "managedDataSource": NAME, "importsToKeep": 1,
            "template": { "spec": { "source": { "registry": { "url": image.url() } }, "storage": {
                "storageClassName": "csi", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": e2e::SIZE } },
            } } },
        },
    })
}

/// Waits until the DataSource refers to the image, ready to be cloned.
pub async fn follows(tenant: &Test, image: &Pushed) -> Result<()> {
    let digest = image.digest.trim_start_matches("sha256:");
    let wanted = format!("{NAME}-{}", &digest[..DIGEST_PART]);
    let is_so = |source: &DataSource| {
        let conditions = source.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let is_ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
        let claim = source.spec.source.pvc.as_ref();
        is_ready && claim.is_some_and(|claim| claim.name == wanted)
    };
    tenant.wait(NAME, &wanted, is_so).await.map(|_| ())
}

/// Moves the tag, requests a poll as documented, and waits until the new image is imported.
pub async fn refresh(prepared: &Prepared, number: usize) -> Result<()> {
    let tenant = prepared.tenant.clone();
    let image = tokio::task::spawn_blocking(move || publish(&tenant, number + 1)).await??;
    let patch = json!({ "metadata": { "annotations": { key::NEXT_TIME: PAST } } });
    let crons = prepared.tenant.all::<DataImportCron>();
    crons.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
    follows(&prepared.tenant, &image).await
}
