//! Whose work it is when a source of forklift's changes, or a claim that is filled from one.

use api::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::Engine;
use crate::engine::cache::key_of;
use crate::engine::index::Term;
use crate::engine::queue::Key;
use controller_core::forklift::{self, Kind};
use controller_core::meta;

/// A claim that is filled in the stead of another.
pub(super) fn claim(engine: &Engine, claim: &PersistentVolumeClaim, key: &Key) {
    if forklift::target_uid(&claim.metadata).is_some() {
        engine.queues.forklift.add(key.clone());
    }
}

/// A source: claims that refer to it, and those beside them that may have waited for it. Whoever owns it is no claim.
pub(super) fn source(engine: &Engine, kind: Kind, source: &ObjectMeta) {
    let refers = |claim: &PersistentVolumeClaim| {
        Kind::of(claim) == Some(kind) && claim.metadata.namespace == source.namespace
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
