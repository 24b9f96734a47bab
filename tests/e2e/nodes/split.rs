//! The network is cut: between a worker and its source, between the two workers of a clone, and between a node and the API server,
//! where the worker goes on writing while another one is started elsewhere.

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use cluster::CutFrom;
use e2e::{PodPlan, imported, phase, server, volume};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use testkit::{Fault, MIB, pattern};

use crate::installed::{
    IMPORTER, UPLOAD_SERVER, consumer, reports_the_lost_node, run_installed, run_installed_alone,
    worker_on,
};
use crate::world::{FIRST, MOMENT, SECOND, is_lost, is_ready, take_out_of_service};

fn address(pod: &Pod) -> Result<&str> {
    let status = pod.status.as_ref();
    status.and_then(|status| status.pod_ip.as_deref()).context("a running pod has an address")
}

#[test]
fn import_resumes_after_the_network_to_its_source_was_cut() {
    run_installed("source-cut", async |test| {
        let image = pattern(32 * MIB);
        let server = server(&image).always(Fault::SlowDown(4 * MIB));
        test.apply(imported("disk", "node-wait", "Block", &server)).await?;
        consumer(&test, "disk", SECOND).await?;
        let worker = worker_on(&test, IMPORTER, SECOND).await?;
        let cut = test.chaos().cut(address(&worker)?)?;
        tokio::time::sleep(MOMENT).await;
        let volume = test.all::<DataVolume>().get("disk").await?;
        ensure!(phase(&volume) != "Failed", "{:?}", volume.status);
        server.heal();
        drop(cut);
        test.succeeded("disk").await?;
        test.holds("disk", &image).await
    });
}

#[test]
fn clone_resumes_after_the_network_between_its_workers_was_cut() {
    run_installed_alone("clone-cut", async |test| {
        let image = pattern(32 * MIB);
        let server = server(&image);
        test.apply(imported("golden", "node-wait", "Block", &server)).await?;
        let first = PodPlan::new("first", &["digest", "/disk", "16"]).device("golden", "/disk");
        first.on(FIRST).output(&test).await?;
        test.succeeded("golden").await?;
        let source = json!({ "pvc": { "namespace": test.namespace(), "name": "golden" } });
        test.apply(volume("disk", "node-wait", "Block", source)).await?;
        consumer(&test, "disk", SECOND).await?;
        worker_on(&test, UPLOAD_SERVER, SECOND).await?;
        // All between the nodes: shorter than the control plane waits.
        let cut = test.chaos().cut_node(CutFrom::All)?;
        tokio::time::sleep(MOMENT).await;
        let volume = test.all::<DataVolume>().get("disk").await?;
        ensure!(phase(&volume) != "Failed", "{:?}", volume.status);
        drop(cut);
        test.succeeded("disk").await?;
        test.holds("disk", &image).await
    });
}

#[test]
fn worker_without_the_api_server_does_not_write_to_a_volume_that_has_moved() {
    run_installed_alone("split-brain", async |test| {
        let (image, name) = (pattern(32 * MIB), "disk");
        let server = server(&image).always(Fault::StallAt(16 * MIB));
        test.apply(imported(name, "fenced-wait", "Block", &server)).await?;
        let first = consumer(&test, name, SECOND).await?;
        let old = worker_on(&test, IMPORTER, SECOND).await?;
        let pods = test.all::<Pod>();
        pods.delete(&first.name_any(), &Default::default()).await?;
        test.wait_until_gone(&pods, &first.name_any()).await?;
        server.wait_for_stall(e2e::PATIENCE);
        let cut = test.chaos().cut_node(CutFrom::ApiServer)?;
        is_lost(&test).await?;
        reports_the_lost_node(&test, name).await?;
        take_out_of_service(&test)?;
        let new = worker_on(&test, IMPORTER, FIRST).await?;
        ensure!(new.uid() != old.uid(), "it is the same pod");
        let old = old.uid().context("a pod has a uid")?;
        ensure!(!cluster::processes_of_pod(&old)?.is_empty(), "the old worker has ended");
        // From here on both get the rest of the image.
        server.heal();
        test.succeeded(name).await?;
        tokio::time::sleep(MOMENT).await;
        test.holds(name, &image).await?;
        drop(cut);
        is_ready(&test, SECOND).await?;
        test.holds(name, &image).await?;
        test.only_these_are_left(&[name]).await
    });
}
