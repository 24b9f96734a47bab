//! DataVolumes of every source, each removed once its content was checked.

use std::net::IpAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Test, imported, volume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::Operation;
use super::prepare::{BY_CLONE, BY_COPY, BY_SNAPSHOT, GOLDEN, Prepared, disk};

/// An upload of a few mebibytes.
const UPLOAD_SECONDS: &str = "120";

/// Creates one, checks its disk, and removes it.
pub async fn make(prepared: &Prepared, operation: Operation, name: &str) -> Result<()> {
    let tenant = &*prepared.tenant;
    let clone = |class: &str| {
        let source = json!({ "pvc": { "namespace": tenant.namespace(), "name": GOLDEN } });
        volume(name, class, "Block", source)
    };
    let object = match operation {
        Operation::Blank => volume(name, "csi", "Block", json!({ "blank": {} })),
        Operation::Http => imported(name, "csi", "Filesystem", &prepared.server),
        Operation::Registry => {
            volume(name, "csi", "Block", json!({ "registry": { "url": prepared.image } }))
        }
        Operation::Upload => volume(name, "csi", "Block", json!({ "upload": {} })),
        Operation::CsiClone => clone(BY_CLONE),
        Operation::SnapshotClone => clone(BY_SNAPSHOT),
        Operation::CopyClone => clone(BY_COPY),
        Operation::Refresh => anyhow::bail!("a refresh makes its own DataVolume"),
    };
    tenant.apply(object).await?;
    if operation == Operation::Upload {
        upload(tenant, prepared.proxy, name).await?;
    }
    tenant.succeeded(name).await?;
    let content = if operation == Operation::Blank { vec![0; 4096] } else { disk() };
    tenant.holds(name, &content).await?;
    let volumes = tenant.all::<DataVolume>();
    volumes.delete(name, &DeleteParams::default()).await?;
    tenant.wait_until_gone(&volumes, name).await?;
    tenant.wait_until_gone(&tenant.all::<PersistentVolumeClaim>(), name).await
}

/// One upload, with a token of its own.
async fn upload(tenant: &Test, proxy: IpAddr, name: &str) -> Result<()> {
    tenant.upload_ready(name).await?;
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": { "name": name, "namespace": tenant.namespace() }, "spec": { "pvcName": name },
    });
    let all = tenant.all_of("upload.cdi.kubevirt.io", "v1beta1", "UploadTokenRequest");
    let made = all.create(&PostParams::default(), &serde_json::from_value(request)?).await?;
    let token = made.data.pointer("/status/token").and_then(Value::as_str);
    let token = token.context("a response has a token")?.to_owned();
    let file = NamedTempFile::new()?;
    std::fs::write(file.path(), disk())?;
    let output = tokio::task::spawn_blocking(move || {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--insecure", "--request", "POST"]);
        curl.args(["--max-time", UPLOAD_SECONDS, "--write-out", "\n%{http_code}"]);
        curl.args(["--header", &format!("Authorization: Bearer {token}")]);
        curl.arg("--data-binary").arg(format!("@{}", file.path().display()));
        curl.arg(format!("https://{proxy}/v1beta1/upload")).output()
    });
    let output = output.await??;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(text.ends_with("\n200"), "the response to the upload is {text} {error}");
    Ok(())
}
