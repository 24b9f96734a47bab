//! What a clone depends on, looked up in the cache and in the cluster. Decides nothing, writes nothing.

mod decision;
mod parts;
mod storage;

use std::sync::Arc;

use api::Phase;
use api::PodPhase;
use api::annotations::state;
use api::v1beta1::VolumeCloneSource;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::engine::{Engine, Error};
use controller_core::claim_kind::{is_import_target, is_upload_target};
use controller_core::clone::{Origin, OriginKind};
use controller_core::snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use controller_core::{meta, ownership};

pub use decision::{class_for_snapshot, of_decision};
pub use parts::Parts;
pub use storage::{
    class_of, first_class_of, is_placed, is_profiled, profile_of, restore_class, usable_size,
    volume_of,
};

/// The source of a clone.
pub enum FoundCloneSource {
    Claim(Arc<PersistentVolumeClaim>),
    Snapshot(Arc<VolumeSnapshot>),
}

/// Namespace of the source of a PVC, and of the intermediate objects of the clone. `None`: not specified, so it is the
/// PVC's own.
pub fn source_namespace(target: &PersistentVolumeClaim) -> Option<&str> {
    let noted = meta::annotation(&target.metadata, state::DATA_SOURCE_NAMESPACE);
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    noted.or_else(|| reference?.namespace.as_deref()).filter(|name| !name.is_empty())
}

/// The VolumeCloneSource that a PVC refers to.
pub fn clone_source(
    engine: &Engine,
    target: &PersistentVolumeClaim,
) -> Option<Arc<VolumeCloneSource>> {
    let own = meta::namespace(&target.metadata);
    let reference = target.spec.as_ref()?.data_source_ref.as_ref()?;
    let namespace = source_namespace(target).unwrap_or(own);
    engine.api.caches.clone_sources.get(namespace, &reference.name)
}

/// The source of a clone. `None`: it does not exist.
pub fn find(engine: &Engine, origin: &Origin) -> Option<FoundCloneSource> {
    let caches = &engine.api.caches;
    match origin.kind {
        OriginKind::Claim => {
            caches.claims.get(&origin.namespace, &origin.name).map(FoundCloneSource::Claim)
        }
        OriginKind::Snapshot => {
            caches.snapshots.get(&origin.namespace, &origin.name).map(FoundCloneSource::Snapshot)
        }
    }
}

/// The VolumeSnapshotContent of a snapshot, which is read on demand: few clones need it.
///
/// # Errors
/// [`Error::Api`].
pub async fn content_of(
    engine: &Engine,
    snapshot: &VolumeSnapshot,
) -> Result<Option<VolumeSnapshotContent>, Error> {
    let status = snapshot.status.as_ref();
    match status.and_then(|status| status.bound_volume_snapshot_content_name.as_deref()) {
        Some(name) => engine.api.get::<VolumeSnapshotContent>("", name).await,
        None => Ok(None),
    }
}

pub fn capacity(claim: &PersistentVolumeClaim) -> Option<contract::ByteCount> {
    meta::bytes(claim.status.as_ref()?.capacity.as_ref()?.get("storage")?)
}

/// Whether the content of a PVC is complete.
pub fn is_filled(engine: &Engine, claim: &PersistentVolumeClaim) -> bool {
    let metadata = &claim.metadata;
    let owner = meta::controller(metadata).filter(|owner| owner.kind == "DataVolume");
    let volumes = &engine.api.caches.volumes;
    let namespace = meta::namespace(metadata);
    if owner.is_some_and(|owner| volumes.is_undecodable(namespace, &owner.name)) {
        return false; // whether the DataVolume is complete is not known
    }
    let volume = owner.and_then(|owner| volumes.get(namespace, &owner.name));
    let is_filled_by_pod = is_import_target(metadata) || is_upload_target(metadata);
    let is_filled = !is_filled_by_pod || meta::worker_phase(metadata) == PodPhase::Succeeded;
    match volume {
        Some(volume) => {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            // The status may still be that of a claim which was deleted.
            phase == Some(Phase::Succeeded.as_str())
                && (is_filled
                    || !ownership::requires_work(&volume, Some(claim), &engine.config_spec()))
        }
        None => is_filled,
    }
}
