//! Imports from web servers, in the ways that a volume can be reached.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Test, run_installed};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testkit::{Compressor, Fault, MIB, QemuImg, compress, pattern};

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
fn pvc_itself_is_filled_without_a_populator() {
    let legacy = ("cdi.kubevirt.io/storage.usePopulator", "false");
    run_installed("legacy-file", async |test| import(&test, "csi", "Filesystem", legacy).await);
    run_installed("legacy-block", async |test| import(&test, "plain", "Block", legacy).await);
}

#[test]
fn static_volumes_are_filled() {
    let now = ("cdi.kubevirt.io/storage.bind.immediate.requested", "true");
    run_installed("local-file", async |test| import(&test, "local", "Filesystem", now).await);
    run_installed("local-device", async |test| import(&test, "local", "Block", now).await);
}

/// An image that cannot be read in one pass, compressed, so that it can be read in order only; and its disk.
fn image_out_of_order() -> Result<(Vec<u8>, Vec<u8>)> {
    let missing = "a program that creates images is missing";
    let qemu = QemuImg::require().context(missing)?;
    let (image, disk) = qemu.qcow2_with_a_cluster_used_twice(8 * MIB);
    let packed = compress(Compressor::GZIP.level(1), &image).context(missing)?;
    Ok((packed, disk))
}

#[test]
fn raw_disk_as_large_as_requested_fits_a_small_file_system() {
    run_installed("exact-size", async |test| {
        let image = pattern(64 * MIB);
        let server = server(&image);
        let source = json!({ "http": { "url": server.url_of("/disk.img") } });
        let mut exact = volume("disk", "csi", "Filesystem", source);
        let spec = exact["spec"].as_object_mut().context("it has a spec")?;
        let mut storage = spec.remove("pvc").unwrap_or_default();
        storage["resources"] = json!({ "requests": { "storage": (64 * MIB).to_string() } });
        spec.insert("storage".into(), storage);
        test.apply(exact).await?;
        test.succeeded("disk").await?;
        test.holds("disk", &image).await
    });
}

#[test]
fn scratch_space_is_provided_and_removed() {
    run_installed("scratch", async |test| {
        let (packed, disk) = image_out_of_order()?;
        let server = server(&packed);
        // Scratch space is as large as the volume.
        let mut volume = of_web("disk", &server);
        volume["spec"]["pvc"]["resources"]["requests"]["storage"] = "128Mi".into();
        test.apply(volume).await?;
        let claims = test.all::<PersistentVolumeClaim>();
        let mut found = None;
        for _ in 0..3000 {
            let all = claims.list(&ListParams::default()).await?.items;
            found = all.into_iter().find(|claim| claim.name_any().ends_with("-scratch"));
            if found.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let scratch = found.context("there was no scratch space")?;
        let mode = scratch.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
        ensure!(mode != Some("Block"), "{scratch:?}");
        let owner = scratch.metadata.owner_references.unwrap_or_default();
        ensure!(owner.iter().any(|owner| owner.kind == "Pod"), "{owner:?}");
        test.succeeded("disk").await?;
        test.holds("disk", &disk).await?;
        test.only_these_are_left(&["disk"]).await
    });
}

#[test]
fn progress_is_shown_and_a_deleted_data_volume_leaves_nothing() {
    run_installed("half-way", async |test| {
        // However late the progress is read, the transfer is not over.
        let server = server(&pattern(32 * MIB)).always(Fault::StallAt(16 * MIB));
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
fn names_of_253_characters_with_dots_work() {
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
