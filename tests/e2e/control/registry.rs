//! Disks in images of the cluster's registry.

use anyhow::{Context, Result};
use e2e::{Test, files_for_nodes, files_of_disk, run_installed};
use serde_json::Value;

use crate::world::{apply_all, disk, name, small};

/// The address of an image with the disk.
fn push(test: &Test, repository: &str) -> Result<String> {
    let files = [files_of_disk(disk()), files_for_nodes()?].concat();
    Ok(test.push(repository, "1", files)?.url())
}

async fn imported(test: &Test, example: &str, address: &str) -> Result<()> {
    let mut objects = small(example)?;
    let volume = objects.last_mut().context("an example has objects")?;
    let url = volume.pointer_mut("/spec/source/registry/url").context("it has an address")?;
    *url = address.into();
    let source = volume.pointer_mut("/spec/source/registry").and_then(Value::as_object_mut);
    // The registry speaks plain HTTP, and everybody may read it.
    source.context("it has a source")?.retain(|key, _| matches!(&**key, "url" | "pullMethod"));
    let claim = name(volume);
    apply_all(test, objects).await?;
    test.succeeded(&claim).await.with_context(|| example.to_owned())?;
    test.holds(&claim, &disk()).await.with_context(|| example.to_owned())
}

#[test]
fn disks_of_a_registry_are_read_by_the_importer() {
    run_installed("registry", async |test| {
        let address = push(&test, "pod")?;
        for example in [
            "dv-import-registry",
            "dv-import-registry-insecure",
            "dv-import-registry-preallocated",
            "dv-multus-secondary-network",
        ] {
            imported(&test, example, &address).await?;
        }
        Ok(())
    });
}

#[test]
fn disks_of_a_registry_are_read_by_the_node() {
    run_installed("registry-node", async |test| {
        let address = push(&test, "node")?;
        imported(&test, "dv-import-registry-node-pull", &address).await?;
        test.only_these_are_left(&["node-pulled"]).await
    });
}
