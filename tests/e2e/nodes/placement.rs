//! Volumes that are local to a node: the pod that uses a disk chooses the node, and every worker follows.

use anyhow::{Context, Result, ensure};
use cluster::NodeId;
use e2e::{PodPlan, Test, imported, server, volume};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::Api;
use serde_json::json;
use testkit::{Fault, MIB, pattern};

use crate::installed::{IMPORTER, UPLOAD_SERVER, consumer, run_installed, worker_on};
use crate::world::{FIRST, SECOND};

const CLASS: &str = "node-wait";

/// Checks that the volume of a PVC is on a node.
async fn is_on(test: &Test, claim: &str, node: NodeId) -> Result<()> {
    let spec = test.all::<PersistentVolumeClaim>().get(claim).await?.spec;
    let name = spec.and_then(|spec| spec.volume_name).context("a bound PVC has a volume")?;
    let volume = Api::<PersistentVolume>::all(test.client()).get(&name).await?;
    let affinity = serde_json::to_string(&volume.spec.and_then(|spec| spec.node_affinity))?;
    ensure!(affinity.contains(&format!("\"{}\"", node.name())), "{claim}: {affinity}");
    Ok(())
}

#[test]
fn importer_follows_the_first_consumer() {
    run_installed("import-follows", async |test| {
        let image = pattern(16 * MIB);
        for node in NodeId::ALL {
            let server = server(&image).always(Fault::StallAt(8 * MIB));
            let name = format!("disk-{}", node.name());
            test.apply(imported(&name, CLASS, "Block", &server)).await?;
            consumer(&test, &name, node).await?;
            worker_on(&test, IMPORTER, node).await?;
            server.heal();
            test.succeeded(&name).await?;
            is_on(&test, &name, node).await?;
            test.wait(&format!("{name}-consumer"), "running", e2e::is_ready).await?;
            test.holds(&name, &image).await?;
        }
        test.only_these_are_left(&["disk-cdi-node", "disk-cdi-node-2"]).await
    });
}

#[test]
fn upload_server_follows_the_first_consumer() {
    run_installed("upload-follows", async |test| {
        let image = pattern(16 * MIB);
        for node in NodeId::ALL {
            let name = format!("disk-{}", node.name());
            test.apply(volume(&name, CLASS, "Block", json!({ "upload": {} }))).await?;
            consumer(&test, &name, node).await?;
            worker_on(&test, UPLOAD_SERVER, node).await?;
            test.upload(&name, &image).await?;
            test.succeeded(&name).await?;
            is_on(&test, &name, node).await?;
            test.holds(&name, &image).await?;
        }
        Ok(())
    });
}

#[test]
fn clone_is_copied_from_node_to_node() {
    run_installed("clone-across", async |test| {
        let image = pattern(32 * MIB);
        let server = server(&image);
        for (from, to) in [(FIRST, SECOND), (SECOND, FIRST)] {
            let (golden, name) = (format!("golden-{}", from.name()), format!("disk-{}", to.name()));
            test.apply(imported(&golden, CLASS, "Block", &server)).await?;
            let words = ["digest", "/disk", "16"];
            let first = PodPlan::new(&format!("{golden}-first"), &words);
            first.device(&golden, "/disk").on(from).output(&test).await?;
            test.succeeded(&golden).await?;
            let source = json!({ "pvc": { "namespace": test.namespace(), "name": golden } });
            test.apply(volume(&name, CLASS, "Block", source)).await?;
            consumer(&test, &name, to).await?;
            worker_on(&test, UPLOAD_SERVER, to).await?;
            let clone = test.succeeded(&name).await?;
            let method = clone.metadata.annotations.unwrap_or_default();
            let method = method.get("cdi.kubevirt.io/cloneType").cloned();
            ensure!(method.as_deref() == Some("copy"), "{name}: {method:?}");
            is_on(&test, &golden, from).await?;
            is_on(&test, &name, to).await?;
            test.holds(&name, &image).await?;
        }
        Ok(())
    });
}

#[test]
fn shared_disk_is_reached_from_both_nodes() {
    run_installed("shared-disk", async |test| {
        let image = pattern(16 * MIB);
        let server = server(&image);
        let mut shared = imported("disk", "csi", "Block", &server);
        shared["spec"]["pvc"]["accessModes"] = json!(["ReadWriteMany"]);
        test.apply(shared).await?;
        test.succeeded("disk").await?;
        for node in NodeId::ALL {
            let holder = PodPlan::new(&format!("holder-{}", node.name()), &["pause"]);
            holder.device("disk", "/disk").on(node).start(&test).await?;
        }
        for node in NodeId::ALL {
            let words = ["digest", "/disk", &image.len().to_string()];
            let reader = PodPlan::new(&format!("reader-{}", node.name()), &words);
            let output = reader.device("disk", "/disk").on(node).output(&test).await?;
            ensure!(output.starts_with(&e2e::sha256(&image)), "{}: {output}", node.name());
        }
        Ok(())
    });
}
