//! How many clones to a storage class run at once.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::controllers::clone_facts::{self as facts, Parts};
use crate::engine::Engine;
use crate::engine::cache::key_of;
use crate::engine::index::Term;
use crate::engine::queue::Key;
use crate::engine::slots::Slot;
use controller_core::claim_kind::is_clone_target;
use controller_core::clone::{self, Names};
use controller_core::meta;

/// A slot for a clone that has not begun, where there is a limit.
///
/// # Errors
/// The limit, which is reached.
pub(super) fn reserve_slot<'a>(
    engine: &'a Engine,
    target: &PersistentVolumeClaim,
    parts: &Parts,
) -> Result<Option<Slot<'a>>, usize> {
    let limit =
        engine.settings.clones_max.filter(|_| !clone::has_begun(&parts.intermediate_objects()));
    let Some(limit) = limit else { return Ok(None) };
    let class = meta::storage_class_name(target).unwrap_or_default();
    let at_work = || clones_at_work(engine, target);
    let slot = engine.clone_slots.reserve(class, key_of(target), at_work, limit);
    slot.map(Some).ok_or(limit)
}

/// The running clones to the storage class of this one. An object with the labels of an intermediate object counts only
/// where a PVC that is cloned to has it, in the right namespace and by the right name.
fn clones_at_work(engine: &Engine, target: &PersistentVolumeClaim) -> Vec<Key> {
    let caches = &engine.api.caches;
    let claims = caches.claims.find(&Term::Helper);
    let snapshots = caches.snapshots.find(&Term::Helper);
    let marked = claims.iter().map(|claim| &claim.metadata);
    let marked = marked.chain(snapshots.iter().map(|snapshot| &snapshot.metadata));
    let owners: HashSet<&str> = marked.filter_map(clone::owner_uid).collect();
    let of_class = meta::storage_class_name(target);
    let is_at_work = |target: &PersistentVolumeClaim| {
        let metadata = &target.metadata;
        let namespace = facts::source_namespace(target).unwrap_or(meta::namespace(metadata));
        let names = Names::noted(metadata);
        let parts = Parts::observe(engine, namespace, meta::uid(metadata), &names);
        clone::is_active(&parts.intermediate_objects(), engine.now())
    };
    let all = owners.into_iter().flat_map(|uid| caches.claims.find(&Term::ClonedTo(uid.into())));
    let mut all: Vec<_> = all.collect();
    all.retain(|claim| {
        is_clone_target(claim)
            && clone::has_finalizer(&claim.metadata)
            && meta::storage_class_name(claim) == of_class
            && is_at_work(claim)
    });
    all.iter().map(|claim| key_of(claim.as_ref())).collect()
}
