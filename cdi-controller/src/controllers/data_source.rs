//! DataSources: whether the object that one refers to exists.

use std::sync::Arc;

use super::POLL;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::data_source::{self as plan, Object};
use controller_core::plan::Requeue;

/// Brings the status of one DataSource up to date.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let caches = &engine.api.caches;
    let Some(source) = caches.data_sources.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    if source.metadata.deletion_timestamp.is_some() {
        return Ok(Requeue::OnChange);
    }
    let pointed_to =
        plan::pointer(&source).and_then(|name| caches.data_sources.get(&key.namespace, name));
    let (mut volume, mut claim, mut snapshot) = (None, None, None);
    match plan::object(&source, pointed_to.as_deref()) {
        Some(Object::Claim { namespace, name })
            if caches.volumes.is_undecodable(namespace, name) =>
        {
            return Ok(Requeue::OnChange); // whether the claim is complete is not known
        }
        Some(Object::Claim { namespace, name }) => {
            volume = caches.volumes.get(namespace, name);
            claim = caches.claims.get(namespace, name);
        }
        Some(Object::Snapshot { .. }) if !caches.snapshots.is_settled() => {
            return Ok(Requeue::After(POLL)); // the list of snapshots is not known yet
        }
        Some(Object::Snapshot { namespace, name }) => {
            snapshot = caches.snapshots.get(namespace, name);
        }
        None => {}
    }
    let facts = plan::Facts {
        source: &source,
        pointed_to: pointed_to.as_deref(),
        volume: volume.as_deref(),
        claim: claim.as_deref(),
        snapshot: snapshot.as_deref(),
    };
    let plan = plan::plan(&facts, engine.now()).into_writes(&source);
    engine.execute_and_report(plan).await
}
