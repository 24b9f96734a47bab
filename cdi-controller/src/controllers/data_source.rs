//! DataSources: whether what one stands for is there.

use std::sync::Arc;

use super::POLL;
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error};
use controller_core::data_source::{self as plan, Object};

/// Brings the status of one DataSource up to date.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let stores = &context.cluster.stores;
    let Some(source) = stores.data_sources.get(&key.namespace, &key.name) else {
        return Ok(Next::Wait);
    };
    if source.metadata.deletion_timestamp.is_some() {
        return Ok(Next::Wait);
    }
    let pointed_to =
        plan::pointer(&source).and_then(|name| stores.data_sources.get(&key.namespace, name));
    let (mut volume, mut claim, mut snapshot) = (None, None, None);
    match plan::object(&source, pointed_to.as_deref()) {
        Some(Object::Claim { namespace, name })
            if stores.volumes.is_undecodable(namespace, name) =>
        {
            return Ok(Next::Wait); // whether the claim is complete is not known
        }
        Some(Object::Claim { namespace, name }) => {
            volume = stores.volumes.get(namespace, name);
            claim = stores.claims.get(namespace, name);
        }
        Some(Object::Snapshot { .. }) if !stores.snapshots.is_settled() => {
            return Ok(Next::After(POLL)); // nobody knows yet
        }
        Some(Object::Snapshot { namespace, name }) => {
            snapshot = stores.snapshots.get(namespace, name);
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
    let plan = plan::plan(&facts, context.now()).into_writes(&source);
    context.carry_out(plan).await.map(Next::from)
}
