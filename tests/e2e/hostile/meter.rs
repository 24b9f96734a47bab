//! Samples the pods of the installation every few seconds: restarts, memory, and the latency of their health checks.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::Process;
use e2e::{NAMESPACE, Test, Usage};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::scenario::Scenario;

/// Between two looks.
const PAUSE: u64 = 5;
/// As long as the kubelet waits for a response.
const PATIENCE: &str = "10";

/// Which pods there are, and how often their containers were started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarts(BTreeMap<String, i32>);

impl Restarts {
    /// Those until now.
    pub async fn read(admin: &Test) -> Result<Self> {
        let all = pods(admin).await?.into_iter().map(|pod| {
            let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let count = status.into_iter().flatten().map(|container| container.restart_count).sum();
            (pod.name_any(), count)
        });
        Ok(Self(all.collect()))
    }

    /// Fails unless these are the same pods, and none was started again.
    pub fn check(&self, later: &Self) -> Result<()> {
        ensure!(
            self == later,
            "pods of the installation restarted: {:?}, then {:?}",
            self.0,
            later.0
        );
        Ok(())
    }
}

async fn pods(admin: &Test) -> Result<Vec<Pod>> {
    let all = Api::<Pod>::namespaced(admin.client(), NAMESPACE);
    Ok(all.list(&ListParams::default().labels("cdi.kubevirt.io")).await?.items)
}

/// Samples all pods until the run ends, and returns a row for each sample.
pub async fn watch(admin: &Test, scenario: &Scenario) -> Result<Vec<Value>> {
    let begin = Instant::now();
    let mut rows = Vec::new();
    while !scenario.is_over() {
        for pod in pods(admin).await? {
            let at = begin.elapsed().as_secs();
            rows.push(sample_pod(admin, &pod, at).await?);
        }
        scenario.pause(PAUSE).await;
    }
    Ok(rows)
}

async fn sample_pod(admin: &Test, pod: &Pod, at: u64) -> Result<Value> {
    let program = pod.labels().get("cdi.kubevirt.io").cloned().unwrap_or_default();
    let mut row =
        json!({ "row": "sample", "second": at, "program": program, "pod": pod.name_any() });
    // A process that is restarting may be gone.
    if let Some(used) = used(pod)? {
        row["rss_mib"] = used.rss_mib.into();
        row["peak_mib"] = used.peak_mib.into();
        row["cpu_ms"] = (used.cpu.as_millis() as u64).into();
    }
    if let Some(url) = probe(pod) {
        let cluster_pid =
            Process::read(admin.state(), "namespaces")?.pid.context("the cluster has a process")?;
        let found = tokio::task::spawn_blocking(move || health(cluster_pid, &url)).await?;
        row["healthy"] = found.is_some().into();
        row["health_ms"] = found.map_or(Value::Null, |time| (time.as_millis() as u64).into());
    }
    Ok(row)
}

/// The usage of the pod's one process so far.
fn used(pod: &Pod) -> Result<Option<Usage>> {
    let pids = cluster::processes_of_pod(&pod.uid().context("a pod has a UID")?)?;
    let Some(pid) = pids.first() else { return Ok(None) };
    Ok(Usage::read((*pid).try_into()?).ok())
}

/// The URL of the kubelet's liveness probe.
fn probe(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let get = container.liveness_probe.as_ref()?.http_get.as_ref()?;
    let port = match &get.port {
        IntOrString::Int(port) => *port,
        IntOrString::String(name) => {
            let ports = container.ports.as_ref()?;
            ports.iter().find(|port| port.name.as_ref() == Some(name))?.container_port
        }
    };
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let ip = pod.status.as_ref()?.pod_ip.as_ref()?;
    Some(format!("{scheme}://{ip}:{port}{}", get.path.as_deref().unwrap_or("/")))
}

/// Sends the probe from the node, as the kubelet does. `None`: there was no response, or another status.
fn health(cluster_pid: i32, url: &str) -> Option<Duration> {
    let network = format!("--net=/proc/{cluster_pid}/ns/net");
    let mut curl = Command::new("nsenter");
    curl.args([&network, "curl", "--silent", "--insecure", "--output", "/dev/null"]);
    curl.args(["--max-time", PATIENCE, "--write-out", "%{http_code} %{time_total}", url]);
    let output = curl.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, seconds) = text.split_once(' ')?;
    (status == "200").then(|| seconds.parse().ok().map(Duration::from_secs_f64))?
}
