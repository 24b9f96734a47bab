//! The end of a clone, whatever it was: nothing stays that was made for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::labels::{self, finalizer};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::{clone_facts as facts, workers};
use super::{COMPONENT, write};
use crate::engine::api_client::Kind;
use crate::engine::index::Term;
use crate::engine::{Engine, Error};
use controller_core::clone::{self as plan, Leftover, LeftoverKind};
use controller_core::event::Event;
use controller_core::meta;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::snapshot::VolumeSnapshot;

/// What was found, by namespace.
type Found = BTreeMap<String, Vec<Leftover>>;

/// Deletes what was made, and lets the target go.
pub async fn finish(engine: &Engine, target: Arc<PersistentVolumeClaim>) -> Result<Requeue, Error> {
    let is_leaving = target.metadata.deletion_timestamp.is_some();
    if plan::is_retained(&target.metadata) && !is_leaving {
        let name = helper(engine, &target);
        let name = name.as_ref().map(|helper| meta::name(&helper.metadata)).unwrap_or_default();
        let event =
            Event::warning(api::events::PRIME_RETAINED, format!("PVC Prime {name} retained"));
        workers::record(engine, COMPONENT, target.as_ref(), [event]).await?;
    } else {
        tidy(engine, &target, is_leaving).await?;
    }
    let released = Write::remove_finalizer(target.as_ref(), finalizer::CLONE_POPULATOR);
    engine.execute_and_report(Plan::writes(released)).await
}

/// A claim that was filled in the stead of the target, where those are made: anybody may mark one of their own elsewhere.
pub fn helper(
    engine: &Engine,
    target: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let uid = meta::uid(&target.metadata);
    let own = meta::namespace(&target.metadata);
    let namespace = facts::source_namespace(target).unwrap_or(own);
    let is_its = |claim: &Arc<PersistentVolumeClaim>| {
        meta::namespace(&claim.metadata) == namespace
            && !meta::name(&claim.metadata).starts_with("tmp-source-")
    };
    let all = engine.api.caches.claims.find(&Term::MadeFor(uid.to_owned()));
    all.into_iter().find(is_its)
}

async fn tidy(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    is_leaving: bool,
) -> Result<(), Error> {
    let uid = meta::uid(&target.metadata);
    let own = meta::namespace(&target.metadata);
    let namespace = facts::source_namespace(target).unwrap_or(own);
    let mut found = Found::new();
    known::<PersistentVolumeClaim>(engine, uid, LeftoverKind::Claim, &mut found);
    known::<Pod>(engine, uid, LeftoverKind::Pod, &mut found);
    known::<VolumeSnapshot>(engine, uid, LeftoverKind::Snapshot, &mut found);
    if is_leaving {
        // What was asked for a moment ago may be there, and not have been told of.
        listed::<PersistentVolumeClaim>(engine, (namespace, uid), LeftoverKind::Claim, &mut found)
            .await?;
        listed::<Pod>(engine, (namespace, uid), LeftoverKind::Pod, &mut found).await?;
    }
    // Nobody waits for the list of snapshots, as not every cluster knows any.
    if is_leaving || !engine.api.caches.snapshots.is_ready() {
        listed::<VolumeSnapshot>(engine, (namespace, uid), LeftoverKind::Snapshot, &mut found)
            .await?;
    }
    let actions = found.iter().flat_map(|(namespace, all)| {
        plan::cleanup(all).into_iter().map(move |action| (namespace, action))
    });
    let writes = actions.filter_map(|(namespace, action)| write(engine, target, namespace, action));
    engine.execute_and_report(Plan::writes(writes)).await.map(drop)
}

fn known<K: Kind>(engine: &Engine, uid: &str, kind: LeftoverKind, found: &mut Found) {
    let Some(store) = K::store(&engine.api.caches) else { return };
    for object in store.find(&Term::MadeFor(uid.to_owned())) {
        note(found, kind, object.meta());
    }
}

async fn listed<K: Kind>(
    engine: &Engine,
    (namespace, uid): (&str, &str),
    kind: LeftoverKind,
    found: &mut Found,
) -> Result<(), Error> {
    let selector = format!("{}={uid}", labels::OWNED_BY_UID);
    for object in engine.api.list::<K>(namespace, &selector).await? {
        note(found, kind, object.meta());
    }
    Ok(())
}

fn note(found: &mut Found, kind: LeftoverKind, metadata: &ObjectMeta) {
    let all = found.entry(meta::namespace(metadata).to_owned()).or_default();
    let name = meta::name(metadata);
    if all.iter().any(|known| known.kind == kind && known.name == name) {
        return;
    }
    let leaving = metadata.deletion_timestamp.is_some();
    all.push(Leftover { kind, name: name.to_owned(), leaving });
}
