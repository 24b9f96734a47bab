//! Snapshots of a machine, and what is restored from them: KubeVirt creates the PVCs, and this project adopts them.

use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use api::v1beta1::DataVolume;
use e2e::{PATIENCE, PAUSE, Test};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use crate::vm::{Vm, manifest, with_network};
use crate::world::{
    DATA_SIZE, DEVICE, FILE, GUEST_SIZE, counting_disk, data_disk, example, guest_disk,
    guest_server, http, run_with_machines, volume,
};

const GROUP: &str = "snapshot.kubevirt.io";
/// As the documented manifests name them.
const VM: &str = "web-server";
const SNAPSHOT: &str = "web-server-before-upgrade";

/// The documented manifests: a snapshot, and its restore in place.
fn manifests() -> Result<[Value; 2]> {
    example("vm-snapshot", "")?.try_into().map_err(|_| anyhow!("there are not two manifests"))
}

async fn take_snapshot(test: &Test) -> Result<DynamicObject> {
    let [snapshot, _] = manifests()?;
    test.apply(snapshot).await?;
    let snapshots = test.all_of(GROUP, "v1beta1", "VirtualMachineSnapshot");
    let is_ready = |snapshot: &DynamicObject| snapshot.data["status"]["readyToUse"] == true;
    test.wait_among(&snapshots, SNAPSHOT, "ready", is_ready).await
}

/// Restores the snapshot to a machine, which may be another one.
async fn restore(test: &Test, vm: &str) -> Result<()> {
    let [_, mut restore] = manifests()?;
    restore["metadata"]["name"] = vm.into();
    restore["spec"]["target"]["name"] = vm.into();
    test.apply(restore).await?;
    let restores = test.all_of(GROUP, "v1beta1", "VirtualMachineRestore");
    let is_complete = |restore: &DynamicObject| restore.data["status"]["complete"] == true;
    test.wait_among(&restores, vm, "complete", is_complete).await.map(drop)
}

/// Waits until there are this many DataVolumes, and each has succeeded and owns its PVC.
async fn all_are_adopted(test: &Test, count: usize) -> Result<()> {
    let begin = Instant::now();
    let volumes = loop {
        // Those that were replaced are deleted a little later.
        let volumes = test.all::<DataVolume>().list(&ListParams::default()).await?.items;
        if volumes.len() == count {
            break volumes;
        }
        ensure!(begin.elapsed() < PATIENCE, "{} DataVolumes, not {count}", volumes.len());
        tokio::time::sleep(PAUSE).await;
    };
    for volume in volumes {
        let name = volume.name_any();
        test.succeeded(&name).await?;
        let claim = test.all::<PersistentVolumeClaim>().get(&name).await?;
        let owners = claim.owner_references();
        ensure!(owners.iter().any(|owner| owner.kind == "DataVolume"), "{name}: {owners:?}");
    }
    Ok(())
}

/// The guest counts its boots on the second disk: a restored one has counted fewer.
#[test]
fn snapshot_is_restored_in_place_and_to_a_new_vm() {
    run_with_machines("vm-restore", async |test| {
        let (server, data) = (guest_server()?, e2e::server(&counting_disk(0)));
        let templates = [
            volume("root", DEVICE, GUEST_SIZE, http(&server)),
            volume("data", DEVICE, DATA_SIZE, http(&data)),
        ];
        let vm = Vm::create(&test, manifest(VM, &["root", "data"], &templates)).await?;
        let root = guest_disk()?;
        vm.sees(&[&root, &counting_disk(1)]).await?;
        take_snapshot(&test).await?;
        vm.stop().await?;
        vm.start().await?;
        vm.sees(&[&root, &counting_disk(2)]).await?;
        vm.stop().await?;
        vm.start().await?;
        vm.sees(&[&root, &counting_disk(3)]).await?;
        vm.stop().await?;

        restore(&test, VM).await?;
        all_are_adopted(&test, 2).await?;
        vm.start().await?;
        vm.sees(&[&root, &counting_disk(2)]).await?;
        vm.delete().await?;

        restore(&test, "another").await?;
        all_are_adopted(&test, 2).await?;
        let another = Vm::named(&test, "another");
        another.start().await?;
        another.sees(&[&root, &counting_disk(2)]).await?;
        another.delete().await?;
        let snapshots = test.all_of(GROUP, "v1beta1", "VirtualMachineSnapshot");
        snapshots.delete(SNAPSHOT, &Default::default()).await?;
        test.wait_until_gone(&snapshots, SNAPSHOT).await?;
        test.only_these_are_left(&[]).await
    });
}

#[test]
fn snapshot_includes_a_file_system_that_was_attached() {
    run_with_machines("vm-frozen", async |test| {
        let (server, data) = (guest_server()?, e2e::server(&data_disk()));
        let root = volume("root", DEVICE, GUEST_SIZE, http(&server));
        let vm = Vm::create(&test, with_network(manifest(VM, &["root"], &[root]))).await?;
        test.apply(volume("data", FILE, DATA_SIZE, http(&data))).await?;
        test.succeeded("data").await?;
        vm.sees(&[&guest_disk()?]).await?;
        test.virtctl(&["addvolume", VM, "--volume-name=data", "--bus=virtio"])?;
        vm.sees(&[&guest_disk()?, &data_disk()]).await?;
        let snapshot = take_snapshot(&test).await?;
        let included = &snapshot.data["status"]["snapshotVolumes"]["includedVolumes"];
        ensure!(included.as_array().is_some_and(|all| all.len() == 2), "{included}");
        vm.delete().await
    });
}
