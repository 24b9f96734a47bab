//! ImageStreams of OpenShift, whose tag names the latest image.

use anyhow::{Context, Result};
use e2e::{OPENSHIFT, Pushed, Test, files_for_nodes, files_of_disk, run_installed};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{ask, clones, cron, disk, name_of, up_to_date, wait_for_reference};

const STREAM: &str = "fedora";

/// An image that a node can pull.
fn push(test: &Test, number: u8) -> Result<Pushed> {
    let files = [files_of_disk(disk(number)), files_for_nodes()?].concat();
    test.push("golden", &number.to_string(), files)
}

/// The status that OpenShift's controller writes once it has imported images for a tag: the latest first.
fn status(images: &[&Pushed]) -> Result<Value> {
    let items = images.iter().map(|image| {
        let (repository, _) = image.reference.rsplit_once(':').context("an image has a tag")?;
        let reference = format!("{repository}@{}", image.digest);
        Ok(json!({
            "created": "2026-01-01T00:00:00Z", "generation": 1,
            "image": image.digest, "dockerImageReference": reference,
        }))
    });
    let items = items.collect::<Result<Vec<_>>>()?;
    Ok(json!({ "status": { "tags": [{ "tag": "latest", "items": items }] } }))
}

#[test]
fn image_stream_tag_is_imported_by_node_pull() {
    run_installed("streams", async |test| {
        test.define_kinds(OPENSHIFT)?;
        let streams =
            test.platform_objects_in(test.namespace(), "image.openshift.io", "ImageStream");
        let (first, second) = (push(&test, 1)?, push(&test, 2)?);
        let stream = json!({
            "apiVersion": "image.openshift.io/v1", "kind": "ImageStream",
            "metadata": { "name": STREAM }, "spec": { "lookupPolicy": { "local": true } },
        });
        streams.create(&PostParams::default(), &serde_json::from_value(stream)?).await?;
        let note = async |images: &[&Pushed]| -> Result<()> {
            let patch = Patch::Merge(status(images)?);
            streams.patch_status(STREAM, &PatchParams::default(), &patch).await?;
            Ok(())
        };
        note(&[&first]).await?;
        let source = json!({
            "registry": { "imageStream": format!("{STREAM}:latest"), "pullMethod": "node" },
        });
        test.apply(cron(source, Some("csi"))).await?;
        wait_for_reference(&test, "pvc", &name_of(&first)).await?;
        up_to_date(&test).await?;
        clones(&test, "machine-1", "csi", 1).await?;
        // The tag refers to another image now.
        note(&[&second, &first]).await?;
        ask(&test).await?;
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;
        up_to_date(&test).await?;
        clones(&test, "machine-2", "csi", 2).await
    });
}
