//! Wakes the PVCs that are populated by forklift.

use api::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::Engine;
use crate::engine::cache::key_of;
use crate::engine::index::Term;
use crate::engine::queue::Key;
use controller_core::forklift::{self, Kind};
use controller_core::meta;

/// A prime PVC.
pub(super) fn claim(engine: &Engine, claim: &PersistentVolumeClaim, key: &Key) {
    if forklift::target_uid(&claim.metadata).is_some() {
        engine.queues.forklift.add(key.clone());
    }
}

/// A source: PVCs that refer to it, and their prime PVCs, which may have waited for it. Its owner is never a PVC.
pub(super) fn source(engine: &Engine, kind: Kind, source: &ObjectMeta) {
    let refers = |claim: &PersistentVolumeClaim| {
        Kind::from_claim(claim) == Some(kind) && claim.metadata.namespace == source.namespace
    };
    let term = Term::RefersTo(meta::name(source).to_owned());
    for claim in engine.api.caches.claims.find(&term) {
        if !refers(&claim) {
            continue;
        }
        let target = key_of(claim.as_ref());
        let prime = names::prime_pvc(meta::uid(&claim.metadata));
        engine.queues.forklift.add(Key::new(target.namespace.as_str(), prime));
        engine.queues.populators.add(target);
    }
}
