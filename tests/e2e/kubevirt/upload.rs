//! A machine whose disk a user has uploaded.

use crate::vm::{Vm, manifest};
use crate::world::{DEVICE, GUEST_SIZE, guest_disk, run_with_machines};

#[test]
fn vm_boots_from_an_uploaded_disk() {
    run_with_machines("vm-upload", async |test| {
        let address = test.service_address("cdi-uploadproxy").await?;
        test.virtctl(&[
            "image-upload",
            "dv",
            "root",
            &format!("--size={GUEST_SIZE}"),
            &format!("--image-path={}", cluster::guest::disk()?.display()),
            &format!("--uploadproxy-url=https://{address}"),
            "--insecure",
            &format!("--storage-class={}", DEVICE.class),
            "--volume-mode=block",
        ])?;
        test.succeeded("root").await?;
        let vm = Vm::create(&test, manifest("guest", &["root"], &[])).await?;
        vm.sees(&[&guest_disk()?]).await?;
        vm.delete().await?;
        test.only_these_are_left(&["root"]).await
    });
}
