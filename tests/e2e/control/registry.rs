//! Disks in images of the cluster's registry.

use std::io;

use anyhow::{Context, Result};
use e2e::{REGISTRY, Test, run_installed, sha256};
use ociimage::{Entry, Image};
use serde_json::Value;

use crate::world::{apply_all, disk, name, small};

/// Stores an image with the disk in the cluster's registry. Nodes that run it find in it what the server is linked with
/// that they are given.
fn push(test: &Test, repository: &str) -> Result<String> {
    let reference = format!("{REGISTRY}/{}/{repository}:1", test.namespace());
    let mut files = vec![Entry::folder("disk", 0o755), Entry::file("disk/disk.img", 0o644, disk())];
    for library in ociimage::libraries(testkit::cdi_containerimage_server())? {
        let bytes = std::fs::read(&library)?;
        files.push(Entry::file(
            library.display().to_string().trim_start_matches('/'),
            0o755,
            bytes,
        ));
    }
    let image = Image { reference: reference.clone(), entrypoint: vec![], user: None, files };
    let hash = |bytes: &[u8]| -> io::Result<String> { Ok(sha256(bytes)) };
    let archive = test.state().path(&format!("{}-{repository}.tar", test.namespace()));
    std::fs::write(&archive, image.archive(&hash)?)?;
    cluster::load(test.state(), &archive)?;
    std::fs::remove_file(&archive)?;
    cluster::push(test.state(), &reference)?;
    Ok(reference)
}

async fn imported(test: &Test, example: &str, reference: &str) -> Result<()> {
    let mut objects = small(example)?;
    let volume = objects.last_mut().context("an example has objects")?;
    let url = volume.pointer_mut("/spec/source/registry/url").context("it has an address")?;
    *url = format!("docker://{reference}").into();
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
        let reference = push(&test, "pod")?;
        for example in [
            "dv-import-registry",
            "dv-import-registry-insecure",
            "dv-import-registry-preallocated",
            "dv-multus-secondary-network",
        ] {
            imported(&test, example, &reference).await?;
        }
        Ok(())
    });
}

#[test]
fn disks_of_a_registry_are_read_by_the_node() {
    run_installed("registry-node", async |test| {
        let reference = push(&test, "node")?;
        imported(&test, "dv-import-registry-node-pull", &reference).await?;
        test.only_these_are_left(&["node-pulled"]).await
    });
}
