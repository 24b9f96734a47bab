//! A tag that moves: the DataSource follows it from one good image to the next.

use anyhow::{Context, Result, ensure};
use api::annotations::cron as key;
use api::v1beta1::{DataImportCron, DataVolume};
use e2e::{Pushed, Test, files_for_nodes, files_of_disk, run_installed};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use ociimage::Entry;
use serde_json::json;

use crate::world::{
    ask, clones, condition, cron, disk, is_gone, name_of, noted, publish, registry, up_to_date,
    up_to_date_condition_is, volumes_are, wait_for_reference, with,
};

/// Requests one poll of the source, and checks that it finds this image.
async fn finds(test: &Test, image: &Pushed) -> Result<()> {
    let cron = ask(test).await?;
    let digest = noted(&cron, key::DESIRED_DIGEST);
    ensure!(digest == Some(image.digest.as_str()), "{digest:?} was found, not {}", image.digest);
    Ok(())
}

#[test]
fn data_source_moves_to_each_valid_image() {
    run_installed("refresh", async |test| {
        let first = publish(&test, 1)?;
        test.apply(cron(registry(&first), Some("csi"))).await?;
        // The first poll is not on request.
        wait_for_reference(&test, "pvc", &name_of(&first)).await?;
        let found = up_to_date(&test).await?;
        let imported = found.status.and_then(|status| status.last_imported_pvc);
        let imported = imported.context("it records what was imported")?;
        ensure!(
            (imported.namespace.as_str(), imported.name) == (test.namespace(), name_of(&first)),
            "{}",
            imported.namespace
        );
        clones(&test, "machine-1", "csi", 1).await?;

        let second = publish(&test, 2)?;
        finds(&test, &second).await?;
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;
        up_to_date(&test).await?;
        clones(&test, "machine-2", "csi", 2).await?;

        // No disk is in there.
        let bad =
            test.push("golden", "latest", vec![Entry::file("read.me", 0o644, b"!".to_vec())])?;
        finds(&test, &bad).await?;
        let is_reported =
            |cron: &DataImportCron| up_to_date_condition_is(cron, "False", "ImportFailed");
        let cron: DataImportCron = test.wait("cron", "reported", is_reported).await?;
        let conditions = cron.status.and_then(|status| status.conditions);
        let message = condition(conditions.as_ref(), "UpToDate")
            .and_then(|condition| condition.message.clone());
        let message = message.unwrap_or_default();
        ensure!(message.contains("Failed to find VM disk image file"), "{message}");
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;
        clones(&test, "machine-3", "csi", 2).await?;

        let fourth = publish(&test, 4)?;
        finds(&test, &fourth).await?;
        wait_for_reference(&test, "pvc", &name_of(&fourth)).await?;
        up_to_date(&test).await?;
        is_gone(&test, &name_of(&bad)).await?;
        // Three are kept by default.
        for image in [&first, &second, &fourth] {
            test.all::<PersistentVolumeClaim>().get(&name_of(image)).await?;
        }
        Ok(())
    });
}

#[test]
fn imports_to_keep_is_respected_and_vm_disks_stay() {
    run_installed("kept", async |test| {
        let first = publish(&test, 1)?;
        test.apply(with(cron(registry(&first), Some("csi")), "importsToKeep", 1)).await?;
        wait_for_reference(&test, "pvc", &name_of(&first)).await?;
        test.apply(crate::world::of_machine("machine", "csi")).await?;
        test.succeeded("machine").await?;
        let second = publish(&test, 2)?;
        finds(&test, &second).await?;
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;
        is_gone(&test, &name_of(&first)).await?;
        test.holds("machine", &disk(1)).await?;
        // Nothing new: nothing is imported.
        finds(&test, &second).await?;
        up_to_date(&test).await?;
        volumes_are(&test, &["machine", &name_of(&second)]).await?;
        test.only_these_are_left(&["machine", &name_of(&second)]).await
    });
}

#[test]
fn node_pull_imports_the_polled_digest() {
    run_installed("node-cron", async |test| {
        let push = |number: u8| -> Result<Pushed> {
            let files = [files_of_disk(disk(number)), files_for_nodes()?].concat();
            test.push("golden", "latest", files)
        };
        let first = push(1)?;
        let source = json!({ "registry": { "url": first.url(), "pullMethod": "node" } });
        test.apply(cron(source, Some("csi"))).await?;
        wait_for_reference(&test, "pvc", &name_of(&first)).await?;
        let second = push(2)?;
        finds(&test, &second).await?;
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;
        test.holds(&name_of(&second), &disk(2)).await?;
        let pollers = ListParams::default().labels("cdi.kubevirt.io/dataImportCronPoller");
        let pods = test.all::<Pod>();
        for pod in pods.list(&pollers).await?.items {
            test.wait_until_gone(&pods, &pod.name_any()).await?;
        }
        let volume = test.all::<DataVolume>().get(&name_of(&second)).await?;
        let registry = volume.spec.source.and_then(|source| source.registry);
        let url = registry.and_then(|registry| registry.url).unwrap_or_default();
        ensure!(url.ends_with(&format!("/golden@{}", second.digest)), "{url}");
        Ok(())
    });
}
