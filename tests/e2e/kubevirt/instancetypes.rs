//! A machine without any setting of its own: its instance type and its preference come from the labels of its golden image.

use anyhow::{Result, ensure};
use cluster::guest::{self, MachineSeen};
use e2e::{Test, files_of_disk};
use serde_json::{Value, json};

use crate::golden::{DATA_SOURCE, image_cron};
use crate::vm::{Vm, manifest};
use crate::world::{
    DEVICE, GUEST_SIZE, data_source_is_ready, guest_disk, of_data_source, run_with_machines,
};

const GROUP: &str = "instancetype.kubevirt.io";
const PROCESSORS: u32 = 2;
/// In MiB.
const MEMORY: u64 = 192;
/// What the kernel keeps for itself at most, in MiB.
const OF_KERNEL: u64 = 48;
const TEXT: &str = "hello from cloud-init";

async fn create_instance_type(test: &Test) -> Result<()> {
    let version = format!("{GROUP}/v1beta1");
    let instance_type = json!({
        "apiVersion": version, "kind": "VirtualMachineInstancetype", "metadata": { "name": "small" },
        "spec": { "cpu": { "guest": PROCESSORS }, "memory": { "guest": format!("{MEMORY}Mi") } },
    });
    let preference = json!({
        "apiVersion": version, "kind": "VirtualMachinePreference", "metadata": { "name": "linux" },
        "spec": { "devices": { "preferredDiskBus": "virtio" } },
    });
    for object in [instance_type, preference] {
        test.apply(object).await?;
    }
    Ok(())
}

/// Names the two of the namespace; without a kind they would be those of the cluster.
fn labels() -> Value {
    let mut labels = json!({});
    for (key, value) in [
        ("default-instancetype", "small"),
        ("default-instancetype-kind", "VirtualMachineInstancetype"),
        ("default-preference", "linux"),
        ("default-preference-kind", "VirtualMachinePreference"),
    ] {
        labels[format!("{GROUP}/{key}")] = value.into();
    }
    labels
}

/// A machine with a disk of the golden image and one of settings for cloud-init; the guest has drivers for no bus but virtio.
fn machine() -> Value {
    let template = of_data_source("root", DEVICE, GUEST_SIZE, DATA_SOURCE);
    let mut machine = manifest("guest", &["root"], &[template]);
    let inferred = json!({ "inferFromVolume": "root" });
    machine["spec"]["instancetype"] = inferred.clone();
    machine["spec"]["preference"] = inferred;
    let spec = &mut machine["spec"]["template"]["spec"];
    let domain = &mut spec["domain"];
    domain["memory"].take();
    domain["devices"]["disks"] =
        json!([{ "name": "root", "disk": {} }, { "name": "settings", "disk": {} }]);
    let user_data = format!("#cloud-config\n# guest: {TEXT}\n");
    let settings = json!({ "name": "settings", "cloudInitNoCloud": { "userData": user_data } });
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(settings);
    }
    machine
}

#[test]
fn vm_infers_its_instance_type_from_a_golden_image_and_has_a_cloud_init_disk() {
    run_with_machines("vm-instancetype", async |test| {
        create_instance_type(&test).await?;
        let image = test.push("guest", "latest", files_of_disk(guest_disk()?))?;
        let mut cron = image_cron(&image, DEVICE);
        cron["metadata"]["labels"] = labels();
        test.apply(cron).await?;
        data_source_is_ready(&test, DATA_SOURCE).await?;

        let vm = Vm::create(&test, machine()).await?;
        let text = vm
            .prints("settings for cloud-init", |console| {
                guest::cloud_init_seen(console).map(str::to_owned)
            })
            .await?;
        ensure!(text == TEXT, "the guest has read {text:?}");
        let [root, _] = vm.disks_seen().await?.try_into().map_err(|all| {
            anyhow::anyhow!(
                "the guest sees other disks than its own and that for cloud-init: {all:?}"
            )
        })?;
        ensure!(root == guest::DiskSeen::with_content(&guest_disk()?), "{root:?}");
        let MachineSeen { processors, memory } = vm.prints("a machine", MachineSeen::find).await?;
        let has_memory = (MEMORY - OF_KERNEL..=MEMORY).contains(&(memory >> 20));
        ensure!(
            processors == PROCESSORS && has_memory,
            "the guest has {processors} processors and {memory} bytes of memory"
        );
        vm.delete().await
    });
}
