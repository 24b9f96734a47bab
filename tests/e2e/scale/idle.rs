//! The memory of an installation at rest: upstream CDI's by its operator, then ours, which takes it over.

use std::path::PathBuf;

use api::v1beta1::Cdi;
use cluster::{
    KUBERNETES, Tools, UPSTREAM_VERSION, load_upstream_images, upstream_operator_manifest,
};
use e2e::{NAMESPACE, Usage};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::*;

/// An installation that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between the end of an installation and the measurement.
const REST: Duration = Duration::from_secs(60);
/// The variable of an operator's manifest that has its version.
const VERSION: &str = "OPERATOR_VERSION";

/// A figure for each program of both installations, in a cluster where nothing is installed.
pub async fn measure(state: &State) -> Result<Vec<Value>> {
    let client = client(state).await?;
    load_upstream_images(state)?;
    let upstream = tempfile::NamedTempFile::with_suffix(".yaml")?;
    std::fs::write(upstream.path(), upstream_operator_manifest(NAMESPACE)?)?;
    let release = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/operator");
    let ours = release.join("cdi-operator.yaml");

    kubectl(state, &["create", "namespace", NAMESPACE])?;
    apply(state, upstream.path())?;
    apply(state, &release.join("cdi-cr.yaml"))?;
    let mut figures = at_rest(&client, "reference", UPSTREAM_VERSION).await?;
    apply(state, &ours)?;
    figures.extend(at_rest(&client, "ours", &operator_version(&ours)?).await?);
    Ok(figures)
}

/// The usage of each pod, a minute after the installation is complete.
async fn at_rest(client: &Client, whose: &str, version: &str) -> Result<Vec<Value>> {
    wait_for_version(client, version).await?;
    tokio::time::sleep(REST).await;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let read = async || {
        let mut usages = Vec::new();
        for pod in pods.list(&ListParams::default()).await?.items {
            let program = pod.labels().get("cdi.kubevirt.io").map_or("cdi-operator", |name| name);
            usages.push((program.to_owned(), usage(&pod)?));
        }
        Ok::<_, anyhow::Error>(usages)
    };
    let before = read().await?;
    tokio::time::sleep(IDLE).await;
    let after = read().await?;
    ensure!(before.len() == after.len(), "pods of {whose} were replaced while nothing happened");
    let figures = before.into_iter().zip(after).map(|((program, before), (_, after))| {
        let figure = json!({
            "by": whose, "program": program, "rss_mib": after.rss_mib, "peak_mib": after.peak_mib,
            "cpu_ms": millis(after.cpu.saturating_sub(before.cpu)),
        });
        eprintln!("{figure}");
        figure
    });
    Ok(figures.collect())
}

/// The usage of a pod's one process.
fn usage(pod: &Pod) -> Result<Usage> {
    let pids = cluster::processes_of_pod(&pod.uid().context("a pod has a UID")?)?;
    let [pid] = pids.as_slice() else {
        bail!("{}: {} processes, not one", pod.name_any(), pids.len())
    };
    Usage::read((*pid).try_into()?)
}

/// Until the operator of this version has installed everything.
async fn wait_for_version(client: &Client, version: &str) -> Result<()> {
    let all = Api::<Cdi>::all(client.clone());
    let begin = Instant::now();
    loop {
        let cdi = all.get("cdi").await?;
        let status = cdi.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let has = |kind: &str, value: &str| {
            conditions.iter().any(|condition| condition.type_ == kind && condition.status == value)
        };
        if status.observed_version.as_deref() == Some(version)
            && has("Available", "True")
            && has("Progressing", "False")
        {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "version {version} is not available: {conditions:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

fn apply(state: &State, file: &Path) -> Result<()> {
    kubectl(state, &["apply", "--filename", file.to_str().context("a path is not UTF-8")?])
}

fn kubectl(state: &State, words: &[&str]) -> Result<()> {
    let mut command = cluster::kubectl(state, &Tools::ready(&[KUBERNETES])?)?;
    let output = command.args(words).stdin(Stdio::null()).output().context("no kubectl")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {printed}", words.join(" "));
    Ok(())
}

/// The version of an operator's manifest.
fn operator_version(manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| *line == format!("- name: {VERSION}"));
    let value = lines.next().and_then(|line| line.strip_prefix("value: "));
    Ok(value.with_context(|| format!("no {VERSION}"))?.trim_matches('"').to_owned())
}
