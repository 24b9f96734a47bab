//! PVCs that wait for the first pod that uses them, and those that do not.

use anyhow::{Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{PodPlan, Test, is_bound, phase, run_installed};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use testkit::FaultServer;

use crate::world::{annotated, disk, server, volume};

async fn made(test: &Test, mode: &str, populator: &str) -> Result<FaultServer> {
    let server = server(&disk());
    let source = json!({ "http": { "url": server.url_of("/disk.img") } });
    let volume = volume("disk", "csi-wait", mode, source);
    let key = "cdi.kubevirt.io/storage.usePopulator";
    test.apply(annotated(volume, key, populator)).await?;
    Ok(server)
}

async fn waits_for(test: &Test, mode: &str, populator: &str, wanted: &str) -> Result<()> {
    let server = made(test, mode, populator).await?;
    let waits = |volume: &DataVolume| phase(volume) == wanted;
    test.wait("disk", wanted, waits).await?;
    ensure!(server.requests().is_empty(), "the import did not wait");
    // The reader is the one that was waited for: it starts once the disk is whole.
    test.holds("disk", &disk()).await?;
    test.succeeded("disk").await?;
    test.only_these_are_left(&["disk"]).await
}

#[test]
fn pvc_waits_for_its_first_consumer() {
    run_installed("wait-populator", async |test| {
        waits_for(&test, "Filesystem", "true", "PendingPopulation").await
    });
}

#[test]
fn block_pvc_waits_for_its_first_consumer() {
    run_installed("wait-device", async |test| {
        waits_for(&test, "Block", "true", "PendingPopulation").await
    });
}

#[test]
fn immediate_binding_does_not_wait() {
    run_installed("immediate", async |test| {
        for (at, populator) in ["true", "false"].into_iter().enumerate() {
            let server = server(&disk());
            let source = json!({ "http": { "url": server.url_of("/disk.img") } });
            let name = format!("disk-{at}");
            let made = volume(&name, "csi-wait", "Block", source);
            let made = annotated(made, "cdi.kubevirt.io/storage.usePopulator", populator);
            let key = "cdi.kubevirt.io/storage.bind.immediate.requested";
            test.apply(annotated(made, key, "true")).await?;
            test.succeeded(&name).await?;
            test.wait::<PersistentVolumeClaim>(&name, "bound", is_bound).await?;
            test.holds(&name, &disk()).await?;
        }
        Ok(())
    });
}

#[test]
fn phase_without_a_populator_shows_waiting_for_a_consumer() {
    run_installed("wait-legacy", async |test| {
        let server = made(&test, "Block", "false").await?;
        let waits = |volume: &DataVolume| phase(volume) == "WaitForFirstConsumer";
        test.wait("disk", "waiting", waits).await?;
        ensure!(server.requests().is_empty(), "the import did not wait");
        // The first pod causes the volume to be bound; the import can use it when that pod has ended.
        PodPlan::new("first", &["digest", "/disk", "16"])
            .device("disk", "/disk")
            .output(&test)
            .await?;
        test.succeeded("disk").await?;
        test.holds("disk", &disk()).await
    });
}
