//! A machine whose disk is a clone of the latest golden image.

use anyhow::Result;
use api::v1beta1::DataVolume;
use e2e::files_of_disk;
use kube::api::ListParams;
use serde_json::json;

use crate::vm::Vm;
use crate::world::{
    FILE, GUEST_SIZE, data_source_is_ready, example, guest_disk, run_with_machines, volume,
};

/// As the documented manifest names it.
const DATA_SOURCE: &str = "debian-13";

#[test]
fn vm_boots_from_the_image_of_a_data_import_cron() {
    run_with_machines("vm-golden", async |test| {
        let image = test.push("guest", "latest", files_of_disk(guest_disk()?))?;
        let source = json!({ "registry": { "url": image.url() } });
        let template = volume("any", FILE, GUEST_SIZE, source);
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
            "metadata": { "name": "guest" },
            "spec": {
                "schedule": "0 0 1 1 *", "managedDataSource": DATA_SOURCE,
                "template": { "spec": template["spec"] },
            },
        }))
        .await?;
        data_source_is_ready(&test, DATA_SOURCE).await?;
        for object in example("vm-from-data-source", "")? {
            test.apply(object).await?;
        }
        let vm = Vm::named(&test, "app-server");
        vm.sees(&[&guest_disk()?]).await?;
        vm.delete().await?;
        the_image_is_left(&test).await
    });
}

async fn the_image_is_left(test: &e2e::Test) -> Result<()> {
    let volumes = test.all::<DataVolume>();
    test.wait_until_gone(&volumes, "app-server-root").await?;
    let left = volumes.list(&ListParams::default()).await?.items;
    anyhow::ensure!(left.len() == 1, "there are {} DataVolumes, not the image alone", left.len());
    Ok(())
}
