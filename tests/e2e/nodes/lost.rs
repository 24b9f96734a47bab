//! The node of a worker is cordoned, drained, killed and back, or never back. Work goes on elsewhere, or the DataVolume reports
//! what it waits for.

use anyhow::{Context, Result, ensure};
use e2e::{Test, imported, server, volume};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::{Fault, FaultServer, MIB, pattern};

use crate::installed::{
    IMPORTER, UPLOAD_SERVER, consumer, cordon, drain, reports_the_lost_node, run_installed_alone,
    worker_on,
};
use crate::world::{FIRST, SECOND, is_lost, is_ready, take_out_of_service, uncordon};

/// Attached to one node at a time, as the volumes of most storage are.
const FENCED: &str = "fenced-wait";

fn disk() -> Vec<u8> {
    pattern(32 * MIB)
}

/// A server that stops in the middle of the disk until it is healed.
fn stalling(image: &[u8]) -> FaultServer {
    server(image).always(Fault::StallAt(16 * MIB))
}

/// Has a worker of a DataVolume run on the second node, and not the pod that made it run there.
async fn start_on_second(test: &Test, volume: Value, label: &str) -> Result<Pod> {
    let name = volume["metadata"]["name"].as_str().context("it has a name")?.to_owned();
    test.apply(volume).await?;
    let first = consumer(test, &name, SECOND).await?;
    let worker = worker_on(test, label, SECOND).await?;
    let pods = test.all::<Pod>();
    pods.delete(&first.name_any(), &Default::default()).await?;
    test.wait_until_gone(&pods, &first.name_any()).await?;
    Ok(worker)
}

#[test]
fn import_on_a_cordoned_node_goes_on() {
    run_installed_alone("cordoned", async |test| {
        let (image, name) = (disk(), "disk");
        let server = stalling(&image);
        start_on_second(&test, imported(name, FENCED, "Block", &server), IMPORTER).await?;
        server.wait_for_stall(e2e::PATIENCE);
        cordon(&test)?;
        server.heal();
        test.succeeded(name).await?;
        uncordon(&test)?;
        test.holds(name, &image).await?;
        test.only_these_are_left(&[name]).await
    });
}

#[test]
fn import_on_a_drained_node_goes_on_elsewhere() {
    run_installed_alone("drained", async |test| {
        let (image, name) = (disk(), "disk");
        let server = stalling(&image);
        start_on_second(&test, imported(name, FENCED, "Block", &server), IMPORTER).await?;
        server.wait_for_stall(e2e::PATIENCE);
        drain(&test)?;
        worker_on(&test, IMPORTER, FIRST).await?;
        server.heal();
        test.succeeded(name).await?;
        test.holds(name, &image).await?;
        test.only_these_are_left(&[name]).await
    });
}

#[test]
fn upload_to_a_drained_node_is_accepted_elsewhere() {
    run_installed_alone("upload-drained", async |test| {
        let (image, name) = (disk(), "disk");
        let wanted = volume(name, FENCED, "Block", json!({ "upload": {} }));
        start_on_second(&test, wanted, UPLOAD_SERVER).await?;
        drain(&test)?;
        worker_on(&test, UPLOAD_SERVER, FIRST).await?;
        test.upload(name, &image).await?;
        test.succeeded(name).await?;
        test.holds(name, &image).await
    });
}

#[test]
fn import_on_a_killed_node_goes_on_elsewhere_once_it_is_out_of_service() {
    run_installed_alone("never-back", async |test| {
        let (image, name) = (disk(), "disk");
        let server = stalling(&image);
        start_on_second(&test, imported(name, FENCED, "Block", &server), IMPORTER).await?;
        server.wait_for_stall(e2e::PATIENCE);
        let dead = test.chaos().kill_node()?;
        is_lost(&test).await?;
        reports_the_lost_node(&test, name).await?;
        take_out_of_service(&test)?;
        worker_on(&test, IMPORTER, FIRST).await?;
        server.heal();
        test.succeeded(name).await?;
        test.holds(name, &image).await?;
        test.only_these_are_left(&[name]).await?;
        dead.start()
    });
}

#[test]
fn import_goes_on_when_its_killed_node_is_back() {
    run_installed_alone("back", async |test| {
        let (image, name) = (disk(), "disk");
        let server = stalling(&image);
        let wanted = imported(name, "node-wait", "Block", &server);
        let worker = start_on_second(&test, wanted, IMPORTER).await?;
        server.wait_for_stall(e2e::PATIENCE);
        let dead = test.chaos().kill_node()?;
        is_lost(&test).await?;
        reports_the_lost_node(&test, name).await?;
        // The volume is on that node: nothing can go on before it is back.
        dead.start()?;
        server.heal();
        is_ready(&test, SECOND).await?;
        test.succeeded(name).await?;
        test.holds(name, &image).await?;
        let again = test.all::<Pod>().get_opt(&worker.name_any()).await?;
        ensure!(again.is_none(), "the worker is still there");
        test.only_these_are_left(&[name]).await
    });
}

#[test]
fn upload_to_a_killed_node_is_accepted_elsewhere_once_it_is_out_of_service() {
    run_installed_alone("upload-lost", async |test| {
        let (image, name) = (disk(), "disk");
        let wanted = volume(name, FENCED, "Block", json!({ "upload": {} }));
        start_on_second(&test, wanted, UPLOAD_SERVER).await?;
        // That a worker was lost before its first readiness cannot be distinguished from a worker that is not ready yet.
        test.upload_ready(name).await?;
        let dead = test.chaos().kill_node()?;
        is_lost(&test).await?;
        reports_the_lost_node(&test, name).await?;
        take_out_of_service(&test)?;
        worker_on(&test, UPLOAD_SERVER, FIRST).await?;
        test.upload(name, &image).await?;
        test.succeeded(name).await?;
        test.holds(name, &image).await?;
        dead.start()
    });
}
