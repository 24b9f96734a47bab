//! Disks that KubeVirt's export server offers, imported elsewhere with the documented manifests.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::vm::{Vm, manifest};
use crate::world::{
    DATA_SIZE, DEVICE, FILE, GUEST_SIZE, data_disk, guest_disk, guest_server, http,
    run_with_machines, volume,
};

/// Of a device that holds a disk of [`DATA_SIZE`] in a file system, which may be larger.
const LARGER_SIZE: &str = "32Mi";
const TOKEN: &str = "0123456789abcdef";

/// The address of a disk as gzip in the status of an export.
fn url_of(export: &DynamicObject, disk: &str) -> Result<String> {
    let volumes = export.data["status"]["links"]["internal"]["volumes"].as_array();
    let mut all = volumes.into_iter().flatten();
    let volume = all.find(|volume| volume["name"] == disk).context("the disk is not exported")?;
    let mut formats = volume["formats"].as_array().into_iter().flatten();
    let gzip = formats.find(|format| format["format"] == "gzip").context("it is not compressed")?;
    gzip["url"].as_str().map(str::to_owned).context("it has no address")
}

#[test]
fn exported_disks_are_imported_in_another_namespace() {
    run_with_machines("vm-export", async |test| {
        let (server, data) = (guest_server()?, e2e::server(&data_disk()));
        let templates = [
            volume("root", DEVICE, GUEST_SIZE, http(&server)),
            volume("data", FILE, DATA_SIZE, http(&data)),
        ];
        let mut halted = manifest("guest", &["root", "data"], &templates);
        halted["spec"]["runStrategy"] = "Halted".into();
        let vm = Vm::create(&test, halted).await?;
        test.succeeded("root").await?;
        test.succeeded("data").await?;
        let token = json!({ "metadata": { "name": "token" }, "stringData": { "token": TOKEN } });
        test.create::<Secret>(token).await?;
        test.apply(json!({
            "apiVersion": "export.kubevirt.io/v1beta1", "kind": "VirtualMachineExport",
            "metadata": { "name": "export" },
            "spec": {
                "tokenSecretRef": "token",
                "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "guest" },
            },
        }))
        .await?;
        let exports = test.all_of("export.kubevirt.io", "v1beta1", "VirtualMachineExport");
        let is_ready = |export: &DynamicObject| export.data["status"]["phase"] == "Ready";
        let export = test.wait_among(&exports, "export", "ready", is_ready).await?;

        let other = test.other_namespace().await?;
        let ca = &export.data["status"]["links"]["internal"]["cert"];
        ensure!(ca.is_string(), "the export has no certificate: {ca}");
        let header = format!("x-kubevirt-export-token:{TOKEN}");
        let objects: [Value; 2] = [
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ca" },
                "data": { "ca.pem": ca } }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "header" },
                "stringData": { "token": header } }),
        ];
        for object in objects {
            other.apply(object).await?;
        }
        let source = |disk: &str| -> Result<Value> {
            Ok(json!({ "http": {
                "url": url_of(&export, disk)?, "certConfigMap": "ca", "secretExtraHeaders": ["header"],
            } }))
        };
        let templates = [
            volume("root", DEVICE, GUEST_SIZE, source("root")?),
            volume("data", DEVICE, LARGER_SIZE, source("data")?),
        ];
        let copy = Vm::create(&other, manifest("copy", &["root", "data"], &templates)).await?;
        copy.sees(&[&guest_disk()?, &data_disk()]).await?;
        copy.delete().await?;
        vm.delete().await
    });
}
