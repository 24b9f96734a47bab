//! Finds the upload server of a PVC.

use std::time::Duration;

use crate::cluster_api::ClusterApi;
use crate::error::UploadRefusal;
use crate::target_pvc::{TargetPvc, UploadReadiness};

/// How long a request waits for a PVC to become ready. Clients retry.
const READY_MAX: Duration = Duration::from_secs(10);

/// The upload server of a PVC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadServer {
    pub namespace: String,
    /// Name of its Service.
    pub service: String,
    /// Content type `archive`.
    pub archive: bool,
}

/// Waits until the upload server is ready.
///
/// # Errors
/// When it never will be, or not in time.
pub async fn find_upload_server(
    cluster: &impl ClusterApi,
    namespace: &str,
    name: &str,
) -> Result<UploadServer, UploadRefusal> {
    let waited = tokio::time::timeout(READY_MAX, wait_until_ready(cluster, namespace, name));
    waited.await.unwrap_or(Err(UploadRefusal::NotReady))
}

async fn wait_until_ready(
    cluster: &impl ClusterApi,
    namespace: &str,
    name: &str,
) -> Result<UploadServer, UploadRefusal> {
    loop {
        let claim = cluster.claim(namespace, name).await?.ok_or(UploadRefusal::Missing)?;
        let filled = match resolve_filled_pvc(cluster, claim).await? {
            Ok(filled) => filled,
            Err(unknown_yet) => {
                cluster.changed(&unknown_yet).await;
                continue;
            }
        };
        match filled.upload_readiness()? {
            UploadReadiness::Wait => cluster.changed(&filled).await,
            UploadReadiness::Ready { archive } => {
                let service = api::names::label_value(&api::names::upload_server(&filled.name));
                return Ok(UploadServer { namespace: filled.namespace, service, archive });
            }
        }
    }
}

/// The PVC that an upload to `claim` fills: its prime PVC or itself. The inner error: not known yet.
async fn resolve_filled_pvc(
    cluster: &impl ClusterApi,
    claim: TargetPvc,
) -> Result<Result<TargetPvc, TargetPvc>, UploadRefusal> {
    if !claim.is_populated {
        return Ok(Ok(claim));
    }
    if claim.is_finished() {
        return Err(UploadRefusal::Finished); // the prime PVC may be deleted
    }
    let Some(prime) = claim.prime() else { return Ok(Err(claim)) };
    let prime = cluster.claim(&claim.namespace, prime).await?;
    prime.map(Ok).ok_or(UploadRefusal::NoPrime)
}
