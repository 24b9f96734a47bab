//! Imports with checkpoints.

use api::annotations::state;
use api::v1beta1::Checkpoint;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::engine::Engine;
use controller_core::claim_kind::prime_target;
use controller_core::import::stages;
use controller_core::meta;
use controller_core::plan::Write;

/// The next stage of an import with checkpoints.
pub(super) fn next_stage(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod_uid: Option<&str>,
) -> Option<Write> {
    if !meta::has_annotation(&claim.metadata, state::CHECKPOINT_CURRENT) {
        return None;
    }
    let (checkpoints, last_is_final) = stages_of(engine, claim);
    let changes = stages::advance(claim, &checkpoints, last_is_final, pod_uid);
    Write::annotations(claim, &changes)
}

/// The stages as they are listed now: by the source that the target refers to, or by the DataVolume.
fn stages_of(engine: &Engine, claim: &PersistentVolumeClaim) -> (Vec<Checkpoint>, bool) {
    let caches = &engine.api.caches;
    let namespace = meta::namespace(&claim.metadata);
    let target = prime_target(&claim.metadata)
        .and_then(|target| caches.claims.get(&target.namespace, &target.name));
    let source = target.and_then(|target| {
        let reference = target.spec.as_ref()?.data_source_ref.as_ref()?;
        caches.import_sources.get(namespace, &reference.name)
    });
    if let Some(source) = source {
        let stages = source.spec.checkpoints.clone().unwrap_or_default();
        return (stages, source.spec.final_checkpoint.unwrap_or(false));
    }
    let owner = meta::controller(&claim.metadata).filter(|owner| owner.kind == "DataVolume");
    match owner.and_then(|owner| caches.volumes.get(namespace, &owner.name)) {
        Some(volume) => {
            let stages = volume.spec.checkpoints.clone().unwrap_or_default();
            (stages, volume.spec.final_checkpoint.unwrap_or(false))
        }
        None => (Vec::new(), false),
    }
}
