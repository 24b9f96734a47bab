//! Wakes the clones that a watch event concerns.

use api::Phase;
use api::annotations::{request, state};
use api::labels::{self, component};
use api::names;
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::worker;
use crate::engine::Engine;
use crate::engine::cache::{Change, key_of, key_of_metadata};
use crate::engine::index::Term;
use crate::engine::queue::Key;
use controller_core::claim_kind::is_clone_target;
use controller_core::clone::{self, Origin, OriginKind};
use controller_core::meta;

/// A PVC: the target of a clone, an intermediate PVC, or the source of other clones.
pub(super) fn claim(engine: &Engine, claim: &PersistentVolumeClaim, key: &Key) {
    if is_clone_target(claim) {
        engine.queues.clones.add(key.clone());
    }
    if meta::has_annotation(&claim.metadata, request::CLONE_REQUEST)
        || clone::restored_for(&claim.metadata).is_some()
    {
        engine.queues.copies.add(key.clone());
    }
    if clone::owner_uid(&claim.metadata).is_some() {
        helper(engine, &claim.metadata);
    } else {
        origin(engine, OriginKind::Claim, key);
    }
}

/// A DataVolume that has succeeded, is terminating, or gone: PVCs that were restored from a snapshot for it, which it does not
/// own.
pub(super) fn volume(engine: &Engine, change: &Change<DataVolume>) {
    let volume = change.object();
    let metadata = &volume.metadata;
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_succeeded = phase == Some(Phase::Succeeded.as_str());
    let is_there = matches!(change, Change::Applied(_)) && metadata.deletion_timestamp.is_none();
    if is_there && !has_succeeded {
        return;
    }
    let uid = meta::uid(metadata);
    for claim in engine.api.caches.claims.find(&Term::MadeFor(uid.to_owned())) {
        if clone::restored_for(&claim.metadata) == Some(uid) {
            engine.queues.copies.add(key_of(claim.as_ref()));
        }
    }
}

/// An intermediate object that was created for a clone.
pub(super) fn helper(engine: &Engine, helper: &ObjectMeta) {
    let Some(uid) = clone::owner_uid(helper) else { return };
    // A PVC that was restored from a snapshot belongs to its DataVolume.
    if let Some((namespace, name)) = clone::volume_of_restored(helper) {
        engine.queues.volumes.add(Key::new(namespace, name));
        engine.queues.copies.add(Key::new(meta::namespace(helper), names::restored_pvc(uid)));
        return;
    }
    let caches = &engine.api.caches;
    // A PVC records its owner's name; a pod or a snapshot, only the UID.
    let named =
        clone::owner(helper).and_then(|(namespace, name)| caches.claims.get(namespace, name));
    let target = named
        .filter(|claim| meta::uid(&claim.metadata) == uid)
        .or_else(|| caches.claims.find(&Term::ClonedTo(uid.to_owned())).into_iter().next());
    if let Some(target) = target {
        engine.queues.clones.add(key_of(target.as_ref()));
    }
}

/// A pod that prepares a PVC, or one that reads the source of a copy.
pub(super) fn pod(engine: &Engine, change: &Change<Pod>) {
    let pod = change.object();
    match meta::label(&pod.metadata, labels::COMPONENT) {
        Some(component::POPULATOR_PREP) => helper(engine, &pod.metadata),
        Some(component::CLONE_SOURCE) => {
            let target = meta::annotation(&pod.metadata, state::OWNER_REF);
            if let Some((namespace, name)) = target.and_then(|target| target.split_once('/')) {
                worker(&engine.queues.copies, Key::new(namespace, name), change);
            }
        }
        _ => {}
    }
}

/// A snapshot: one that was taken for a clone, or the source of other clones.
pub(super) fn snapshot(engine: &Engine, snapshot: &ObjectMeta) {
    if clone::owner_uid(snapshot).is_some() {
        helper(engine, snapshot);
    } else {
        let key = Key::new(meta::namespace(snapshot), meta::name(snapshot));
        origin(engine, OriginKind::Snapshot, &key);
    }
}

/// The source of clones: wakes PVCs that refer to it through a VolumeCloneSource, PVCs that pods copy it to, and
/// DataVolumes without a PVC.
fn origin(engine: &Engine, kind: OriginKind, key: &Key) {
    let caches = &engine.api.caches;
    let is_it = |origin: Option<Origin>| origin.is_some_and(|origin| origin.kind == kind);
    let term = Term::From(key.clone());
    for source in caches.clone_sources.find(&term) {
        if is_it(Origin::referred_to(&key.namespace, &source.spec.source)) {
            clone_source(engine, &source.metadata);
        }
    }
    if kind == OriginKind::Claim {
        for claim in caches.claims.find(&term) {
            engine.queues.copies.add(key_of(claim.as_ref()));
        }
    }
    for volume in caches.volumes.find(&term) {
        if is_it(Origin::of_data_volume(&volume, None, None)) {
            engine.queues.volumes.add(key_of(volume.as_ref()));
        }
    }
}

/// A VolumeCloneSource: wakes the PVC of its DataVolume, or else all PVCs that refer to it.
pub(super) fn clone_source(engine: &Engine, source: &ObjectMeta) {
    let namespace = meta::namespace(source);
    let noted = meta::annotation(source, state::OWNED_BY_DATA_VOLUME);
    let noted = noted.and_then(|of| of.split_once('/')).map(|(ns, name)| Key::new(ns, name));
    let owner = meta::controller(source).map(|owner| Key::new(namespace, owner.name.as_str()));
    if let Some(key) = owner.or(noted) {
        engine.queues.clones.add(key);
        return;
    }
    let term = Term::RefersTo(meta::name(source).to_owned());
    for claim in engine.api.caches.claims.find(&term) {
        if is_clone_target(&claim) {
            engine.queues.clones.add(key_of(claim.as_ref()));
        }
    }
}

/// A DataSource: DataVolumes that name it, or one that points to it, and have no PVC yet.
pub(super) fn data_source(engine: &Engine, source: &ObjectMeta) {
    let key = key_of_metadata(source);
    let caches = &engine.api.caches;
    let pointers = caches.data_sources.find(&Term::PointsTo(key.clone()));
    let keys = pointers.iter().map(|pointer| key_of(pointer.as_ref()));
    for key in keys.chain([key]) {
        for volume in caches.volumes.find(&Term::WaitsForSource(key)) {
            engine.queues.volumes.add(key_of(volume.as_ref()));
        }
    }
}

/// Clones that may have been waiting for a class.
pub(super) fn all_that_wait(engine: &Engine) {
    for claim in engine.api.caches.claims.find(&Term::Waits) {
        if is_clone_target(&claim) {
            engine.queues.clones.add(key_of(claim.as_ref()));
        }
    }
}
