//! The end of a DataVolume whose claim stays.

use std::sync::Arc;

use api::events;
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::engine::queue::Next;
use crate::engine::{Context, Error};
use controller_core::event::Event;
use controller_core::meta;

/// Lets go of the claim, and then deletes the DataVolume. What the cluster collects with an owner it looks up first, so that
/// a claim that is nobody's by then is safe.
pub async fn let_go(
    context: &Context,
    component: &str,
    volume: &DataVolume,
    claim: Option<Arc<PersistentVolumeClaim>>,
) -> Result<Next, Error> {
    let Some(claim) = claim else { return Ok(Next::Wait) };
    let claim = release(context, claim, meta::uid(&volume.metadata)).await?;
    context.cluster.delete(volume).await?;
    let name = meta::name(&volume.metadata);
    let words = format!("The DataVolume {name} has had its time; its claim stays");
    let told = Event::normal(events::DATA_VOLUME_COLLECTED, words);
    context.recorder.tell(component, claim.as_ref(), &[told]).await;
    Ok(Next::Wait)
}

/// Takes an owner off a claim. The list is replaced as a whole, so nobody else may have written to it meanwhile.
pub async fn release(
    context: &Context,
    claim: Arc<PersistentVolumeClaim>,
    owner_uid: &str,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let mut owners = claim.metadata.owner_references.clone().unwrap_or_default();
    let before = owners.len();
    owners.retain(|owner| owner.uid != owner_uid);
    if owners.len() == before {
        return Ok(claim);
    }
    let patch = json!({ "metadata": {
        "ownerReferences": owners, "resourceVersion": claim.metadata.resource_version,
    } });
    Ok(Arc::new(context.cluster.patch(claim.as_ref(), &patch).await?))
}
