//! From the name of a claim to the server that fills it.

use std::time::Duration;

use crate::claim::{Claim, Standing};
use crate::cluster::Cluster;
use crate::error::Refusal;

/// How long a claim may take to get ready. Clients come again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where an upload goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Of the server.
    pub namespace: String,
    /// The service before the server.
    pub service: String,
    /// It takes files and not a disk.
    pub archive: bool,
}

/// The server of a claim, once that is ready.
///
/// # Errors
/// When it never will be, or is not in time.
pub async fn destination(
    cluster: &impl Cluster,
    namespace: &str,
    name: &str,
) -> Result<Destination, Refusal> {
    let waited = tokio::time::timeout(PATIENCE, wait(cluster, namespace, name));
    waited.await.unwrap_or(Err(Refusal::NotReady))
}

async fn wait(cluster: &impl Cluster, namespace: &str, name: &str) -> Result<Destination, Refusal> {
    loop {
        let claim = cluster.claim(namespace, name).await?.ok_or(Refusal::Missing)?;
        let filled = match filled(cluster, claim).await? {
            Ok(filled) => filled,
            Err(unknown_yet) => {
                cluster.changed(&unknown_yet).await;
                continue;
            }
        };
        match filled.standing()? {
            Standing::Wait => cluster.changed(&filled).await,
            Standing::Ready { archive } => {
                let service = api::names::label_value(&api::names::upload_server(&filled.name));
                return Ok(Destination { namespace: filled.namespace, service, archive });
            }
        }
    }
}

/// The claim that is filled when something is uploaded to `claim`; or `claim` again, where that is not known yet.
async fn filled(cluster: &impl Cluster, claim: Claim) -> Result<Result<Claim, Claim>, Refusal> {
    if !claim.is_populated {
        return Ok(Ok(claim));
    }
    if claim.is_finished() {
        return Err(Refusal::Finished); // the other claim may be gone
    }
    let Some(prime) = claim.prime() else { return Ok(Err(claim)) };
    let prime = cluster.claim(&claim.namespace, prime).await?;
    prime.map(Ok).ok_or(Refusal::NoPrime)
}
