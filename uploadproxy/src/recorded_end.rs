//! Waits until the end of an upload is recorded in its PVC.
//!
//! Until then the volume may be filled once more: if the pod of the upload server is deleted, or lost with its node, before
//! the controller has seen its end, another server takes its place and waits for an upload. A client that has its 200 by then
//! would not send one.

use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use crate::cluster_api::{ClusterApi, ClusterError};
use crate::target_pvc::TargetPvc;

/// After a request to the Kubernetes API has failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Returns once the end of the upload to a PVC is recorded, or the PVC is deleted.
///
/// The PVC does not show earlier that the server was lost: it may report the restart of its container, and that it is ready again,
/// after the upload has ended.
///
/// # Errors
/// After `patience`.
pub async fn wait_until_recorded(
    cluster: &impl ClusterApi,
    namespace: &str,
    name: &str,
    patience: Duration,
) -> Result<(), Elapsed> {
    let recorded = async {
        loop {
            match unfinished_pvc(cluster, namespace, name).await {
                Ok(None) => return,
                Ok(Some(unfinished)) => cluster.changed(&unfinished).await,
                Err(error) => {
                    tracing::debug!("{}", runtime::chain(&error));
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    };
    timeout(patience, recorded).await
}

/// The PVC that is to record the end, as long as it has not: the prime PVC, or the PVC itself.
async fn unfinished_pvc(
    cluster: &impl ClusterApi,
    namespace: &str,
    name: &str,
) -> Result<Option<TargetPvc>, ClusterError> {
    let claim = cluster.claim(namespace, name).await?.filter(|claim| !claim.is_finished());
    let Some(claim) = claim else { return Ok(None) };
    let Some(prime) = claim.prime().filter(|_| claim.is_populated) else { return Ok(Some(claim)) };
    // Without its prime PVC, it has the volume already and is about to be finished itself.
    let prime = cluster.claim(namespace, prime).await?;
    Ok(Some(prime.unwrap_or(claim)).filter(|filled| !filled.is_finished()))
}
