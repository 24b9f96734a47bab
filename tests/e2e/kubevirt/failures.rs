//! Imports that fail, as the status of a machine shows them.

use api::v1beta1::DataVolume;
use e2e::condition_is_false_with;
use testkit::Fault;

use crate::vm::{Vm, manifest};
use crate::world::{DEVICE, GUEST_SIZE, guest_disk, guest_server, http, run_with_machines, volume};

#[test]
fn vm_reports_a_failed_import_and_starts_when_the_image_is_there() {
    run_with_machines("vm-mended", async |test| {
        let server = guest_server()?.always(Fault::Status(404));
        let template = volume("root", DEVICE, GUEST_SIZE, http(&server));
        let vm = Vm::create(&test, manifest("guest", &["root"], &[template])).await?;
        vm.is("DataVolumeError").await?;
        // The condition is true again while the next attempt runs.
        let names_cause = |volume: &DataVolume| condition_is_false_with(volume, "Running", "404");
        test.wait("root", "failed with its cause in the condition", names_cause).await?;
        server.heal();
        vm.sees(&[&guest_disk()?]).await?;
        vm.delete().await?;
        test.only_these_are_left(&[]).await
    });
}
