//! A disk that an administrator moves to a tenant with an ObjectTransfer, after its content was replaced. The tenant then has
//! its DataVolume filled again, from the source that the DataVolume once was cloned from.

use anyhow::{Result, ensure};
use api::annotations::request::PRE_POPULATED;
use api::v1beta1::DataVolume;
use e2e::{PodPlan, Test, is_bound, volume};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch};
use kube::api::{PatchParams, PostParams};
use serde_json::json;

use super::thief::holds_secret;
use crate::scenario::{SECRET_DISK, Scenario, gone};

const NAME: &str = "handout";

/// A clone of the secret disk with other content, which is transferred to a tenant.
pub struct Handout<'a> {
    tenant: &'a Test,
    transfer: String,
}

impl<'a> Handout<'a> {
    /// Clones, overwrites and transfers it, with the administrator's permissions.
    pub async fn move_to(tenant: &'a Test, vault: &Test) -> Result<Self> {
        let source = json!({ "pvc": { "namespace": vault.namespace(), "name": SECRET_DISK } });
        vault.apply(volume(NAME, "csi", "Block", source)).await?;
        vault.succeeded(NAME).await?;
        let fill = ["fill", "/disk", "all", "nothing secret"];
        PodPlan::new("fill", &fill).device(NAME, "/disk").output(vault).await?;
        vault.all::<Pod>().delete("fill", &DeleteParams::default()).await?;
        vault.wait_until_gone(&vault.all::<Pod>(), "fill").await?;
        let name = format!("{NAME}-{}", vault.namespace());
        let transfer = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "ObjectTransfer",
            "metadata": { "name": name },
            "spec": {
                "source": { "kind": "DataVolume", "namespace": vault.namespace(), "name": NAME },
                "target": { "namespace": tenant.namespace() },
            },
        });
        transfers(vault).create(&PostParams::default(), &serde_json::from_value(transfer)?).await?;
        let is_over = |object: &DynamicObject| object.data["status"]["phase"] == "Complete";
        vault.wait_among(&transfers(vault), &name, "complete", is_over).await?;
        Ok(Self { tenant, transfer: name })
    }

    /// The tenant deletes the PVC and removes the annotation that it was populated.
    pub async fn attack(&self, scenario: &Scenario) -> Result<()> {
        let volumes = self.tenant.all::<DataVolume>();
        let annotations = json!({ PRE_POPULATED: null });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        let patched = volumes.patch(NAME, &PatchParams::default(), &patch).await;
        scenario.count(if patched.is_ok() { "refills demanded" } else { "refills refused" });
        let claims = self.tenant.all::<PersistentVolumeClaim>();
        claims.delete(NAME, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Fails if the tenant has the secret now.
    pub async fn check(&self, vault: &Test) -> Result<()> {
        let claims = self.tenant.all::<PersistentVolumeClaim>();
        if claims.get_opt(NAME).await?.is_some_and(|claim| is_bound(&claim)) {
            let is_secret = holds_secret(self.tenant, NAME).await?;
            ensure!(
                !is_secret,
                "the PVC {NAME} that was transferred holds what it was cloned from"
            );
        }
        gone(transfers(vault).delete(&self.transfer, &DeleteParams::default()).await)
    }
}

fn transfers(vault: &Test) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "ObjectTransfer");
    Api::all_with(vault.client(), &ApiResource::from_gvk(&kind))
}
