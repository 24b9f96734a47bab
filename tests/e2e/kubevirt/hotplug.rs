//! Disks that are attached to a running machine, and removed from it.

use crate::vm::{Vm, manifest, with_network};
use crate::world::{
    DATA_SIZE, DEVICE, GUEST_SIZE, LATE_FILE, data_disk, guest_disk, guest_server, http,
    run_with_machines, volume,
};
use serde_json::json;

#[test]
fn disks_are_attached_to_a_running_vm_and_removed_again() {
    run_with_machines("vm-hotplug", async |test| {
        let (server, data) = (guest_server()?, e2e::server(&data_disk()));
        let root = volume("root", DEVICE, GUEST_SIZE, http(&server));
        let vm = Vm::create(&test, with_network(manifest("guest", &["root"], &[root]))).await?;
        test.apply(volume("empty", DEVICE, DATA_SIZE, json!({ "blank": {} }))).await?;
        test.apply(volume("late", LATE_FILE, DATA_SIZE, http(&data))).await?;
        let (root, empty, late) = (guest_disk()?, vec![0; data_disk().len()], data_disk());
        vm.sees(&[&root]).await?;
        test.virtctl(&["addvolume", "guest", "--volume-name=empty", "--bus=virtio"])?;
        vm.sees(&[&root, &empty]).await?;
        // The pod that attaches it is its first consumer.
        test.virtctl(&["addvolume", "guest", "--volume-name=late", "--bus=virtio"])?;
        vm.sees(&[&root, &empty, &late]).await?;
        test.succeeded("late").await?;
        test.virtctl(&["removevolume", "guest", "--volume-name=empty"])?;
        vm.sees(&[&root, &late]).await?;
        vm.delete().await?;
        test.holds("late", &late).await?;
        test.only_these_are_left(&["empty", "late"]).await
    });
}
