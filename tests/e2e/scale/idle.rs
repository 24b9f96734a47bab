//! The memory of an installation at rest: upstream CDI's by its operator, then ours, which takes it over.

use api::v1beta1::Cdi;
use cluster::{UPSTREAM_VERSION, load_upstream_images, upstream_operator_manifest};
use e2e::{NAMESPACE, Usage, is_available, kubectl, operator_version, release_file};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::*;

/// An installation that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between the end of an installation and the measurement.
const REST: Duration = Duration::from_secs(60);

/// A figure for each program of both installations, in a cluster where nothing is installed.
pub async fn measure(state: &State) -> Result<Vec<Value>> {
    let client = client(state).await?;
    load_upstream_images(state)?;
    let ours = release_file("cdi-operator.yaml")?;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    });

    apply(state, &namespace.to_string())?;
    apply(state, &upstream_operator_manifest(NAMESPACE)?)?;
    apply(state, &release_file("cdi-cr.yaml")?)?;
    let mut figures = at_rest(&client, "reference", UPSTREAM_VERSION).await?;
    apply(state, &ours)?;
    figures.extend(at_rest(&client, "ours", &operator_version(&ours)?).await?);
    Ok(figures)
}

/// The usage of each pod, a minute after the installation is complete.
async fn at_rest(client: &Client, whose: &str, version: &str) -> Result<Vec<Value>> {
    wait_for_version(client, version).await?;
    tokio::time::sleep(REST).await;
    // The same pods twice: one that is replaced meanwhile has no process any more.
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let pods = pods.list(&ListParams::default()).await?.items;
    let usages = || {
        let uids = pods.iter().map(|pod| pod.uid().context("a pod has a UID"));
        uids.map(|uid| Usage::of_pod(&uid?)).collect::<Result<Vec<_>>>()
    };
    let before = usages()?;
    tokio::time::sleep(IDLE).await;
    let after = usages()?;
    let figures = pods.iter().zip(before.iter().zip(after)).map(|(pod, (before, after))| {
        let program = pod.labels().get("cdi.kubevirt.io").map_or("cdi-operator", |name| name);
        let figure = json!({
            "by": whose, "program": program, "rss_mib": after.rss_mib,
            "anonymous_mib": after.anonymous_mib, "peak_mib": after.peak_mib,
            "cpu_ms": millis(after.cpu.saturating_sub(before.cpu)),
        });
        eprintln!("{figure}");
        figure
    });
    Ok(figures.collect())
}

/// Until the operator of this version has installed everything.
async fn wait_for_version(client: &Client, version: &str) -> Result<()> {
    let all = Api::<Cdi>::all(client.clone());
    let begin = Instant::now();
    loop {
        let cdi = all.get("cdi").await?;
        if is_available(&cdi, Some(version)) {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "version {version} is not available: {:?}", cdi.status);
        tokio::time::sleep(PAUSE).await;
    }
}

fn apply(state: &State, manifest: &str) -> Result<()> {
    let output = kubectl(state, &["apply", "--filename=-"], manifest)?;
    ensure!(output.code == 0, "kubectl apply: {}", output.stderr);
    Ok(())
}
