//! Disks that KubeVirt has cloned: from DataSources, for a copy of a machine, and with permissions of the machine's account.

use anyhow::{Result, ensure};
use api::v1beta1::DataVolume;
use e2e::Test;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use serde_json::json;

use crate::vm::{Vm, manifest};
use crate::world::{
    DATA_SIZE, DEVICE, GUEST_SIZE, data_disk, data_source_is_ready, guest_disk, guest_server, http,
    of_data_source, run_with_machines, volume,
};

/// The name of a DataSource, and of the DataVolume that it refers to.
pub const GOLDEN: &str = "golden";

/// A disk of the guest, and a DataSource that refers to it.
pub async fn create_golden_image(test: &Test) -> Result<()> {
    let server = guest_server()?;
    test.apply(volume(GOLDEN, DEVICE, GUEST_SIZE, http(&server))).await?;
    test.succeeded(GOLDEN).await?;
    let source = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": { "name": GOLDEN },
        "spec": { "source": { "pvc": { "name": GOLDEN, "namespace": test.namespace() } } },
    });
    test.apply(source).await?;
    data_source_is_ready(test, GOLDEN).await
}

#[test]
fn vm_boots_from_a_clone_of_a_data_source() {
    run_with_machines("vm-clone", async |test| {
        create_golden_image(&test).await?;
        let template = of_data_source("root", DEVICE, GUEST_SIZE, GOLDEN);
        let vm = Vm::create(&test, manifest("guest", &["root"], &[template])).await?;
        vm.sees(&[&guest_disk()?]).await?;
        vm.delete().await?;
        test.clones_leave(&[GOLDEN], &[]).await
    });
}

#[test]
fn vm_clones_from_another_namespace_with_permission_only() {
    run_with_machines("vm-clone-far", async |test| {
        let images = test.other_namespace().await?;
        create_golden_image(&images).await?;
        let mut template = of_data_source("root", DEVICE, GUEST_SIZE, GOLDEN);
        template["spec"]["sourceRef"]["namespace"] = images.namespace().into();
        let vm = Vm::create(&test, manifest("guest", &["root"], &[template])).await?;
        let reason = "UnauthorizedDataVolumeCreate";
        let message = test.event_message_of("VirtualMachine", "guest", reason).await?;
        ensure!(message.contains("default"), "the account is not named: {message}");
        let volumes = test.all::<DataVolume>().list(&ListParams::default()).await?.items;
        ensure!(volumes.is_empty(), "{:?}", volumes[0].name_any());
        let role = json!({
            "metadata": { "name": "clone" },
            "rules": [{
                "apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"],
                "verbs": ["create"],
            }],
        });
        images.create::<Role>(role).await?;
        let binding = json!({
            "metadata": { "name": "clone" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "clone",
            },
            "subjects": [{
                "kind": "ServiceAccount", "name": "default", "namespace": test.namespace(),
            }],
        });
        images.create::<RoleBinding>(binding).await?;
        // KubeVirt waits longer after each refusal, but not after a change.
        vm.change(json!({ "metadata": { "labels": { "retry": "now" } } })).await?;
        vm.sees(&[&guest_disk()?]).await?;
        vm.delete().await?;
        test.clones_leave(&[], &[]).await?;
        images.clones_leave(&[GOLDEN], &[]).await
    });
}

#[test]
fn cloned_vm_boots_with_copies_of_all_disks() {
    run_with_machines("vm-copy", async |test| {
        let (server, data) = (guest_server()?, e2e::server(&data_disk()));
        let templates = [
            volume("root", DEVICE, GUEST_SIZE, http(&server)),
            volume("data", DEVICE, DATA_SIZE, http(&data)),
        ];
        let vm = Vm::create(&test, manifest("guest", &["root", "data"], &templates)).await?;
        vm.is("Running").await?;
        vm.stop().await?;
        test.apply(json!({
            "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone",
            "metadata": { "name": "clone" },
            "spec": {
                "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "guest" },
                "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "copy" },
            },
        }))
        .await?;
        let clones = test.all_of("clone.kubevirt.io", "v1beta1", "VirtualMachineClone");
        let has_succeeded = |clone: &DynamicObject| clone.data["status"]["phase"] == "Succeeded";
        test.wait_among(&clones, "clone", "Succeeded", has_succeeded).await?;
        vm.delete().await?;
        let copy = Vm::named(&test, "copy");
        copy.start().await?;
        copy.sees(&[&guest_disk()?, &data_disk()]).await?;
        copy.delete().await?;
        test.only_these_are_left(&[]).await
    });
}
