//! Machines that are deleted at a moment of their life: nothing of them remains.

use anyhow::{Result, ensure};
use api::v1beta1::{DataVolume, StorageProfile};
use e2e::{Test, phase};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use testkit::{Fault, KIB};

use crate::clones::{GOLDEN, create_golden_image};
use crate::vm::{Vm, manifest};
use crate::world::{
    DEVICE, GUEST_SIZE, Storage, guest_disk, guest_server, http, of_data_source, run_with_machines,
    volume,
};

/// A device of a driver that never responds to the request for a clone, and that is never abandoned.
const HANGING: Storage = Storage { class: "vm-hangs", mode: "Block" };

async fn create_hanging_class(test: &Test) -> Result<()> {
    let class = json!({
        "metadata": { "name": HANGING.class },
        "provisioner": "loop.csi.cdi.test", "parameters": { "copies": "never" },
    });
    test.create_global::<StorageClass>(class).await?;
    let profiles = Api::<StorageProfile>::all(test.client());
    test.wait_among(&profiles, HANGING.class, "there", |_| true).await?;
    let patch = json!({
        "metadata": { "annotations": { "cdi.kubevirt.io/cloneFallbackAfter": "never" } },
        "spec": { "cloneStrategy": "csi-clone" },
    });
    profiles.patch(HANGING.class, &PatchParams::default(), &Patch::Merge(patch)).await?;
    let is_known = |profile: &StorageProfile| {
        let status = profile.status.as_ref();
        status.and_then(|status| status.clone_strategy.as_deref()) == Some("csi-clone")
    };
    test.wait_among(&profiles, HANGING.class, "taken over", is_known).await.map(drop)
}

/// Deletes the machine, and waits until only the golden image is left.
async fn delete(test: &Test, vm: Vm<'_>) -> Result<()> {
    vm.delete().await?;
    test.clones_leave(&[GOLDEN], &[]).await?;
    let volumes = test.all::<DataVolume>().list(&ListParams::default()).await?.items;
    let names: Vec<_> = volumes.iter().map(ResourceExt::name_any).collect();
    ensure!(names == [GOLDEN], "{names:?}");
    Ok(())
}

#[test]
fn vm_deleted_during_an_import_or_a_clone_or_when_it_runs_leaves_nothing() {
    run_with_machines("vm-deleted", async |test| {
        create_golden_image(&test).await?;
        create_hanging_class(&test).await?;
        let is_in = |wanted: &'static str| move |volume: &DataVolume| phase(volume) == wanted;

        let server = guest_server()?.always(Fault::StallAfter(64 * KIB));
        let template = volume("imported", DEVICE, GUEST_SIZE, http(&server));
        let vm = Vm::create(&test, manifest("importing", &["imported"], &[template])).await?;
        test.wait("imported", "being imported", is_in("ImportInProgress")).await?;
        delete(&test, vm).await?;

        let template = of_data_source("cloned", HANGING, GUEST_SIZE, GOLDEN);
        let vm = Vm::create(&test, manifest("cloning", &["cloned"], &[template])).await?;
        test.wait("cloned", "being cloned", is_in("CSICloneInProgress")).await?;
        delete(&test, vm).await?;

        server.heal();
        let templates = [
            volume("imported", DEVICE, GUEST_SIZE, http(&server)),
            of_data_source("cloned", DEVICE, GUEST_SIZE, GOLDEN),
        ];
        let vm = manifest("running", &["imported", "cloned"], &templates);
        let vm = Vm::create(&test, vm).await?;
        vm.sees(&[&guest_disk()?, &guest_disk()?]).await?;
        delete(&test, vm).await?;
        test.remove_global::<StorageClass>(HANGING.class).await
    });
}
