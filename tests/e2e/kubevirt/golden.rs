//! Machines whose disks are clones of golden images.

use anyhow::{Result, ensure};
use api::annotations::cron::NEXT_TIME;
use api::v1beta1::{DataImportCron, DataSource, DataVolume};
use e2e::{Pushed, Test, files_of_disk};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::vm::{Vm, manifest, with_network};
use crate::world::{
    DATA_SIZE, DEVICE, FILE, GUEST_SIZE, Storage, data_source_is_ready, example, guest_disk,
    of_data_source, run_with_machines, volume,
};

const CRON: &str = "guest";
/// As the documented manifest of a machine names it.
pub const DATA_SOURCE: &str = "debian-13";
/// A time at which each poll is due.
const PAST: &str = "2026-01-01T00:00:00Z";
/// Where the disk of the guest has nothing, in its first MiB.
const FREE_AT: usize = 64 << 10;

/// A DataImportCron of an image with the guest, which is not polled again during a test unless requested.
pub fn image_cron(image: &Pushed, storage: Storage) -> Value {
    let source = json!({ "registry": { "url": image.url() } });
    let template = volume("any", storage, GUEST_SIZE, source);
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": CRON },
        "spec": {
            "schedule": "0 0 1 1 *", "managedDataSource": DATA_SOURCE,
            "template": { "spec": template["spec"] },
        },
    })
}

#[test]
fn vm_boots_from_the_image_of_a_data_import_cron() {
    run_with_machines("vm-golden", async |test| {
        let image = test.push("guest", "latest", files_of_disk(guest_disk()?))?;
        test.apply(image_cron(&image, FILE)).await?;
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

async fn the_image_is_left(test: &Test) -> Result<()> {
    let volumes = test.all::<DataVolume>();
    test.wait_until_gone(&volumes, "app-server-root").await?;
    let left = volumes.list(&ListParams::default()).await?.items;
    ensure!(left.len() == 1, "there are {} DataVolumes, not the image alone", left.len());
    Ok(())
}

/// The PVC that the DataSource refers to.
fn reference_of(source: &DataSource) -> Option<String> {
    source.spec.source.pvc.as_ref().map(|claim| claim.name.clone())
}

/// Requests a poll, and waits until the DataSource refers to another image than this one.
async fn refresh(test: &Test, old: Option<&str>) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { NEXT_TIME: PAST } } });
    let crons = test.all::<DataImportCron>();
    crons.patch(CRON, &PatchParams::default(), &Patch::Merge(patch)).await?;
    let has_moved = |source: &DataSource| {
        let now = reference_of(source);
        now.is_some() && now.as_deref() != old
    };
    test.wait(DATA_SOURCE, "moved to the new image", has_moved).await?;
    data_source_is_ready(test, DATA_SOURCE).await
}

/// The disk of the guest in a newer image: with a text between the table of partitions and the first of them.
fn newer_guest_disk() -> Result<Vec<u8>> {
    let mut disk = guest_disk()?;
    let text = b"the second image";
    disk[FREE_AT..][..text.len()].copy_from_slice(text);
    Ok(disk)
}

#[test]
fn running_vm_keeps_its_disk_when_its_golden_image_is_refreshed() {
    run_with_machines("vm-refresh", async |test| {
        let first = test.push("guest", "latest", files_of_disk(guest_disk()?))?;
        let mut cron = image_cron(&first, DEVICE);
        // The image of the running machine is deleted as soon as there is another.
        cron["spec"]["importsToKeep"] = 1.into();
        test.apply(cron).await?;
        data_source_is_ready(&test, DATA_SOURCE).await?;
        let sources = test.all::<DataSource>();
        let old = reference_of(&sources.get(DATA_SOURCE).await?);
        let template = |name: &str| of_data_source(name, DEVICE, GUEST_SIZE, DATA_SOURCE);
        let before = with_network(manifest("before", &["old-root"], &[template("old-root")]));
        let before = Vm::create(&test, before).await?;
        before.sees(&[&guest_disk()?]).await?;

        let second = test.push("guest", "latest", files_of_disk(newer_guest_disk()?))?;
        ensure!(second.digest != first.digest, "the tag names the same image again");
        refresh(&test, old.as_deref()).await?;
        if let Some(old) = &old {
            test.wait_until_gone(&test.all::<DataVolume>(), old).await?;
        }
        let after = manifest("after", &["new-root"], &[template("new-root")]);
        let after = Vm::create(&test, after).await?;
        after.sees(&[&newer_guest_disk()?]).await?;
        after.delete().await?;
        // The running guest reads its disks again when one is attached.
        test.apply(volume("empty", DEVICE, DATA_SIZE, json!({ "blank": {} }))).await?;
        test.virtctl(&["addvolume", "before", "--volume-name=empty", "--bus=virtio"])?;
        before.sees(&[&guest_disk()?, &vec![0; 16 << 20]]).await?;
        before.delete().await?;
        let volumes = test.all::<DataVolume>();
        test.wait_until_gone(&volumes, "old-root").await?;
        test.wait_until_gone(&volumes, "new-root").await?;
        let left = volumes.list(&ListParams::default()).await?.items;
        let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
        ensure!(left.len() == 2 && left.contains(&"empty".to_owned()), "{left:?}");
        Ok(())
    });
}
