//! Forklift's populators: PVCs that name a disk of oVirt or an image of OpenStack, from services that the test
//! simulates.

use anyhow::{Result, ensure};
use e2e::{HOST, Test, is_bound, run_installed};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use testkit::imageio::DISK;
use testkit::openstack::IMAGE;
use testkit::{Openstack, OpenstackState, Ovirt, OvirtState};

use crate::world::{SIZE, disk};

const GROUP: &str = "forklift.cdi.kubevirt.io";
const OVIRT: &str = "OvirtVolumePopulator";
const OPENSTACK: &str = "OpenstackVolumePopulator";

async fn secret(test: &Test, name: &str, data: Value) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data,
    });
    test.apply(secret).await.map(|_| ())
}

async fn populator(test: &Test, kind: &str, name: &str, spec: Value) -> Result<()> {
    test.apply(json!({
        "apiVersion": format!("{GROUP}/v1beta1"), "kind": kind,
        "metadata": { "name": name }, "spec": spec,
    }))
    .await
    .map(|_| ())
}

/// A PVC that names a populator.
async fn claim(test: &Test, name: &str, kind: &str, source: &str, mode: &str) -> Result<()> {
    test.apply(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": {
            "storageClassName": "csi", "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": SIZE } },
            "dataSourceRef": { "apiGroup": GROUP, "kind": kind, "name": source },
        },
    }))
    .await
    .map(|_| ())
}

async fn is_filled(test: &Test, name: &str) -> Result<()> {
    test.wait(name, "bound", is_bound).await?;
    let has_progress = |claim: &PersistentVolumeClaim| {
        let key = "cdi.kubevirt.io/storage.populator.progress";
        claim.annotations().get(key).is_some_and(|progress| progress == "100.0%")
    };
    test.wait(name, "complete", has_progress).await?;
    test.holds(name, &disk()).await
}

#[test]
fn ovirt_populator_fills_pvcs() {
    run_installed("forklift-ovirt", async |test| {
        let state = || OvirtState { bytes: disk(), ..OvirtState::default() };
        let ovirt = Ovirt::start_on(HOST, state());
        let keys = json!({
            "user": "admin@internal", "password": "hush", "insecureSkipVerify": "true",
        });
        secret(&test, "engine", keys).await?;
        let spec = json!({ "engineUrl": ovirt.endpoint(), "secretRef": "engine", "diskId": DISK });
        populator(&test, OVIRT, "disk", spec).await?;
        for (name, mode) in [("file", "Filesystem"), ("device", "Block")] {
            claim(&test, name, OVIRT, "disk", mode).await?;
            is_filled(&test, name).await?;
        }
        ensure!(ovirt.state().actions.iter().filter(|action| *action == "finalize").count() == 2);
        test.only_these_are_left(&["file", "device"]).await
    });
}

#[test]
fn openstack_populator_fills_pvcs() {
    run_installed("forklift-stack", async |test| {
        let state = || OpenstackState { bytes: disk(), ranges: true, ..OpenstackState::default() };
        let openstack = Openstack::start_on(HOST, state());
        let keys = json!({
            "username": "anna", "password": "hush", "projectName": "vms", "domainName": "Default",
            "regionName": "one",
        });
        secret(&test, "cloud", keys).await?;
        let spec =
            json!({ "identityUrl": openstack.endpoint(), "secretRef": "cloud", "imageId": IMAGE });
        populator(&test, OPENSTACK, "image", spec).await?;
        for (name, mode) in [("file", "Filesystem"), ("device", "Block")] {
            claim(&test, name, OPENSTACK, "image", mode).await?;
            is_filled(&test, name).await?;
        }
        test.only_these_are_left(&["file", "device"]).await
    });
}

/// The migration is planned before the credentials are right, as in forklift's own plans.
#[test]
fn populator_retries_until_its_secret_is_right() {
    run_installed("forklift-retry", async |test| {
        let state = OpenstackState { bytes: disk(), ..OpenstackState::default() };
        let openstack = Openstack::start_on(HOST, state);
        let keys = |password: &str| {
            json!({
                "username": "anna", "password": password, "projectName": "vms",
                "domainName": "Default", "regionName": "one",
            })
        };
        secret(&test, "cloud", keys("wrong")).await?;
        let spec =
            json!({ "identityUrl": openstack.endpoint(), "secretRef": "cloud", "imageId": IMAGE });
        populator(&test, OPENSTACK, "image", spec).await?;
        claim(&test, "disk", OPENSTACK, "image", "Block").await?;
        let message =
            test.event_message_of("PersistentVolumeClaim", "disk", "importFailed").await?;
        ensure!(!message.contains("wrong"), "the password is in an event: {message}");
        let corrected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cloud" },
            "stringData": keys("hush"),
        });
        test.kubectl_ok(
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
            &corrected.to_string(),
        )?;
        is_filled(&test, "disk").await?;
        let pods = test.all::<Pod>().list(&ListParams::default()).await?.items;
        let left: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
        ensure!(!left.iter().any(|name| name.starts_with("populate-")), "{left:?}");
        Ok(())
    });
}
