//! DataVolumes on the real cluster: from a manifest to the right bytes on a volume.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Controller, PodPlan, Test, run};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{FaultServer, MIB, pattern};

/// This machine, as pods see it.
const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 98, 0, 1));

fn phase(volume: &DataVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn claim(class: &str, mode: &str, size: &str) -> Value {
    json!({
        "storageClassName": class, "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": size } },
    })
}

async fn make(test: &Test, annotations: Value, source: Value, claim: Value) -> Result<()> {
    test.create::<DataVolume>(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": "disk", "annotations": annotations },
        "spec": { "source": source, "pvc": claim },
    }))
    .await
    .map(|_| ())
}

async fn succeeded(test: &Test) -> Result<DataVolume> {
    test.wait("disk", "Succeeded", |volume: &DataVolume| phase(volume) == "Succeeded").await
}

/// What a pod reads from the volume, as `digest of size`.
async fn read(test: &Test, mode: &str, bytes: u64) -> Result<String> {
    let bytes = bytes.to_string();
    let plan = match mode {
        "Block" => PodPlan::new("reader", &["digest", "/disk", &bytes]).device("disk", "/disk"),
        _ => PodPlan::new("reader", &["digest", "/disk/disk.img", &bytes]).mount("disk", "/disk"),
    };
    plan.output(test).await
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Nobody but the claim itself is left.
async fn only_the_claim_is_left(test: &Test) -> Result<()> {
    let claims = test.all::<PersistentVolumeClaim>();
    let pods = test.all::<Pod>();
    for prime in claims.list(&ListParams::default()).await?.items {
        let name = prime.metadata.name.context("a claim has a name")?;
        if name != "disk" {
            test.wait_until_gone(&claims, &name).await?;
        }
    }
    let workers = ListParams::default().labels("cdi.kubevirt.io=importer");
    for pod in pods.list(&workers).await?.items {
        test.wait_until_gone(&pods, &pod.metadata.name.context("a pod has a name")?).await?;
    }
    Ok(())
}

#[test]
fn a_blank_disk_succeeds_and_is_empty() {
    run("blank", async |test| {
        let _controller = Controller::start(&test).await?;
        make(&test, json!({}), json!({ "blank": {} }), claim("csi", "Block", "32Mi")).await?;
        let volume = succeeded(&test).await?;
        let status = volume.status.context("it has a status")?;
        ensure!(status.progress.as_deref() == Some("100.0%"), "{status:?}");
        let conditions = status.conditions.unwrap_or_default();
        for wanted in ["Bound", "Ready"] {
            let found = conditions.iter().find(|condition| condition.type_ == wanted);
            ensure!(found.is_some_and(|c| c.status == "True"), "{wanted}: {conditions:?}");
        }
        let size = 32 * MIB;
        let zeroes = sha256(&vec![0; size as usize]);
        let found = read(&test, "Block", size).await?;
        ensure!(found == format!("{zeroes} of {size}"), "{found}");
        only_the_claim_is_left(&test).await
    });
}

async fn import(test: &Test, class: &str, mode: &str, annotations: Value) -> Result<()> {
    let _controller = Controller::start(test).await?;
    let image = pattern(8 * MIB);
    let server = FaultServer::in_memory_on(HOST, &image);
    let source = json!({ "http": { "url": server.url_of("/disk.img") } });
    make(test, annotations, source, claim(class, mode, "64Mi")).await?;
    succeeded(test).await?;
    let found = read(test, mode, image.len() as u64).await?;
    ensure!(found.starts_with(&sha256(&image)), "{found}");
    only_the_claim_is_left(test).await
}

#[test]
fn an_image_of_the_web_is_on_the_device_beside_which_it_was_filled() {
    run("http-block", async |test| import(&test, "csi", "Block", json!({})).await);
}

#[test]
fn an_image_of_the_web_is_a_file_on_a_class_that_would_wait() {
    let immediate = json!({ "cdi.kubevirt.io/storage.bind.immediate.requested": "true" });
    run("http-file", async |test| import(&test, "csi-wait", "Filesystem", immediate).await);
}

#[test]
fn without_a_populator_the_claim_itself_is_filled() {
    let legacy = json!({ "cdi.kubevirt.io/storage.usePopulator": "false" });
    run("http-legacy", async |test| import(&test, "csi", "Filesystem", legacy).await);
}

#[test]
fn what_is_not_there_is_told_on_the_data_volume() {
    run("http-404", async |test| {
        let _controller = Controller::start(&test).await?;
        let server = FaultServer::in_memory_on(HOST, &pattern(MIB));
        let server = server.always(testkit::Fault::Status(404));
        let source = json!({ "http": { "url": server.url_of("/gone.img") } });
        make(&test, json!({}), source, claim("csi", "Block", "32Mi")).await?;
        let says_404 = |volume: &DataVolume| {
            let conditions = volume.status.iter().flat_map(|s| s.conditions.iter().flatten());
            let mut running = conditions.filter(|condition| condition.type_ == "Running");
            running.any(|condition| {
                condition.status == "False"
                    && condition.message.as_deref().is_some_and(|text| text.contains("404"))
            })
        };
        test.wait("disk", "told of", says_404).await?;
        let events = test.all::<Event>().list(&ListParams::default()).await?;
        let about_it = |event: &&Event| {
            event.involved_object.kind.as_deref() == Some("DataVolume")
                && event.message.as_deref().is_some_and(|text| text.contains("404"))
        };
        ensure!(events.iter().any(|event| about_it(&event)), "no event tells of it");
        Ok(())
    });
}

#[test]
fn progress_is_seen_and_a_volume_that_is_deleted_half_way_leaves_nothing() {
    run("http-slow", async |test| {
        let _controller = Controller::start(&test).await?;
        let server = FaultServer::in_memory_on(HOST, &pattern(32 * MIB));
        let server = server.always(testkit::Fault::SlowDown(MIB));
        let source = json!({ "http": { "url": server.url_of("/disk.img") } });
        make(&test, json!({}), source, claim("csi", "Block", "32Mi")).await?;
        let is_half_way = |volume: &DataVolume| {
            let progress = volume.status.as_ref().and_then(|status| status.progress.as_deref());
            let percent = progress.and_then(|text| text.strip_suffix('%')?.parse::<f64>().ok());
            percent.is_some_and(|percent| percent > 0.0 && percent < 100.0)
        };
        test.wait("disk", "half-way", is_half_way).await?;
        let volumes = test.all::<DataVolume>();
        volumes.delete("disk", &DeleteParams::background()).await?;
        test.wait_until_gone(&volumes, "disk").await?;
        let claims = test.all::<PersistentVolumeClaim>();
        for claim in claims.list(&ListParams::default()).await?.items {
            let name = claim.metadata.name.context("a claim has a name")?;
            test.wait_until_gone(&claims, &name).await?;
        }
        only_the_claim_is_left(&test).await
    });
}
