//! Programs and workers that die at a bad moment: everything ends as if they had not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{NAMESPACE, Program, Test, phase, run_installed, run_installed_alone};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use testkit::{Fault, MIB, pattern};

use crate::world::{annotated, disk, of_web, server, volume};

const CONTROLLER: &str = "cdi-deployment";
/// At once, in each round.
const VOLUMES: usize = 12;
/// Different in each round, and never timed to anything.
const MOMENTS: [u64; 2] = [300, 1700];

/// Longer than whoever leads may go on without saying so.
const SILENCE: Duration = Duration::from_secs(12);

/// The pod that imports for a test, once it runs.
async fn worker(test: &Test) -> Result<Pod> {
    let ours = ListParams::default().labels("cdi.kubevirt.io=importer");
    for _ in 0..600 {
        for pod in test.all::<Pod>().list(&ours).await?.items {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Running") {
                return Ok(pod);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("no worker runs")
}

/// Waits until the pod of a device has noted something in its journal.
async fn journal(test: &Test, pod_uid: &str) -> Result<()> {
    let folder = "volumes/kubernetes.io~empty-dir/cdi-journal-vol";
    let path = test.state().path(&format!("kubelet/pods/{pod_uid}/{folder}/.cdi-journal"));
    for _ in 0..600 {
        if std::fs::read_to_string(&path).is_ok_and(|text| text.contains("\"start\"")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("nothing is noted in {}", path.display())
}

#[test]
fn the_controllers_die_and_go_on_where_they_were() {
    run_installed("controller-dies", async |test| {
        let server = server(&disk());
        let controller = Program::of(&test, CONTROLLER);
        let mut all = Vec::new();
        for (round, moment) in MOMENTS.into_iter().enumerate() {
            for at in 0..VOLUMES {
                let name = format!("disk-{round}-{at}");
                let made = match at % 3 {
                    0 => of_web(&name, &server),
                    1 => volume(&name, "csi", "Block", serde_json::json!({ "blank": {} })),
                    _ => annotated(
                        of_web(&name, &server),
                        "cdi.kubevirt.io/storage.usePopulator",
                        "false",
                    ),
                };
                test.apply(made).await?;
                all.push(name);
            }
            tokio::time::sleep(Duration::from_millis(moment)).await;
            match round {
                0 => controller.crash().await?,
                _ => controller.lose().await?,
            }
        }
        for name in &all {
            test.succeeded(name).await?;
        }
        test.holds("disk-0-0", &disk()).await?;
        test.holds("disk-1-2", &disk()).await?;
        let names: Vec<_> = all.iter().map(String::as_str).collect();
        test.only_these_are_left(&names).await
    });
}

#[test]
fn a_worker_dies_half_way_and_its_successor_goes_on_from_there() {
    run_installed("worker-dies", async |test| {
        let image = pattern(40 * MIB);
        // Slow enough for something to be durable, and never at its end.
        let server = server(&image).always(Fault::SlowDown(MIB)).always(Fault::StallAt(36 * MIB));
        test.apply(of_web("disk", &server)).await?;
        let pod = worker(&test).await?;
        let uid = pod.uid().context("a pod has a uid")?;
        journal(&test, &uid).await?;
        test.chaos().kill_in_pod(&uid)?;
        server.heal();
        let volume = test.succeeded("disk").await?;
        let restarts = volume.status.and_then(|status| status.restart_count);
        ensure!(restarts.is_some_and(|restarts| restarts > 0), "restarts: {restarts:?}");
        test.holds("disk", &image).await?;
        let sent = server.body_bytes_sent();
        ensure!(sent < 2 * image.len() as u64, "{sent} bytes were sent of {}", image.len());
        ensure!(server.ranges().iter().any(|range| !range.starts_with("0-")), "from zero again");
        test.only_these_are_left(&["disk"]).await
    });
}

#[test]
fn a_worker_that_is_deleted_has_a_successor() {
    run_installed("worker-deleted", async |test| {
        let image = pattern(16 * MIB);
        let server = server(&image).once(Fault::StallAt(8 * MIB));
        test.apply(of_web("disk", &server)).await?;
        let pod = worker(&test).await?;
        server.wait_for_stall(Duration::from_secs(60));
        let now = kube::api::DeleteParams::default().grace_period(0);
        test.all::<Pod>().delete(&pod.name_any(), &now).await?;
        test.succeeded("disk").await?;
        test.holds("disk", &image).await?;
        test.only_these_are_left(&["disk"]).await
    });
}

#[test]
fn a_namespace_that_goes_takes_everything_with_it_at_once() {
    run_installed("namespace-goes", async |test| {
        let server = server(&pattern(32 * MIB)).always(Fault::SlowDown(MIB));
        for name in ["a", "b"] {
            test.apply(of_web(name, &server)).await?;
        }
        test.apply(volume("c", "csi", "Block", serde_json::json!({ "upload": {} }))).await?;
        let at_work = |volume: &DataVolume| phase(volume) == "ImportInProgress";
        test.wait("a", "at work", at_work).await?;
        test.leave().await
    });
}

#[test]
fn the_api_server_falls_silent_and_everything_goes_on_after_it() {
    run_installed_alone("silence", async |test| {
        let server = server(&disk());
        let names = ["a", "b", "c", "d"];
        for name in names {
            test.apply(of_web(name, &server)).await?;
        }
        tokio::time::sleep(Duration::from_millis(MOMENTS[0])).await;
        {
            let _paused = test.chaos().pause("kube-apiserver")?;
            tokio::time::sleep(SILENCE).await;
        }
        for name in names {
            test.succeeded(name).await?;
        }
        test.holds("a", &disk()).await?;
        test.only_these_are_left(&names).await
    });
}

#[test]
fn one_process_leads_and_says_so() {
    run_installed("leader", async |test| {
        let leases = Api::<Lease>::namespaced(test.client(), NAMESPACE);
        let name = "cdi-controller-leader-election-helper";
        let is_held = |lease: &Lease| {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            holder.is_some_and(|holder| holder.starts_with(CONTROLLER))
        };
        test.wait_among(&leases, name, "held", is_held).await.map(|_| ())
    });
}
