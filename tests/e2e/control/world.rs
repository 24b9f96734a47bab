//! Shared by the tests: the documented manifests with small sizes, and servers with a disk.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::Test;
pub use e2e::{SIZE, annotated, server, volume};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};
use testkit::{Compressor, FaultServer, Image, MIB, QemuImg, compress, pattern};

/// The disk of every server, unless it has another.
pub fn disk() -> Vec<u8> {
    pattern(8 * MIB)
}

/// A server with the disk in the format of this file's extension.
pub fn server_of(path: &str) -> Result<FaultServer> {
    Ok(server(&image_of(path.rsplit('/').next().unwrap_or_default())?))
}

/// The disk in the format of a file's extension, or in an archive at the path that KubeVirt expects.
pub fn image_of(file: &str) -> Result<Vec<u8>> {
    let missing = "a program that makes images is missing";
    let mut bytes = disk();
    for ending in file.split('.').skip(1) {
        bytes = match ending {
            "qcow2" => {
                let qemu_img = QemuImg::require().context(missing)?;
                let image = Image::from_bytes(&bytes);
                qemu_img.convert(image.path(), "raw", "qcow2", &[] as &[&str]).bytes()
            }
            "tar" => {
                testkit::tar(&[("disk.img", &bytes), ("notes.txt", b"one")]).context(missing)?
            }
            "gz" => compress(Compressor::GZIP, &bytes).context(missing)?,
            "xz" => compress(Compressor::XZ, &bytes).context(missing)?,
            _ => bytes,
        };
    }
    Ok(bytes)
}

/// The objects of `docs/examples/NAME.yaml`, in order, as they are.
pub fn example(name: &str) -> Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let path = folder.join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("there is no {}", path.display()))?;
    let documents = text.split("\n---\n").map(yaml_serde::from_str::<Value>);
    documents.map(|document| document.context("an example is YAML")).collect()
}

/// The same, on a class of this cluster, and no larger than need be.
pub fn small(name: &str) -> Result<Vec<Value>> {
    let mut objects = example(name)?;
    for object in &mut objects {
        let is_claim = object["kind"] == "PersistentVolumeClaim";
        let places = if is_claim { vec!["/spec"] } else { vec!["/spec/storage", "/spec/pvc"] };
        for place in places {
            let Some(storage) = object.pointer_mut(place) else { continue };
            storage["storageClassName"] = "csi".into();
            storage["resources"] = json!({ "requests": { "storage": SIZE } });
        }
    }
    Ok(objects)
}

/// From the web, onto a device.
pub fn of_web(name: &str, server: &FaultServer) -> Value {
    e2e::imported(name, "csi", "Block", server)
}

pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Creates all of them.
pub async fn apply_all(test: &Test, objects: Vec<Value>) -> Result<()> {
    for object in objects {
        let (kind, name) = (object["kind"].clone(), name(&object));
        test.apply(object).await.with_context(|| format!("cannot make the {kind} {name}"))?;
    }
    Ok(())
}

/// The pod that imports for a test, once it runs.
pub async fn worker(test: &Test) -> Result<Pod> {
    let ours = ListParams::default().labels("cdi.kubevirt.io=importer");
    for _ in 0..3000 {
        for pod in test.all::<Pod>().list(&ours).await?.items {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Running") {
                return Ok(pod);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("no worker runs")
}
