//! The object that says what a DataVolume's claim is filled from, for as long as it is of use.

use api::ClaimPhase;
use api::names;
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::engine::{Engine, Error};
use controller_core::meta;
use controller_core::operation::{Operation, PopulationMode};
use controller_core::plan::{Plan, Write};
use controller_core::populator::{SourceObject, source_object};

/// Stages that were added to the DataVolume reach the source that its claim is filled from.
pub async fn keep_stages(
    engine: &Engine,
    volume: &DataVolume,
    population: PopulationMode,
    operation: &Operation,
) -> Result<(), Error> {
    if population != PopulationMode::Populator || volume.spec.checkpoints.is_none() {
        return Ok(());
    }
    let Some(SourceObject::Import(wanted)) = source_object(volume, operation) else {
        return Ok(());
    };
    let namespace = meta::namespace(&volume.metadata);
    let sources = &engine.api.caches.import_sources;
    let Some(source) = sources.get(namespace, meta::name(&wanted.metadata)) else { return Ok(()) };
    let (is, to_be) = (&source.spec, &wanted.spec);
    if (&is.checkpoints, is.final_checkpoint) != (&to_be.checkpoints, to_be.final_checkpoint) {
        let patch = json!({ "spec": {
            "checkpoints": to_be.checkpoints, "finalCheckpoint": to_be.final_checkpoint,
        } });
        engine.execute_and_report(Plan::writes([Write::patch(source.as_ref(), patch)])).await?;
    }
    Ok(())
}

/// What the claim was filled from is of no use to anybody once it is full; stages may still be added to theirs.
pub async fn drop_source(
    engine: &Engine,
    volume: &DataVolume,
    claim: Option<&PersistentVolumeClaim>,
) -> Result<(), Error> {
    // A PVC that needs no work may be done before it has its volume; its source may be what the volume is made of.
    if claim.is_none_or(|claim| meta::claim_phase(claim) != ClaimPhase::Bound) {
        return Ok(());
    }
    let caches = &engine.api.caches;
    let namespace = meta::namespace(&volume.metadata);
    let uid = meta::uid(&volume.metadata);
    let imported = caches.import_sources.get(namespace, &names::import_source(uid));
    let imported = imported.filter(|source| source.spec.checkpoints.is_none());
    let imported = imported.and_then(|source| Write::delete(source.as_ref()));
    let uploaded = caches.upload_sources.get(namespace, &names::upload_source(uid));
    let uploaded = uploaded.and_then(|source| Write::delete(source.as_ref()));
    engine.execute_and_report(Plan::writes(imported.into_iter().chain(uploaded))).await.map(drop)
}
