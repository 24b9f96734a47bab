//! Disks of `dataVolumeTemplates`: imported for a machine, and deleted with it.

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Test, phase, server};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use testkit::require_tool;

use crate::vm::{Vm, manifest};
use crate::world::{
    GUEST_SIZE, LATE_FILE, example, guest_disk, guest_server, run_with_machines, volume,
};

/// Deletes a machine that owns all DataVolumes of the namespace, and waits until nothing of it is left.
async fn delete_all(test: &Test, vm: Vm<'_>) -> Result<()> {
    for volume in test.all::<DataVolume>().list(&ListParams::default()).await?.items {
        let owners = volume.owner_references();
        let owner =
            owners.first().with_context(|| format!("{} has no owner", volume.name_any()))?;
        ensure!(owner.kind == "VirtualMachine" && owner.controller == Some(true), "{owner:?}");
    }
    vm.delete().await?;
    for volume in test.all::<DataVolume>().list(&ListParams::default()).await?.items {
        test.wait_until_gone(&test.all::<DataVolume>(), &volume.name_any()).await?;
    }
    test.only_these_are_left(&[]).await
}

#[test]
fn vm_boots_from_the_disks_of_its_templates_and_deletes_them() {
    run_with_machines("vm-templates", async |test| {
        let server = guest_server()?;
        for object in example("vm-import-and-blank-disk", &server.url_of("/guest.qcow2"))? {
            test.apply(object).await?;
        }
        let vm = Vm::named(&test, "web-server");
        let provisioning = vm.is("Provisioning").await;
        let pods = test.all::<Pod>().list(&ListParams::default().labels("kubevirt.io")).await?;
        provisioning?;
        ensure!(pods.items.is_empty(), "the machine was started before its disks were populated");
        vm.is("Running").await?;
        for name in ["web-server-root", "web-server-data"] {
            let volume = test.all::<DataVolume>().get(name).await?;
            ensure!(phase(&volume) == "Succeeded", "{name}: {:?}", volume.status);
        }
        vm.sees(&[&guest_disk()?, &vec![0; 16 << 20]]).await?;
        delete_all(&test, vm).await
    });
}

#[test]
fn vm_is_the_first_consumer_of_its_disk() {
    run_with_machines("vm-late", async |test| {
        let Some(gzip) = require_tool("gzip") else { return Ok(()) };
        let guest = cluster::guest::disk()?;
        let server = server(&gzip.run([std::ffi::OsStr::new("--stdout"), guest.as_os_str()]));
        let source = json!({ "http": { "url": server.url_of("/guest.raw.gz") } });
        let mut halted =
            manifest("guest", &["root"], &[volume("root", LATE_FILE, GUEST_SIZE, source)]);
        halted["spec"]["runStrategy"] = "Halted".into();
        let vm = Vm::create(&test, halted).await?;
        let waits = |volume: &DataVolume| phase(volume) == "PendingPopulation";
        test.wait("root", "waiting for a consumer", waits).await?;
        vm.start().await?;
        vm.sees(&[&guest_disk()?]).await?;
        test.succeeded("root").await?;
        delete_all(&test, vm).await
    });
}

/// A disk that exists is adopted, as after a backup was restored.
#[test]
fn template_adopts_the_pvc_of_its_name() {
    run_with_machines("vm-adopts", async |test| {
        let server = guest_server()?;
        let source = json!({ "http": { "url": server.url_of("/guest.qcow2") } });
        let template = volume("root", crate::world::DEVICE, GUEST_SIZE, source);
        test.apply(template.clone()).await?;
        test.succeeded("root").await?;
        let orphan = kube::api::DeleteParams {
            propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
            ..Default::default()
        };
        test.all::<DataVolume>().delete("root", &orphan).await?;
        test.wait_until_gone(&test.all::<DataVolume>(), "root").await?;
        let claims = test.all::<PersistentVolumeClaim>();
        let uid = claims.get("root").await?.uid();
        let bytes = server.body_bytes_sent();
        let vm = Vm::create(&test, manifest("guest", &["root"], &[template])).await?;
        vm.sees(&[&guest_disk()?]).await?;
        ensure!(claims.get("root").await?.uid() == uid, "the PVC was replaced");
        ensure!(server.body_bytes_sent() == bytes, "the image was imported again");
        delete_all(&test, vm).await
    });
}
