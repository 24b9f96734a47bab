//! What the tests of the installed system have in common: the workers of a DataVolume, and where they are.

use std::sync::Arc;

use anyhow::{Result, bail};
use api::v1beta1::DataVolume;
use cluster::NodeId;
use e2e::{NAMESPACE, PATIENCE, PAUSE, PodPlan, Test, condition};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::world::{FIRST, SECOND, restore_nodes};

/// As [`e2e::run`], in a cluster of two nodes where this project is installed.
pub fn run_installed<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    e2e::run_installed(name, async |running| {
        restore_nodes(&running).await?;
        INSTALLATION_IS_PLACED.get_or_try_init(|| place_installation(&running)).await?;
        test(running).await
    });
}

/// As [`e2e::run_alone`], in a cluster of two nodes where this project is installed.
pub fn run_installed_alone<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    e2e::run_installed_alone(name, async |running| {
        restore_nodes(&running).await?;
        INSTALLATION_IS_PLACED.get_or_try_init(|| place_installation(&running)).await?;
        let outcome = test(running.clone()).await;
        restore_nodes(&running).await?;
        outcome
    });
}

static INSTALLATION_IS_PLACED: OnceCell<()> = OnceCell::const_new();

/// Moves this project's own programs to the first node, so that the tests fail the workers alone.
async fn place_installation(test: &Test) -> Result<()> {
    let selector = json!({ "spec": { "template": { "spec": {
        "nodeSelector": { "kubernetes.io/hostname": FIRST.name() },
    } } } });
    let programs = Api::<Deployment>::namespaced(test.client(), NAMESPACE);
    for program in programs.list(&ListParams::default()).await?.items {
        let name = program.name_any();
        programs.patch(&name, &PatchParams::default(), &Patch::Strategic(&selector)).await?;
        let deployment = format!("deployment/{name}");
        let namespace = format!("--namespace={NAMESPACE}");
        test.kubectl_ok(&["rollout", "status", &namespace, "--timeout=180s", &deployment], "")?;
    }
    Ok(())
}

/// No new pod is placed on the second node.
pub fn cordon(test: &Test) -> Result<()> {
    test.kubectl_ok(&["cordon", SECOND.name()], "").map(|_| ())
}

/// Cordons the second node and evicts its pods.
pub fn drain(test: &Test) -> Result<()> {
    let words = ["drain", SECOND.name(), "--force", "--delete-emptydir-data", "--timeout=120s"];
    test.kubectl_ok(&words, "").map(|_| ())
}

/// The labels of pods that import, and of those that receive an upload or a clone.
pub const IMPORTER: &str = "importer";
pub const UPLOAD_SERVER: &str = "cdi-upload-server";

/// The node of a running pod.
pub fn node_of(pod: &Pod) -> Option<NodeId> {
    pod.spec.as_ref().and_then(|spec| NodeId::named(spec.node_name.as_deref()?))
}

/// The running worker with this label, on this node.
pub async fn worker_on(test: &Test, label: &str, node: NodeId) -> Result<Pod> {
    let ours = ListParams::default().labels(&format!("cdi.kubevirt.io={label}"));
    let begin = std::time::Instant::now();
    loop {
        let pods = test.all::<Pod>().list(&ours).await?.items;
        let is_here = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let is_staying = pod.metadata.deletion_timestamp.is_none();
            phase == Some("Running") && is_staying && node_of(pod) == Some(node)
        };
        if let Some(pod) = pods.iter().find(is_here) {
            return Ok(pod.clone());
        }
        if begin.elapsed() > PATIENCE {
            let found: Vec<_> = pods.iter().map(|pod| (pod.name_any(), node_of(pod))).collect();
            bail!("no {label} runs on {}: {found:?}", node.name());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A pod on a node that uses the disk, as a virtual machine does: the first consumer of a PVC that waits for one.
pub async fn consumer(test: &Test, claim: &str, node: NodeId) -> Result<Pod> {
    let name = format!("{claim}-consumer");
    PodPlan::new(&name, &["pause"]).device(claim, "/disk").on(node).make(test).await
}

/// Reason and message of the condition `Running` of a DataVolume.
pub fn running(volume: &DataVolume) -> (String, String) {
    let found = condition(volume, "Running");
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    let reason = text(found.and_then(|condition| condition.reason.as_ref()));
    (reason, text(found.and_then(|condition| condition.message.as_ref())))
}

/// Waits until a DataVolume reports that the node of its worker is lost.
pub async fn reports_the_lost_node(test: &Test, volume: &str) -> Result<()> {
    let is_reported = |volume: &DataVolume| {
        let (reason, message) = running(volume);
        reason == "NodeLost" && message.contains(&format!("the node {} ", SECOND.name()))
    };
    test.wait(volume, "waiting for its node", is_reported).await.map(|_| ())
}
