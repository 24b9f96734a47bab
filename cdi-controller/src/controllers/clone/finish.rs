//! The end of a clone: its intermediate objects are deleted.

use std::sync::Arc;

use api::ClaimPhase;
use api::labels;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::controllers::clone_facts as facts;
use crate::engine::api_client::Kind;
use crate::engine::index::Term;
use crate::engine::{Engine, Error};
use controller_core::clone::{self, OrphanedObject};
use controller_core::meta;
use controller_core::object::Writable;
use controller_core::plan::Requeue;
use controller_core::snapshot::VolumeSnapshot;

/// The target is bound, or terminating.
pub(super) async fn finish(
    engine: &Engine,
    target: &PersistentVolumeClaim,
) -> Result<Requeue, Error> {
    let helper = find_helper(engine, target);
    let orphans = find_orphans(engine, target).await?;
    let is_terminating = target.metadata.deletion_timestamp.is_some();
    let plan = if is_terminating {
        clone::plan_release(target, helper.as_deref(), &orphans)
    } else {
        let warnings = engine.bound_annotations(target);
        if meta::claim_phase(target) == ClaimPhase::Bound {
            let (namespace, name) =
                (meta::namespace(&target.metadata), meta::name(&target.metadata));
            engine.pvc_warnings.forget(namespace, name);
        }
        clone::plan_bound(target, &warnings, helper.as_deref(), &orphans)
    };
    for orphan in &orphans {
        let key = &orphan.reference.key;
        engine.pvc_warnings.forget(&key.namespace, &key.name);
    }
    engine.execute_and_report(plan).await
}

/// The PVC that was filled for the target. In the namespace of the source only: a client may label a PVC of its own in
/// another one.
fn find_helper(
    engine: &Engine,
    target: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let namespace = namespace_of_parts(target);
    let is_helper = |claim: &Arc<PersistentVolumeClaim>| {
        meta::namespace(&claim.metadata) == namespace
            && !meta::name(&claim.metadata).starts_with("tmp-source-")
    };
    let uid = meta::uid(&target.metadata).to_owned();
    engine.api.caches.claims.find(&Term::MadeFor(uid)).into_iter().find(is_helper)
}

async fn find_orphans(
    engine: &Engine,
    target: &PersistentVolumeClaim,
) -> Result<Vec<OrphanedObject>, Error> {
    let is_terminating = target.metadata.deletion_timestamp.is_some();
    if clone::is_retained(&target.metadata) && !is_terminating {
        return Ok(Vec::new());
    }
    let uid = meta::uid(&target.metadata);
    let mut found = Vec::new();
    add_cached::<PersistentVolumeClaim>(engine, uid, &mut found);
    add_cached::<Pod>(engine, uid, &mut found);
    add_cached::<VolumeSnapshot>(engine, uid, &mut found);
    if is_terminating {
        // Objects that were created recently may exist, and the watch may not have reported them.
        add_listed::<PersistentVolumeClaim>(engine, target, &mut found).await?;
        add_listed::<Pod>(engine, target, &mut found).await?;
    }
    // The controller does not wait for the cache of snapshots, as not every cluster has that kind.
    if is_terminating || !engine.api.caches.snapshots.is_ready() {
        add_listed::<VolumeSnapshot>(engine, target, &mut found).await?;
    }
    Ok(found)
}

fn namespace_of_parts(target: &PersistentVolumeClaim) -> &str {
    facts::source_namespace(target).unwrap_or(meta::namespace(&target.metadata))
}

fn add_cached<K: Kind + Writable>(engine: &Engine, uid: &str, found: &mut Vec<OrphanedObject>) {
    let Some(cache) = K::store(&engine.api.caches) else { return };
    let objects = cache.find(&Term::MadeFor(uid.to_owned()));
    found.extend(objects.iter().map(|object| OrphanedObject::from_object(object.as_ref())));
}

async fn add_listed<K: Kind + Writable>(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    found: &mut Vec<OrphanedObject>,
) -> Result<(), Error> {
    let selector = format!("{}={}", labels::OWNED_BY_UID, meta::uid(&target.metadata));
    for object in engine.api.list::<K>(namespace_of_parts(target), &selector).await? {
        let orphan = OrphanedObject::from_object(&object);
        let is_known = |known: &OrphanedObject| {
            known.reference.kind == orphan.reference.kind
                && known.reference.key == orphan.reference.key
        };
        if !found.iter().any(is_known) {
            found.push(orphan);
        }
    }
    Ok(())
}
