//! Crons that are deleted at a bad moment.

use anyhow::{Result, ensure};
use api::v1beta1::{DataImportCron, DataSource};
use e2e::{PATIENCE, Test, run_installed};
use kube::api::DeleteParams;
use serde_json::json;
use testkit::{Fault, MIB};

use crate::world::{
    CRON, DATA_SOURCE, cron, disk, import, is_gone, reference_of, server, volumes_are, with,
};

/// Deletes a DataImportCron in the middle of an import, then sends the rest of the image. Returns the import's name.
async fn deleted_half_way(test: &Test, policy: &str) -> Result<String> {
    let server = server(1).once(Fault::StallAt(4 * MIB));
    let source = json!({ "http": { "url": server.url_of("/disk.img") } });
    test.apply(with(cron(source, Some("csi")), "retentionPolicy", policy)).await?;
    let name = import(test).await?;
    server.wait_for_stall(PATIENCE);
    let crons = test.all::<DataImportCron>();
    crons.delete(CRON, &DeleteParams::default()).await?;
    test.wait_until_gone(&crons, CRON).await?;
    if policy == "None" {
        is_gone(test, &name).await?;
        test.wait_until_gone(&test.all::<DataSource>(), DATA_SOURCE).await?;
    }
    server.heal();
    if policy == "All" {
        test.succeeded(&name).await?;
    }
    Ok(name)
}

#[test]
fn import_of_a_deleted_cron_completes_if_retained() {
    run_installed("retain-all", async |test| {
        let name = deleted_half_way(&test, "All").await?;
        test.holds(&name, &disk(1)).await?;
        let source = test.all::<DataSource>().get(DATA_SOURCE).await?;
        let reference = reference_of(&source);
        ensure!(reference.is_empty(), "it refers to {reference}");
        volumes_are(&test, &[&name]).await?;
        test.only_these_are_left(&[&name]).await
    });
}

#[test]
fn import_of_a_deleted_cron_is_deleted_if_not_retained() {
    run_installed("retain-none", async |test| {
        deleted_half_way(&test, "None").await?;
        volumes_are(&test, &[]).await?;
        test.only_these_are_left(&[]).await
    });
}
