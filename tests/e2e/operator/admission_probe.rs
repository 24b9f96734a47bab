//! Asks the API server without a pause whether DataVolumes are admitted, while webhooks' servers are replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Test, volume};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

const INTERVAL: Duration = Duration::from_millis(250);

/// How the cluster's API server reports that the server of a webhook ended.
const CUT_CONNECTION: [&str; 4] =
    [": connection refused", ": connection reset by peer", ": broken pipe", ": EOF"];

/// What came of the requests.
#[derive(Default)]
struct Outcome {
    requests: u32,
    failures: Vec<String>,
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

    /// Ends, and fails if a request did.
    pub async fn finish(self) -> Result<()> {
        self.finish_with(0).await
    }

    /// Ends. Upstream CDI's API server closes its port and its connections as soon as it is terminated, when requests are still
    /// routed to it: at most `refused_max` of them may meet that.
    pub async fn finish_with(self, refused_max: usize) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Outcome { requests, failures } = self.task.await.context("the probe panicked")?;
        ensure!(requests > 0, "no DataVolume was created meanwhile");
        let is_cut = |failure: &String| CUT_CONNECTION.iter().any(|text| failure.contains(text));
        ensure!(
            failures.len() <= refused_max && failures.iter().all(is_cut),
            "{} of {requests} DataVolumes were not admitted: {failures:#?}",
            failures.len(),
        );
        eprintln!("of {requests} DataVolumes all but {} were admitted", failures.len());
        Ok(())
    }
}

async fn probe(client: Client, namespace: String, stop: Arc<AtomicBool>) -> Outcome {
    let all = Api::<DataVolume>::namespaced(client, &namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let manifest = volume("admission-probe", "csi", "Block", json!({ "blank": {} }));
    let volume: DataVolume = serde_json::from_value(manifest).expect("a DataVolume");
    let mut outcome = Outcome::default();
    while !stop.load(Ordering::Relaxed) {
        outcome.requests += 1;
        if let Err(error) = all.create(&dry_run, &volume).await {
            outcome.failures.push(error.to_string());
        }
        tokio::time::sleep(INTERVAL).await;
    }
    outcome
}
