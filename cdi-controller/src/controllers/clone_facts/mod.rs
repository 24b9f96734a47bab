//! What a clone depends on, looked up. Decides nothing, writes nothing.

mod decision;
mod parts;

use api::PodPhase;
use std::sync::Arc;

use api::Phase;
use api::annotations::{request, state};
use api::v1beta1::{ClaimVolumeMode, ContentType, StorageProfile, VolumeCloneSource};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::{Engine, Error};
use controller_core::bound::Seen;
use controller_core::claim_kind::{is_import_target, is_upload_target};
use controller_core::clone::{
    ChosenClass, ClaimFacts, ClassFacts, CloneFacts, ContentFacts, Names, Origin, OriginKind,
    SnapshotClass, SnapshotFacts, SnapshotState, SourceFacts, Strategy, TargetClass, TargetFacts,
    Temporary, content_mode, driver_of, mode_of, named_by_both, owner_uid, requested,
    snapshot_class, state_of,
};
use controller_core::snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use controller_core::snapshot_class::VolumeSnapshotClass;
use controller_core::volume::PersistentVolume;
use controller_core::{classes, config, copy, meta, ownership};

pub use decision::{class_for_snapshot, of_decision};
pub use parts::Parts;

/// What is cloned, found.
pub enum Found {
    /// A claim.
    Claim(Arc<PersistentVolumeClaim>),
    /// A VolumeSnapshot.
    Snapshot(Arc<VolumeSnapshot>),
}

/// Namespace of the source of a claim, and of everything that is made for the clone. `None`: it is not said, so it is the
/// claim's own.
pub fn source_namespace(target: &PersistentVolumeClaim) -> Option<&str> {
    let noted = meta::annotation(&target.metadata, state::DATA_SOURCE_NAMESPACE);
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    noted.or_else(|| reference?.namespace.as_deref()).filter(|name| !name.is_empty())
}

/// The VolumeCloneSource that a claim refers to.
pub fn clone_source(
    engine: &Engine,
    target: &PersistentVolumeClaim,
) -> Option<Arc<VolumeCloneSource>> {
    let own = meta::namespace(&target.metadata);
    let reference = target.spec.as_ref()?.data_source_ref.as_ref()?;
    let namespace = source_namespace(target).unwrap_or(own);
    engine.api.caches.clone_sources.get(namespace, &reference.name)
}

/// What is cloned. `None`: it is not there.
pub fn find(engine: &Engine, origin: &Origin) -> Option<Found> {
    let caches = &engine.api.caches;
    match origin.kind {
        OriginKind::Claim => caches.claims.get(&origin.namespace, &origin.name).map(Found::Claim),
        OriginKind::Snapshot => {
            caches.snapshots.get(&origin.namespace, &origin.name).map(Found::Snapshot)
        }
    }
}

/// The class that a claim names.
pub fn class_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    engine.api.caches.classes.get("", class_name(claim)?)
}

fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

/// The profile of the class that a claim names.
pub fn profile_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<StorageProfile>> {
    engine.api.caches.profiles.get("", class_name(claim)?)
}

/// Whether it is known what the storage of a claim is good for. A new class has no profile for a moment.
pub fn is_profiled(engine: &Engine, claim: &PersistentVolumeClaim) -> bool {
    let profile = profile_of(engine, claim);
    class_of(engine, claim).is_none() || profile.is_some_and(|profile| profile.status.is_some())
}

/// The volume of a claim.
pub fn volume_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    engine.api.caches.persistent_volumes.get("", name)
}

/// The storage's side of a snapshot, which is read when it is needed: few clones do.
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

/// What a claim has.
pub fn capacity(claim: &PersistentVolumeClaim) -> Option<contract::ByteCount> {
    meta::bytes(claim.status.as_ref()?.capacity.as_ref()?.get("storage")?)
}

/// Whether nobody is still filling a claim.
pub fn is_filled(engine: &Engine, claim: &PersistentVolumeClaim) -> bool {
    let metadata = &claim.metadata;
    let owner = meta::controller(metadata).filter(|owner| owner.kind == "DataVolume");
    let volumes = &engine.api.caches.volumes;
    let namespace = meta::namespace(metadata);
    if owner.is_some_and(|owner| volumes.is_undecodable(namespace, &owner.name)) {
        return false; // whether the DataVolume is done is not known
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

/// The class of a claim that is made of a snapshot to be copied: what the claim has, if it is there, else the first of the
/// driver by name.
pub fn restore_class(
    engine: &Engine,
    parts: &Parts,
    content: Option<&VolumeSnapshotContent>,
) -> Option<Arc<StorageClass>> {
    if let Some(claim) = &parts.source_claim {
        return class_of(engine, claim);
    }
    first_class_of(engine, content?.spec.driver.as_str())
}

/// The first class of a driver, by name.
pub fn first_class_of(engine: &Engine, driver: &str) -> Option<Arc<StorageClass>> {
    let mut all = engine.api.caches.classes.filter(|class| class.provisioner == driver);
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all.into_iter().next()
}

/// Whether it is known where a claim is going to be.
pub fn is_placed(engine: &Engine, target: &PersistentVolumeClaim) -> bool {
    let class = class_of(engine, target);
    !controller_core::claim::waits_for_consumer(target, class.as_deref())
}

/// How much a disk may have in a claim of this size.
pub fn room(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<contract::ByteCount> {
    let size = meta::requested(claim).and_then(meta::bytes)?;
    if meta::is_block(claim) {
        return Some(size);
    }
    let settings = engine.config();
    let status = settings.as_ref().and_then(|config| config.status.as_ref());
    let all = engine.classes();
    let named = class_name(claim)
        .or_else(|| classes::default(&all).map(|class| meta::name(&class.metadata)));
    Some(config::overhead_of(status, &all, named).usable(size))
}
