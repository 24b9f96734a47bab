//! What the tests have in common: two nodes that are ready, and what an administrator does to the second.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use cluster::NodeId;
use e2e::Test;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

/// The node that has the control plane.
pub const FIRST: NodeId = NodeId::First;
/// The node that fails.
pub const SECOND: NodeId = NodeId::Second;
/// What an administrator sets on a node that is off for certain: its pods are deleted and its volumes detached at once.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// As [`e2e::run`], in a cluster of two nodes.
pub fn run<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    e2e::run(name, async |running| {
        restore_nodes(&running).await?;
        test(running).await
    });
}

/// As [`e2e::run_alone`], in a cluster of two nodes.
pub fn run_alone<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    e2e::run_alone(name, async |running| {
        restore_nodes(&running).await?;
        let outcome = test(running.clone()).await;
        restore_nodes(&running).await?;
        outcome
    });
}

/// Undoes what a failed test has done to the second node, and waits until both are ready.
pub async fn restore_nodes(test: &Test) -> Result<()> {
    let count = test.state().nodes().len();
    ensure!(
        count == 2,
        "the cluster has {count} node, not 2: `cargo xtask cluster up --nodes 2` creates one with two"
    );
    uncordon(test)?;
    put_into_service(test)?;
    for node in NodeId::ALL {
        is_ready(test, node).await?;
    }
    Ok(())
}

/// Waits until a node is ready.
pub async fn is_ready(test: &Test, node: NodeId) -> Result<()> {
    wait_for_ready(test, node, "True").await
}

/// Waits until the control plane has noticed that the second node is lost.
pub async fn is_lost(test: &Test) -> Result<()> {
    wait_for_ready(test, SECOND, "Unknown").await
}

async fn wait_for_ready(test: &Test, node: NodeId, wanted: &str) -> Result<()> {
    let nodes = Api::<Node>::all(test.client());
    let is_wanted = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == wanted)
    };
    let what = format!("ready: {wanted}");
    test.wait_among(&nodes, node.name(), &what, is_wanted).await.map(|_| ())
}

/// New pods are placed on the second node again.
pub fn uncordon(test: &Test) -> Result<()> {
    test.kubectl_ok(&["uncordon", SECOND.name()], "").map(|_| ())
}

/// Declares that the second node is off for certain.
pub fn take_out_of_service(test: &Test) -> Result<()> {
    let taint = format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute");
    test.kubectl_ok(&["taint", "--overwrite", "node", SECOND.name(), &taint], "").map(|_| ())
}

/// Removes that declaration, if it was made.
pub fn put_into_service(test: &Test) -> Result<()> {
    let output =
        test.kubectl(&["taint", "node", SECOND.name(), &format!("{OUT_OF_SERVICE}-")], "")?;
    let is_done = output.code == 0 || output.stderr.contains("not found");
    ensure!(is_done, "cannot remove the taint: {}", output.stderr);
    Ok(())
}

/// Long enough for a packet or a request to get through, if there were a way.
pub const MOMENT: Duration = Duration::from_secs(3);
