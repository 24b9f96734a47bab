//! The objects that the next step of a transfer depends on.

use api::v1beta1::ObjectTransfer;

use crate::controllers::workers;
use crate::engine::{Engine, Error};
use controller_core::meta;
use controller_core::object_transfer::{
    Moved, Record, TransferFacts, is_over, moved, reserved_by, source, target, transfer_of_claim,
};

pub(super) async fn observe(
    engine: &Engine,
    transfer: &ObjectTransfer,
) -> Result<TransferFacts, Error> {
    let api = &engine.api;
    let (source, target) = (source(&transfer.spec), target(&transfer.spec));
    let mut facts =
        TransferFacts { record: Record::from_status(transfer), ..TransferFacts::default() };
    let is_of_data_volume = moved(&transfer.spec) == Some(Moved::DataVolume);
    if is_of_data_volume {
        facts.data_volume = api.get(&source.namespace, &source.name).await?;
        facts.target_data_volume = api.get(&target.namespace, &target.name).await?;
    }
    facts.claim = api.get(&source.namespace, &source.name).await?;
    facts.target_claim = api.get(&target.namespace, &target.name).await?;
    match &facts.record {
        // Another transfer moves its PVC.
        Some(record) if is_of_data_volume => {
            let child = transfer_of_claim(transfer, record);
            facts.child = api.get("", meta::name(&child.metadata)).await?;
            return Ok(facts);
        }
        Some(record) => facts.volume = api.get("", &record.volume_name).await?,
        None => {
            let spec = facts.claim.as_ref().and_then(|claim| claim.spec.as_ref());
            if let Some(name) = spec.and_then(|spec| spec.volume_name.clone()) {
                facts.volume = api.get("", &name).await?;
            }
        }
    }
    if facts.claim.is_some() {
        let pods = workers::pods_with(engine, &source.namespace, &source.name).await?;
        facts.is_used = !pods.is_empty();
    }
    let marked = if is_of_data_volume {
        facts.data_volume.as_ref().map(|volume| &volume.metadata)
    } else {
        facts.claim.as_ref().map(|claim| &claim.metadata)
    };
    let other = marked.and_then(reserved_by);
    if let Some(other) = other.filter(|name| *name != meta::name(&transfer.metadata)) {
        let other = api.get::<ObjectTransfer>("", other).await?;
        facts.is_reserved = other.is_some_and(|other| !is_over(&other));
    }
    Ok(facts)
}
