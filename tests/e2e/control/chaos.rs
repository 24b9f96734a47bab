//! Programs and workers that die at a bad moment: everything ends as if they had not.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{
    NAMESPACE, PATIENCE, Program, Test, phase, run_installed, run_installed_alone, upload_token,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use testkit::{Fault, FaultServer, Image, KIB, MIB, Random, pattern};
use tokio::net::TcpStream;

use crate::world::{annotated, disk, of_web, server, volume, worker};

const CONTROLLER: &str = "cdi-deployment";
/// The port of upload servers.
const PORT: u16 = 8443;
/// At once.
const VOLUMES: usize = 50;
/// How often the controllers die while these are imported, at most.
const DEATHS: usize = 3;
/// A delay after which a controller is busy; it is synchronized with no state.
const MOMENT: Duration = Duration::from_millis(300);

/// A controller that cannot renew its lease for 30 s ends.
const SILENCE: Duration = Duration::from_secs(32);

/// Waits until the pod of a device has noted something in its journal.
async fn journal(test: &Test, pod_uid: &str) -> Result<()> {
    let folder = "volumes/kubernetes.io~empty-dir/cdi-journal-vol";
    let path = test.state().path(&format!("kubelet/pods/{pod_uid}/{folder}/.cdi-journal"));
    for _ in 0..3000 {
        if std::fs::read_to_string(&path).is_ok_and(|text| text.contains("\"start\"")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("nothing is noted in {}", path.display())
}

/// One of many, each of them filled in another way.
fn one_of_many(at: usize, server: &FaultServer) -> (String, Value) {
    let name = format!("disk-{at}");
    let legacy = "cdi.kubevirt.io/storage.usePopulator";
    let made = match at % 3 {
        0 => of_web(&name, server),
        1 => volume(&name, "csi", "Block", json!({ "blank": {} })),
        _ => annotated(of_web(&name, server), legacy, "false"),
    };
    (name, made)
}

async fn are_all_done(test: &Test) -> Result<bool> {
    let all = test.all::<DataVolume>().list(&ListParams::default()).await?.items;
    Ok(all.len() == VOLUMES && all.iter().all(|volume| phase(volume) == "Succeeded"))
}

#[test]
fn imports_survive_killed_controllers() {
    // An event that was not sent when the program died is lost.
    run_installed_alone("controller-dies", async |test| {
        let server = server(&disk());
        let controller = Program::named(&test, CONTROLLER);
        let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        eprintln!("the moments of {seed}");
        let mut chance = Random::new(seed);
        let mut names = Vec::new();
        for at in 0..VOLUMES {
            let (name, made) = one_of_many(at, &server);
            test.apply(made).await?;
            names.push(name);
        }
        for death in 0..DEATHS {
            tokio::time::sleep(Duration::from_millis(chance.below(4000))).await;
            if are_all_done(&test).await? {
                break;
            }
            // A lost pod is replaced at once; the back-off after a crash grows each time.
            match death % 2 {
                0 => controller.lose().await?,
                _ => controller.crash().await?,
            }
        }
        for name in &names {
            test.succeeded(name).await?;
        }
        for name in ["disk-0", "disk-2", "disk-48"] {
            test.holds(name, &disk()).await?;
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        test.only_these_are_left(&names).await
    });
}

#[test]
fn restarted_worker_resumes() {
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
fn oom_killed_worker_is_reported_and_replaced() {
    run_installed("out-of-memory", async |test| {
        let image = pattern(32 * MIB);
        // It has requested everything, and its memory is nearly used up.
        let server = server(&image).always(Fault::StallAfter(64 * KIB));
        test.apply(of_web("disk", &server)).await?;
        let pod = worker(&test).await?;
        server.wait_for_stall(PATIENCE);
        test.chaos().starve(&pod.uid().context("a pod has a uid")?)?;
        // The kernel kills it on the way. The kubelet starts its container again, which must not have succeeded before the
        // controller has seen that.
        server.fail_with(Fault::StallAt(image.len() as u64 - MIB));
        let message = test.event_message("disk", "OOMKilled").await?;
        ensure!(message.contains("out of memory"), "{message}");
        server.heal();
        test.succeeded("disk").await?;
        test.holds("disk", &image).await?;
        test.only_these_are_left(&["disk"]).await
    });
}

#[test]
fn deleted_worker_is_replaced() {
    run_installed("worker-deleted", async |test| {
        let image = pattern(16 * MIB);
        let server = server(&image).once(Fault::StallAt(8 * MIB));
        test.apply(of_web("disk", &server)).await?;
        let pod = worker(&test).await?;
        server.wait_for_stall(PATIENCE);
        test.lose_pod(&pod.name_any()).await?;
        test.succeeded("disk").await?;
        test.holds("disk", &image).await?;
        test.only_these_are_left(&["disk"]).await
    });
}

/// The proxy's connection to the upload server has no end: its network is gone before it is.
#[test]
fn upload_is_accepted_after_its_proxy_was_lost_with_its_network() {
    run_installed_alone("proxy-lost", async |test| {
        let image = disk();
        test.apply(volume("disk", "csi", "Block", json!({ "upload": {} }))).await?;
        test.upload_ready("disk").await?;
        let token = upload_token(&test, "disk").await?;
        let proxy = Program::named(&test, "cdi-uploadproxy");
        let file = Image::from_bytes(&image);
        let mut client = slow_upload(&test, &token, file.path()).await?;
        let has_begun = |volume: &DataVolume| {
            let progress = volume.status.as_ref().and_then(|status| status.progress.as_deref());
            progress.is_some_and(|progress| !matches!(progress, "N/A" | "0.0%" | "0.00%"))
        };
        test.wait("disk", "receiving", has_begun).await?;

        let address = proxy.pod().await?.status.and_then(|status| status.pod_ip);
        let _cut = test.chaos().cut(&address.context("a pod has an address")?)?;
        proxy.lose().await?;
        test.upload("disk", &image).await?;
        client.kill()?;
        client.wait()?;
        test.succeeded("disk").await?;
        test.holds("disk", &image).await?;
        test.only_these_are_left(&["disk"]).await
    });
}

/// The server has written the disk, and is lost before the kubelet has reported its end: the server that replaces it waits for an
/// upload. The client gets no 200, and sends the image again.
#[test]
fn upload_is_repeated_if_its_server_is_lost_at_its_end() {
    run_installed_alone("server-lost-at-end", async |test| {
        let image = disk();
        test.apply(volume("disk", "csi", "Block", json!({ "upload": {} }))).await?;
        test.upload_ready("disk").await?;
        let server = test.upload_server().await?;
        let address = server.status.as_ref().and_then(|status| status.pod_ip.clone());
        let address = address.context("a pod has an address")?;
        let kubelet = test.chaos().pause("kubelet")?;
        let lose = async {
            let listens = async || TcpStream::connect((address.as_str(), PORT)).await.is_ok();
            let ended = async {
                while listens().await {
                    tokio::time::sleep(MOMENT).await;
                }
            };
            tokio::time::timeout(PATIENCE, ended).await.context("the server does not end")?;
            test.lose_pod(&server.name_any()).await?;
            drop(kubelet);
            Ok(())
        };
        let (uploaded, lost) = tokio::join!(test.upload("disk", &image), lose);
        uploaded.and(lost)?;
        test.succeeded("disk").await?;
        test.holds("disk", &image).await?;
        test.only_these_are_left(&["disk"]).await
    });
}

/// A client that takes minutes.
async fn slow_upload(test: &Test, token: &str, file: &Path) -> Result<Child> {
    let url = format!("https://{}/v1beta1/upload", test.service_address("cdi-uploadproxy").await?);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--limit-rate", "128k", "--request", "POST"]);
    curl.args(["--header", &format!("Authorization: Bearer {token}")]);
    curl.arg("--upload-file").arg(file).arg(url).stdout(Stdio::null());
    curl.spawn().context("cannot start curl")
}

#[test]
fn deleted_namespace_is_removed_at_once() {
    run_installed("namespace-goes", async |test| {
        let server = server(&pattern(32 * MIB)).always(Fault::SlowDown(MIB));
        for name in ["a", "b"] {
            test.apply(of_web(name, &server)).await?;
        }
        test.apply(volume("c", "csi", "Block", json!({ "upload": {} }))).await?;
        let running = |volume: &DataVolume| phase(volume) == "ImportInProgress";
        test.wait("a", "running", running).await?;
        test.leave().await
    });
}

#[test]
fn controllers_recover_from_an_api_server_outage() {
    run_installed_alone("silence", async |test| {
        let server = server(&disk());
        let names = ["a", "b", "c", "d"];
        for name in names {
            test.apply(of_web(name, &server)).await?;
        }
        tokio::time::sleep(MOMENT).await;
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
fn one_controller_holds_the_lease() {
    run_installed("leader", async |test| {
        let leases = Api::<Lease>::namespaced(test.client(), NAMESPACE);
        let name = api::names::CONTROLLER_LEASE;
        let is_held = |lease: &Lease| {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            holder.is_some_and(|holder| holder.starts_with(CONTROLLER))
        };
        test.wait_among(&leases, name, "held", is_held).await.map(|_| ())
    });
}
