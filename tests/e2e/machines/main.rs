//! Virtual machines that boot from what this project has written to volumes: KubeVirt's virt-launcher runs a guest, which prints
//! the size and checksums of each disk that it finds. Software emulation is enough.

mod machine;

use anyhow::{Result, ensure};
use api::v1beta1::DataVolume;
use cluster::guest::{DISK_SIZE, DiskSeen};
use e2e::{SIZE, files_of_disk, phase, run_installed, server, volume};
use serde_json::json;
use testkit::{QemuImg, require_tool};

use machine::{Machine, MachineDisk, disk};

#[track_caller]
fn expect_disks(found: &[DiskSeen], disks: &[&[u8]]) -> Result<()> {
    let wanted: Vec<_> = disks.iter().map(|bytes| DiskSeen::with_content(bytes)).collect();
    ensure!(found == wanted, "the guest sees {found:#?}\nin place of {wanted:#?}");
    Ok(())
}

/// A DataVolume whose PVC is larger than the disk by what a file system takes.
fn on_file_system(name: &str, class: &str, source: serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": name },
        "spec": { "source": source, "storage": {
            "storageClassName": class, "volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": SIZE } },
        } },
    })
}

#[test]
fn machine_boots_from_an_imported_device_and_sees_a_blank_disk() {
    run_installed("machine-device", async |test| {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.convert(&cluster::guest::disk()?, "raw", "qcow2", &["-c"]);
        let server = server(&image.bytes());
        let source = json!({ "http": { "url": server.url_of("/guest.qcow2") } });
        test.apply(volume("root", "csi", "Block", source)).await?;
        test.apply(volume("data", "csi", "Block", json!({ "blank": {} }))).await?;
        test.succeeded("root").await?;
        test.succeeded("data").await?;
        let disks = [MachineDisk::device("root"), MachineDisk::device("data")];
        let machine = Machine::start(&test, "guest", &disks).await?;
        let disk = disk()?;
        expect_disks(&machine.disks_seen().await?, &[&disk, &vec![0; DISK_SIZE as usize]])?;
        machine.delete().await
    });
}

#[test]
fn machine_is_the_first_consumer_of_its_imported_file_system() {
    run_installed("machine-file-system", async |test| {
        let Some(gzip) = require_tool("gzip") else { return Ok(()) };
        let guest = cluster::guest::disk()?;
        let compressed = gzip.run([std::ffi::OsStr::new("--stdout"), guest.as_os_str()]);
        let server = server(&compressed);
        let source = json!({ "http": { "url": server.url_of("/guest.raw.gz") } });
        test.apply(on_file_system("root", "csi-wait", source)).await?;
        let waits = |volume: &DataVolume| phase(volume) == "PendingPopulation";
        test.wait("root", "waiting for a consumer", waits).await?;
        let machine = Machine::start(&test, "guest", &[MachineDisk::file("root")]).await?;
        expect_disks(&machine.disks_seen().await?, &[&disk()?])?;
        test.succeeded("root").await?;
        machine.delete().await
    });
}

#[test]
fn machine_boots_from_a_clone_of_a_container_disk() {
    run_installed("machine-clone", async |test| {
        let bytes = disk()?;
        let pushed = test.push("guest", "1", files_of_disk(bytes.clone()))?;
        let source = json!({ "registry": { "url": pushed.url() } });
        test.apply(on_file_system("golden", "csi", source)).await?;
        test.succeeded("golden").await?;
        let clone = json!({ "pvc": { "name": "golden", "namespace": test.namespace() } });
        test.apply(on_file_system("root", "csi", clone)).await?;
        test.succeeded("root").await?;
        let machine = Machine::start(&test, "guest", &[MachineDisk::file("root")]).await?;
        expect_disks(&machine.disks_seen().await?, &[&bytes])?;
        machine.delete().await
    });
}
