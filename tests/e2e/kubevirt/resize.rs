//! Disks that grow.

use cluster::guest::DiskSeen;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::vm::{Vm, manifest};
use crate::world::{
    DATA_SIZE, DEVICE, GUEST_SIZE, guest_disk, guest_server, http, run_with_machines, volume,
};

/// Twice that of the disk before.
const LARGER: &str = "32Mi";
const LARGER_LEN: usize = 32 << 20;

/// libvirt 9 does not change the size of a device under a running machine: KubeVirt's request takes version 10.
#[test]
fn guest_sees_after_its_restart_that_a_disk_has_grown() {
    run_with_machines("vm-resize", async |test| {
        let server = guest_server()?;
        let templates = [
            volume("root", DEVICE, GUEST_SIZE, http(&server)),
            volume("data", DEVICE, DATA_SIZE, json!({ "blank": {} })),
        ];
        let vm = Vm::create(&test, manifest("guest", &["root", "data"], &templates)).await?;
        let root = DiskSeen::with_content(&guest_disk()?);
        let empty = |len| DiskSeen::with_content(&vec![0; len]);
        vm.sees_exactly(&[root.clone(), empty(LARGER_LEN / 2)]).await?;
        let larger = json!({ "spec": { "resources": { "requests": { "storage": LARGER } } } });
        let claims = test.all::<PersistentVolumeClaim>();
        claims.patch("data", &PatchParams::default(), &Patch::Merge(larger)).await?;
        let has_grown = |claim: &PersistentVolumeClaim| {
            let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
            capacity.and_then(|all| all.get("storage")).is_some_and(|size| size.0 == LARGER)
        };
        test.wait("data", "larger", has_grown).await?;
        vm.stop().await?;
        vm.start().await?;
        vm.sees_exactly(&[root, empty(LARGER_LEN)]).await?;
        vm.delete().await?;
        test.only_these_are_left(&[]).await
    });
}
