//! The storage class, the profile and the volume of a PVC.

use std::sync::Arc;

use api::v1beta1::StorageProfile;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

use super::Parts;
use crate::engine::Engine;
use controller_core::snapshot::VolumeSnapshotContent;
use controller_core::volume::PersistentVolume;
use controller_core::{classes, config, meta};

/// The class that a PVC names.
pub fn class_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    engine.api.caches.classes.get("", class_name(claim)?)
}

pub(super) fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

/// The profile of the class that a PVC names.
pub fn profile_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<StorageProfile>> {
    engine.api.caches.profiles.get("", class_name(claim)?)
}

/// Whether the capabilities of a PVC's storage are known. A new class has no profile at first.
pub fn is_profiled(engine: &Engine, claim: &PersistentVolumeClaim) -> bool {
    let profile = profile_of(engine, claim);
    class_of(engine, claim).is_none() || profile.is_some_and(|profile| profile.status.is_some())
}

/// The volume of a PVC.
pub fn volume_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    engine.api.caches.persistent_volumes.get("", name)
}

/// The class of a PVC that is restored from a snapshot to be copied: that of the PVC if it exists, else the driver's
/// first class by name.
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

/// Whether the node or topology of the volume is known.
pub fn is_placed(engine: &Engine, target: &PersistentVolumeClaim) -> bool {
    let class = class_of(engine, target);
    !controller_core::claim::waits_for_consumer(target, class.as_deref())
}

/// The size of the largest disk that fits in a PVC: without the overhead of its file system.
pub fn usable_size(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<contract::ByteCount> {
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
