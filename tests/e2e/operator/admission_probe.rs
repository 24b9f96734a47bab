//! Creates DataVolumes without a pause, to see whether they are admitted while the servers of the webhooks are replaced.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{NAMESPACE, Test, volume};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

const INTERVAL: Duration = Duration::from_millis(250);
/// How long kube-proxy routes requests to a pod that is gone, on a machine whose processors are all busy.
const ROUTED_MAX: Duration = Duration::from_secs(10);

/// Which requests may fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    None,
    /// At most this number of those that are routed to a pod of an API server that ends without leaving its Service first, as
    /// upstream CDI's: its connections are cut, or, once the network of the pod is gone, its packets are lost.
    AbruptEnd(usize),
}

/// A DataVolume that was not admitted.
struct Refusal {
    error: String,
    /// Between the start of the request and its response.
    duration: Duration,
    /// Between the last sight of a pod that ends abruptly and the start of the request. `None`: there was no such pod.
    since_abrupt_pod: Option<Duration>,
}

impl Refusal {
    fn is_by_abrupt_end(&self) -> bool {
        self.since_abrupt_pod.is_some_and(|since| since < ROUTED_MAX)
    }
}

impl Display for Refusal {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { error, duration, since_abrupt_pod } = self;
        write!(out, "after {duration:.1?}, ")?;
        match since_abrupt_pod {
            Some(since) => write!(out, "{since:.1?} after the last pod that ends abruptly: ")?,
            None => write!(out, "without a pod that ends abruptly: ")?,
        }
        out.write_str(error)
    }
}

/// What came of the requests.
#[derive(Default)]
struct Outcome {
    requests: u32,
    refusals: Vec<Refusal>,
}

/// Dry-run creations of a DataVolume, which the webhooks admit.
pub struct AdmissionProbe {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Outcome>,
}

impl AdmissionProbe {
    pub fn start(test: &Test) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task =
            tokio::spawn(probe(test.client(), test.namespace().to_owned(), Arc::clone(&stop)));
        Self { stop, task }
    }

    /// Ends, and fails if a request did that `tolerance` does not allow to.
    pub async fn finish(self, tolerance: Tolerance) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Outcome { requests, refusals } = self.task.await.context("the probe panicked")?;
        ensure!(requests > 0, "no DataVolume was created meanwhile");
        let report: Vec<_> = refusals.iter().map(Refusal::to_string).collect();
        let report = report.join("\n");
        let is_tolerated = match tolerance {
            Tolerance::None => refusals.is_empty(),
            Tolerance::AbruptEnd(max) => {
                refusals.len() <= max && refusals.iter().all(Refusal::is_by_abrupt_end)
            }
        };
        let count = refusals.len();
        ensure!(is_tolerated, "{count} of {requests} DataVolumes were not admitted:\n{report}");
        eprintln!("of {requests} DataVolumes all but {count} were admitted\n{report}");
        Ok(())
    }
}

async fn probe(client: Client, namespace: String, stop: Arc<AtomicBool>) -> Outcome {
    let all = Api::<DataVolume>::namespaced(client.clone(), &namespace);
    let servers = Api::<Pod>::namespaced(client, NAMESPACE);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let manifest = volume("admission-probe", "csi", "Block", json!({ "blank": {} }));
    let volume: DataVolume = serde_json::from_value(manifest).expect("a DataVolume");
    let mut outcome = Outcome::default();
    let mut abrupt_pod_seen: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        if has_abrupt_pod(&servers).await {
            abrupt_pod_seen = Some(Instant::now());
        }
        let begin = Instant::now();
        outcome.requests += 1;
        if let Err(error) = all.create(&dry_run, &volume).await {
            outcome.refusals.push(Refusal {
                error: error.to_string(),
                duration: begin.elapsed(),
                since_abrupt_pod: abrupt_pod_seen.map(|seen| begin.duration_since(seen)),
            });
        }
        tokio::time::sleep(INTERVAL).await;
    }
    outcome
}

/// Whether there is a pod of an API server whose container has no hook that keeps it until it has left its Service.
async fn has_abrupt_pod(servers: &Api<Pod>) -> bool {
    let of_api_server = ListParams::default().labels("cdi.kubevirt.io=cdi-apiserver");
    let pods = servers.list(&of_api_server).await.map(|pods| pods.items).unwrap_or_default();
    let mut containers = pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers.first());
    containers.any(|container| container.lifecycle.is_none())
}
