//! What the tests have in common: the manifests that people are shown, made small, and servers with a disk.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::Test;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};
use testkit::{Compressor, FaultServer, Image, MIB, QemuImg, compress, pattern};

/// This machine, as pods see it.
pub const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 98, 0, 1));
/// Claims are as small as a file system with a disk of [`disk`] in it may be.
pub const SIZE: &str = "48Mi";

/// The disk of every server, unless it has another.
pub fn disk() -> Vec<u8> {
    pattern(8 * MIB)
}

/// A server with these bytes, whatever they are asked for by.
pub fn server(bytes: &[u8]) -> FaultServer {
    FaultServer::in_memory_on(HOST, bytes)
}

/// A server with the disk in the format that the end of this name says.
pub fn server_of(path: &str) -> Result<FaultServer> {
    let raw = disk();
    let missing = "a program that makes images is missing";
    let mut bytes = raw.clone();
    let file = path.rsplit('/').next().unwrap_or_default();
    for ending in file.split('.').skip(1) {
        bytes = match ending {
            "qcow2" => {
                let qemu_img = QemuImg::require().context(missing)?;
                let image = Image::of(&bytes);
                qemu_img.convert(image.path(), "raw", "qcow2", &[] as &[&str]).bytes()
            }
            "gz" => compress(Compressor::GZIP, &bytes).context(missing)?,
            "xz" => compress(Compressor::XZ, &bytes).context(missing)?,
            _ => bytes,
        };
    }
    Ok(server(&bytes))
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

/// A DataVolume of a class, a mode and this source.
pub fn volume(name: &str, class: &str, mode: &str, source: Value) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": name },
        "spec": { "source": source, "pvc": {
            "storageClassName": class, "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": SIZE } },
        } },
    })
}

/// From the web, onto a device.
pub fn of_web(name: &str, server: &FaultServer) -> Value {
    volume(name, "csi", "Block", json!({ "http": { "url": server.url_of("/disk.img") } }))
}

/// With an annotation.
pub fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = value.into();
    object
}

/// The name of an object.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Makes all of them.
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
    for _ in 0..600 {
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
