//! Shared by the tests: the disk of the guest as an image, disks for data, and DataVolumes with them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use cluster::guest;
use e2e::{Test, run_installed, run_installed_alone, server};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use testkit::{FaultServer, MIB, QemuImg, pattern};
use tokio::sync::Semaphore;

/// The capacity of the disk of the guest.
pub const GUEST_SIZE: &str = "48Mi";
/// The capacity of a disk for data.
pub const DATA_SIZE: &str = "16Mi";
const DATA_LEN: u64 = 16 * MIB;

/// Guests are emulated, and the machine has few cores.
static MACHINES: Semaphore = Semaphore::const_new(2);

/// Runs a test where KubeVirt is installed, together with few others of this kind.
///
/// # Panics
/// When the test fails.
pub fn run_with_machines<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_installed(name, async |running| {
        let _permit = MACHINES.acquire().await.context("the semaphore is never closed")?;
        test(running).await
    });
}

/// The same without any other test meanwhile, for one that stops a program on which all depend.
///
/// # Panics
/// When the test fails.
pub fn run_with_machines_alone<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_installed_alone(name, test);
}

/// The disk that the guest boots from.
pub fn guest_disk() -> Result<Vec<u8>> {
    let path = guest::disk()?;
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// A web server with that disk as a qcow2 image.
pub fn guest_server() -> Result<FaultServer> {
    let qemu = QemuImg::require().context("qemu-img is missing")?;
    Ok(server(&qemu.convert(&guest::disk()?, "raw", "qcow2", &["-c"]).bytes()))
}

/// The source of a DataVolume with the image of a server.
pub fn http(server: &FaultServer) -> Value {
    json!({ "http": { "url": server.url_of("/guest.qcow2") } })
}

/// A disk of data that no other disk of these tests begins with.
pub fn data_disk() -> Vec<u8> {
    pattern(DATA_LEN)
}

/// Another one, which differs from it in each byte.
pub fn other_data_disk() -> Vec<u8> {
    data_disk().into_iter().map(|byte| !byte).collect()
}

/// A disk on which the guest counts its boots, after so many.
pub fn counting_disk(boots: u32) -> Vec<u8> {
    let mut disk = vec![0; DATA_LEN as usize];
    disk[..guest::COUNT_BOOTS.len()].copy_from_slice(guest::COUNT_BOOTS.as_bytes());
    if boots > 0 {
        let sector = guest::boots_sector(boots);
        disk[sector.len()..2 * sector.len()].copy_from_slice(&sector);
    }
    disk
}

/// What a disk is stored on.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    pub class: &'static str,
    pub mode: &'static str,
}

/// A device, provisioned at once.
pub const DEVICE: Storage = Storage { class: "csi", mode: "Block" };
/// A file in a file system, provisioned when a pod needs it.
pub const LATE_FILE: Storage = Storage { class: "csi-wait", mode: "Filesystem" };
/// A device of a driver that cannot clone: pods copy.
pub const PLAIN_DEVICE: Storage = Storage { class: "plain", mode: "Block" };
/// The same, provisioned at once.
pub const FILE: Storage = Storage { class: "csi", mode: "Filesystem" };

/// A DataVolume that gives the guest a disk of this size, as an object or as a template of a VirtualMachine.
pub fn volume(name: &str, storage: Storage, size: &str, source: Value) -> Value {
    let mut volume = of_data_source(name, storage, size, "");
    volume["spec"]["source"] = source;
    if let Some(spec) = volume["spec"].as_object_mut() {
        spec.remove("sourceRef");
    }
    volume
}

/// The same with a DataSource as its source.
pub fn of_data_source(name: &str, storage: Storage, size: &str, source: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": name },
        "spec": {
            "sourceRef": { "kind": "DataSource", "name": source },
            "storage": {
                "storageClassName": storage.class, "volumeMode": storage.mode,
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": size } },
            },
        },
    })
}

/// KubeVirt asks again for a DataSource without an image only after a growing pause.
pub async fn data_source_is_ready(test: &Test, name: &str) -> Result<()> {
    let sources = test.all_of("cdi.kubevirt.io", "v1beta1", "DataSource");
    let is_ready = |source: &DynamicObject| {
        let conditions = source.data["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    test.wait_among(&sources, name, "ready", is_ready).await.map(drop)
}

/// The objects of `docs/examples/NAME.yaml`, on a class of this cluster, with small sizes, and with this address of an image.
pub fn example(name: &str, url: &str) -> Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let path = folder.join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut objects = Vec::new();
    for document in text.split("\n---\n") {
        let mut object: Value = yaml_serde::from_str(document).context("an example is YAML")?;
        if object["kind"] == "VirtualMachine" {
            // The guest of the tests ignores the button that switches it off.
            object["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.into();
        }
        let templates = object.pointer_mut("/spec/dataVolumeTemplates");
        for template in templates.and_then(Value::as_array_mut).into_iter().flatten() {
            adapt(&mut template["spec"], url);
        }
        objects.push(object);
    }
    Ok(objects)
}

fn adapt(spec: &mut Value, url: &str) {
    if let Some(http) = spec.pointer_mut("/source/http") {
        http["url"] = url.into();
    }
    spec["storage"]["storageClassName"] = DEVICE.class.into();
    if spec["storage"]["resources"].is_object() {
        let size = if spec["source"]["blank"].is_object() { DATA_SIZE } else { GUEST_SIZE };
        spec["storage"]["resources"] = json!({ "requests": { "storage": size } });
    }
}
