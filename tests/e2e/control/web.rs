//! Imports from web servers, in the ways that a volume can be reached.

use anyhow::{Context, Result};
use api::v1beta1::DataVolume;
use e2e::{Test, run_installed};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testkit::{Fault, MIB, pattern};

use crate::world::{annotated, disk, of_web, server, volume};

async fn import(test: &Test, class: &str, mode: &str, annotation: (&str, &str)) -> Result<()> {
    let server = server(&disk());
    let source = json!({ "http": { "url": server.url_of("/disk.img") } });
    let (key, value) = annotation;
    test.apply(annotated(volume("disk", class, mode, source), key, value)).await?;
    test.succeeded("disk").await?;
    test.holds("disk", &disk()).await?;
    test.only_these_are_left(&["disk"]).await
}

#[test]
fn without_a_populator_the_claim_itself_is_filled() {
    let legacy = ("cdi.kubevirt.io/storage.usePopulator", "false");
    run_installed("legacy-file", async |test| import(&test, "csi", "Filesystem", legacy).await);
    run_installed("legacy-block", async |test| import(&test, "plain", "Block", legacy).await);
}

#[test]
fn volumes_that_somebody_made_by_hand_are_filled_too() {
    let now = ("cdi.kubevirt.io/storage.bind.immediate.requested", "true");
    run_installed("local-file", async |test| import(&test, "local", "Filesystem", now).await);
    run_installed("local-device", async |test| import(&test, "local", "Block", now).await);
}

#[test]
fn progress_is_seen_and_a_volume_that_is_deleted_half_way_leaves_nothing() {
    run_installed("half-way", async |test| {
        let server = server(&pattern(32 * MIB)).always(Fault::SlowDown(MIB));
        test.apply(of_web("disk", &server)).await?;
        test.wait("disk", "half-way", is_half_way).await?;
        let volumes = test.all::<DataVolume>();
        volumes.delete("disk", &DeleteParams::background()).await?;
        test.wait_until_gone(&volumes, "disk").await?;
        let claims = test.all::<PersistentVolumeClaim>();
        for claim in claims.list(&ListParams::default()).await?.items {
            test.wait_until_gone(&claims, &claim.name_any()).await?;
        }
        test.only_these_are_left(&[]).await
    });
}

fn is_half_way(volume: &DataVolume) -> bool {
    let progress = volume.status.as_ref().and_then(|status| status.progress.as_deref());
    let percent = progress.and_then(|text| text.strip_suffix('%')?.parse::<f64>().ok());
    percent.is_some_and(|percent| percent > 0.0 && percent < 100.0)
}

#[test]
fn names_of_253_characters_with_dots_are_names_like_any_other() {
    run_installed("long", async |test| {
        let server = server(&disk());
        let name = ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60), "e".repeat(9)];
        let name = name.join(".");
        for suffix in ["", ".legacy"] {
            let name = format!("{}{suffix}", &name[..253 - suffix.len()]);
            let made = of_web(&name, &server);
            let populator = if suffix.is_empty() { "true" } else { "false" };
            let key = "cdi.kubevirt.io/storage.usePopulator";
            test.apply(annotated(made, key, populator)).await.context(name.len())?;
            test.succeeded(&name).await?;
        }
        Ok(())
    });
}
