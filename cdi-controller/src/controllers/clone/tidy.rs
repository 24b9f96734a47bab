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
use crate::engine::queue::Next;
use crate::engine::{Context, Error};
use controller_core::clone::{self as plan, Leftover, LeftoverKind};
use controller_core::event::Event;
use controller_core::meta;
use controller_core::plan::{Plan, Write};
use controller_core::snapshot::VolumeSnapshot;

/// What was found, by namespace.
type Found = BTreeMap<String, Vec<Leftover>>;

/// Deletes what was made, and lets the target go.
pub async fn finish(context: &Context, target: Arc<PersistentVolumeClaim>) -> Result<Next, Error> {
    let is_leaving = target.metadata.deletion_timestamp.is_some();
    if plan::is_retained(&target.metadata) && !is_leaving {
        let name = helper(context, &target);
        let name = name.as_ref().map(|helper| meta::name(&helper.metadata)).unwrap_or_default();
        let event =
            Event::warning(api::events::PRIME_RETAINED, format!("PVC Prime {name} retained"));
        workers::record(context, COMPONENT, target.as_ref(), [event]).await?;
    } else {
        tidy(context, &target, is_leaving).await?;
    }
    let released = Write::remove_finalizer(target.as_ref(), finalizer::CLONE_POPULATOR);
    context.carry_out(Plan::writes(released)).await.map(Next::from)
}

/// A claim that was filled in the stead of the target, where those are made: anybody may mark one of their own elsewhere.
pub fn helper(
    context: &Context,
    target: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let uid = meta::uid(&target.metadata);
    let own = meta::namespace(&target.metadata);
    let namespace = facts::source_namespace(target).unwrap_or(own);
    let is_its = |claim: &Arc<PersistentVolumeClaim>| {
        meta::namespace(&claim.metadata) == namespace
            && !meta::name(&claim.metadata).starts_with("tmp-source-")
    };
    let all = context.cluster.stores.claims.find(&Term::MadeFor(uid.to_owned()));
    all.into_iter().find(is_its)
}

async fn tidy(
    context: &Context,
    target: &PersistentVolumeClaim,
    is_leaving: bool,
) -> Result<(), Error> {
    let uid = meta::uid(&target.metadata);
    let own = meta::namespace(&target.metadata);
    let namespace = facts::source_namespace(target).unwrap_or(own);
    let mut found = Found::new();
    known::<PersistentVolumeClaim>(context, uid, LeftoverKind::Claim, &mut found);
    known::<Pod>(context, uid, LeftoverKind::Pod, &mut found);
    known::<VolumeSnapshot>(context, uid, LeftoverKind::Snapshot, &mut found);
    if is_leaving {
        // What was asked for a moment ago may be there, and not have been told of.
        listed::<PersistentVolumeClaim>(context, (namespace, uid), LeftoverKind::Claim, &mut found)
            .await?;
        listed::<Pod>(context, (namespace, uid), LeftoverKind::Pod, &mut found).await?;
    }
    // Nobody waits for the list of snapshots, as not every cluster knows any.
    if is_leaving || !context.cluster.stores.snapshots.is_ready() {
        listed::<VolumeSnapshot>(context, (namespace, uid), LeftoverKind::Snapshot, &mut found)
            .await?;
    }
    let actions = found.iter().flat_map(|(namespace, all)| {
        plan::cleanup(all).into_iter().map(move |action| (namespace, action))
    });
    let writes =
        actions.filter_map(|(namespace, action)| write(context, target, namespace, action));
    context.carry_out(Plan::writes(writes)).await.map(drop)
}

fn known<K: Kind>(context: &Context, uid: &str, kind: LeftoverKind, found: &mut Found) {
    let Some(store) = K::store(&context.cluster.stores) else { return };
    for object in store.find(&Term::MadeFor(uid.to_owned())) {
        note(found, kind, object.meta());
    }
}

async fn listed<K: Kind>(
    context: &Context,
    (namespace, uid): (&str, &str),
    kind: LeftoverKind,
    found: &mut Found,
) -> Result<(), Error> {
    let selector = format!("{}={uid}", labels::OWNED_BY_UID);
    for object in context.cluster.list::<K>(namespace, &selector).await? {
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
