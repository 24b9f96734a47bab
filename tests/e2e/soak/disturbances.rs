//! What happens to the installation, its workers and the cluster, one at a time and at random.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::{Program, Test};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use testkit::Random;

/// Between the end of one and the next, at least and at most.
const PAUSE_MIN: u64 = 500;
const PAUSE_MAX: u64 = 3000;
/// How long a program is paused or a network cut.
const MOMENT: Duration = Duration::from_secs(3);
/// Bytes per second of a slow disk.
const SLOW: u64 = 512 << 10;
/// One that has not ended by then was prevented by another one; it counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// The processes of a program of this project are killed.
    Crash(&'static str),
    /// The pod of a program of this project is deleted without a grace period.
    Lose(&'static str),
    KillWorker,
    DeleteWorker,
    CutWorker,
    /// The disks of a worker take a long time for everything, until its container ends.
    SlowDisks,
    /// A program of the cluster is killed and started again.
    Restart(&'static str),
    /// A program of the cluster stops for a moment.
    Pause(&'static str),
}

use Disturbance::{Crash, CutWorker, DeleteWorker, KillWorker, Lose, Pause, Restart, SlowDisks};

const ALL: [Disturbance; 22] = [
    Crash("cdi-deployment"),
    Lose("cdi-deployment"),
    Lose("cdi-apiserver"),
    Lose("cdi-uploadproxy"),
    Lose("cdi-operator"),
    // Workers more often: there are many of them.
    KillWorker,
    KillWorker,
    KillWorker,
    DeleteWorker,
    DeleteWorker,
    CutWorker,
    CutWorker,
    SlowDisks,
    SlowDisks,
    Restart("kubelet"),
    Restart("etcd"),
    Restart("kube-apiserver"),
    Restart("kube-controller-manager"),
    Restart("csi-driver"),
    Restart("csi-provisioner"),
    Pause("kube-apiserver"),
    Pause("kubelet"),
];

/// How often each was done, and how often it could not be, as where no worker ran.
#[derive(Debug, Default)]
pub struct Counts {
    pub done: BTreeMap<String, usize>,
    pub failed: BTreeMap<String, usize>,
}

impl Counts {
    pub fn total(&self) -> usize {
        self.done.values().sum()
    }

    /// Fails if a run with many of them has left one out.
    pub fn check(&self) -> Result<()> {
        ensure!(self.total() > 0, "nothing was disturbed: {self:?}");
        let missing: Vec<_> =
            ALL.iter().filter(|one| !self.done.contains_key(&one.name())).collect();
        ensure!(self.total() < 10 * ALL.len() || missing.is_empty(), "never done: {missing:?}");
        Ok(())
    }
}

/// Disturbs until all DataVolumes are filled.
pub async fn disturb(test: &Test, random: &mut Random, counts: &mut Counts, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let next = ALL[random.below(ALL.len() as u64) as usize];
        let choice = random.below(1 << 32) as usize;
        let outcome = tokio::time::timeout(PATIENCE, next.execute(test, choice)).await;
        let outcome = outcome.unwrap_or_else(|_| bail!("not done after {PATIENCE:?}"));
        let counted = if outcome.is_ok() { &mut counts.done } else { &mut counts.failed };
        *counted.entry(next.name()).or_default() += 1;
        if let Err(error) = outcome {
            eprintln!("no {}: {error:#}", next.name());
        }
        let pause = PAUSE_MIN + random.below(PAUSE_MAX - PAUSE_MIN);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

impl Disturbance {
    fn name(self) -> String {
        match self {
            Crash(program) => format!("crash of {program}"),
            Lose(program) => format!("pod of {program} deleted"),
            KillWorker => "worker killed".into(),
            DeleteWorker => "worker's pod deleted".into(),
            CutWorker => "worker's network cut".into(),
            SlowDisks => "worker's disks slow".into(),
            Restart(program) => format!("restart of {program}"),
            Pause(program) => format!("pause of {program}"),
        }
    }

    /// `choice` selects a worker.
    async fn execute(self, test: &Test, choice: usize) -> Result<()> {
        let chaos = test.chaos();
        match self {
            Crash(program) => Program::named(test, program).crash().await,
            Lose(program) => Program::named(test, program).lose().await,
            KillWorker => {
                let worker = worker(test, choice).await?;
                chaos.kill_in_pod(&worker.uid().context("a pod has a uid")?)
            }
            DeleteWorker => {
                let worker = worker(test, choice).await?;
                test.lose_pod(&worker.name_any()).await
            }
            CutWorker => {
                let worker = worker(test, choice).await?;
                let address = worker.status.and_then(|status| status.pod_ip);
                let _cut = chaos.cut(&address.context("the pod has no address")?)?;
                tokio::time::sleep(MOMENT).await;
                Ok(())
            }
            SlowDisks => {
                let worker = worker(test, choice).await?;
                chaos.slow_disks(&worker.uid().context("a pod has a uid")?, SLOW)
            }
            Restart(program) => chaos.restart(program),
            Pause(program) => {
                let _paused = chaos.pause(program)?;
                tokio::time::sleep(MOMENT).await;
                Ok(())
            }
        }
    }
}

/// One of the running workers.
async fn worker(test: &Test, choice: usize) -> Result<Pod> {
    let ours = ListParams::default().labels("app=containerized-data-importer");
    let mut pods = test.all::<Pod>().list(&ours).await?.items;
    pods.retain(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    });
    ensure!(!pods.is_empty(), "no worker runs");
    Ok(pods.swap_remove(choice % pods.len()))
}
