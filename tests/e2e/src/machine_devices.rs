//! The devices of virtual machines that the tests boot.

use serde_json::{Value, json};

/// `domain.devices` of a VirtualMachineInstance with these disks and no other devices than it needs: one processor emulates all of them.
pub fn machine_devices(disks: &[&str]) -> Value {
    let device = |disk: &&str| json!({ "name": disk, "disk": { "bus": "virtio" } });
    json!({
        "autoattachGraphicsDevice": false,
        "autoattachMemBalloon": false,
        "autoattachPodInterface": false,
        "disks": disks.iter().map(device).collect::<Vec<_>>(),
    })
}
