//! Sets up the victim before the attacks: classes with one clone method each, a disk to clone, an image in the
//! registry, a golden image with a DataImportCron, and servers.

use std::sync::Arc;

use anyhow::Result;
use api::v1beta1::StorageProfile;
use e2e::{Test, files_of_disk, imported, server};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use testkit::{FaultServer, MIB, pattern};

use super::golden;

/// A class for each clone method, all of the one driver that supports all of them.
const CLASSES: [(&str, &str); 3] =
    [(BY_CLONE, "csi-clone"), (BY_SNAPSHOT, "snapshot"), (BY_COPY, "copy")];
pub const BY_CLONE: &str = "csi-by-clone";
pub const BY_SNAPSHOT: &str = "csi-by-snapshot";
pub const BY_COPY: &str = "csi-by-copy";
const DRIVER: &str = "loop.csi.cdi.test";

/// The disk that is cloned.
pub const GOLDEN: &str = "golden";

/// The objects and servers of the victim.
pub struct Prepared {
    /// The victim.
    pub tenant: Arc<Test>,
    pub server: FaultServer,
    /// The image in the registry, as a source names it.
    pub image: String,
    /// The address of the upload proxy.
    pub proxy: std::net::IpAddr,
}

/// The content of all its disks, except the golden image of the DataImportCron.
pub fn disk() -> Vec<u8> {
    pattern(8 * MIB)
}

impl Prepared {
    /// Prepares it.
    pub async fn new(admin: &Test, tenant: Arc<Test>) -> Result<Self> {
        for (class, strategy) in CLASSES {
            make_class(admin, class, strategy).await?;
        }
        let server = server(&disk());
        tenant.apply(imported(GOLDEN, "csi", "Block", &server)).await?;
        tenant.succeeded(GOLDEN).await?;
        let image = tenant.push("disk", "1", files_of_disk(disk()))?.url();
        let first = golden::publish(&tenant, 0)?;
        tenant.apply(golden::cron(&first)).await?;
        golden::follows(&tenant, &first).await?;
        let proxy = admin.service_address("cdi-uploadproxy").await?;
        Ok(Self { tenant, server, image, proxy })
    }
}

async fn make_class(admin: &Test, class: &str, strategy: &str) -> Result<()> {
    let object = json!({
        "metadata": { "name": class }, "provisioner": DRIVER, "allowVolumeExpansion": true,
    });
    match admin.create_global::<StorageClass>(object).await {
        // Of an earlier run, or of the tests of clones, which have the same ones.
        Err(error) if format!("{error:#}").contains("already exists") => {}
        outcome => outcome.map(drop)?,
    }
    let profiles = Api::<StorageProfile>::all(admin.client());
    admin.wait_among(&profiles, class, "there", |_| true).await?;
    let patch = json!({ "spec": { "cloneStrategy": strategy } });
    profiles.patch(class, &PatchParams::default(), &Patch::Merge(patch)).await?;
    let is_taken = |profile: &StorageProfile| {
        let status = profile.status.as_ref();
        status.and_then(|status| status.clone_strategy.as_deref()) == Some(strategy)
    };
    admin.wait_among(&profiles, class, "taken over", is_taken).await.map(|_| ())
}
