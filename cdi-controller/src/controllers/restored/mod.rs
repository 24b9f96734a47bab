//! The claim that a snapshot becomes, for pods to copy where there is no populator: made and bound for its DataVolume, and
//! deleted when that needs it no more, or is gone. Whatever else has its name is neither read nor touched.

mod mind;
mod step;

use api::ClaimPhase;
use std::sync::Arc;
use std::time::Duration;

use api::annotations::state;
use api::v1beta1::DataVolume;
use api::{Phase, events, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::clone_facts::{self as facts, Found};
use super::{POLL, workers};
use crate::engine::cache::key_of;
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error, rights};
use controller_core::bound;
use controller_core::clone::{
    self as plan, Namesake, Origin, OriginKind, RestoreAction, RestoreFacts, RestoreStep,
};
use controller_core::components::DATA_VOLUME_SNAPSHOT_CLONE as COMPONENT;
use controller_core::config;
use controller_core::event::Event;
use controller_core::meta::{self, Pairs};
use controller_core::object::{ObjectKind, ObjectRef};
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::{Audience, CauseText, PvcNote, RefusalReport, ReportedFailures};

pub use mind::{let_go, mind};
use step::{carry_out, complain, step, tell};

/// How soon a claim is looked at again whose DataVolume may have gone unnoticed.
const MINDED: Duration = Duration::from_secs(60);

/// Brings the source of a copy one step on, where it is a snapshot: until there is a claim of it that pods can read. All
/// other claims are left as they are.
pub async fn keep(
    context: &Context,
    volume: &Arc<DataVolume>,
    target: &mut Option<Arc<PersistentVolumeClaim>>,
) -> Result<Next, Error> {
    let Some(claim) = target.as_ref().map(Arc::clone) else { return Ok(Next::Wait) };
    let Some(origin) = plan::restored_origin(volume, &claim) else { return Ok(Next::Wait) };
    if plan::is_copied(&claim) || is_begun(context, volume, &claim, &origin) {
        let changes = plan::restore_finished(&claim);
        *target = Some(workers::note(context, claim, &Pairs::new(), &changes).await?);
        return Ok(Next::Wait);
    }
    let is_there = meta::claim_phase(&claim) == ClaimPhase::Bound
        && claim.metadata.deletion_timestamp.is_none();
    if !is_there {
        return Ok(Next::Wait);
    }
    // Whoever writes on the target says what is asked for. What is allowed is written in the DataVolume's token, and before
    // that has been verified nothing is told of the snapshot.
    if let Err(error) = allow(context, volume, &origin) {
        *target = Some(complain(context, volume, &claim, &error).await?);
        return Err(error);
    }
    let step = step(context, volume, &claim, &origin).await?;
    let claim = workers::note(
        context,
        claim.clone(),
        &Pairs::new(),
        &plan::restore_progress(&claim, &step),
    )
    .await?;
    *target = Some(Arc::clone(&claim));
    tell(context, volume, &claim, step.trouble.as_ref()).await?;
    let Some(action) = step.action else {
        return Ok(step.look_again.map_or(Next::Wait, Next::After));
    };
    match carry_out(context, volume, &origin, action).await {
        Ok(Next::Wait) => Ok(step.look_again.map_or(Next::Wait, Next::After)),
        Ok(next) => Ok(next),
        Err(error) => {
            *target = Some(complain(context, volume, &claim, &error).await?);
            Err(error)
        }
    }
}

/// Whether the DataVolume may be cloned from the snapshot.
fn allow(context: &Context, volume: &DataVolume, origin: &Origin) -> Result<(), Error> {
    if origin.namespace == meta::namespace(&volume.metadata) {
        return Ok(());
    }
    rights::check(context, origin, &volume.metadata).map(|_| ())
}

/// Whether the claim of the snapshot was handed to the pods that copy, and is still there. They look at it more closely.
fn is_begun(
    context: &Context,
    volume: &DataVolume,
    target: &PersistentVolumeClaim,
    origin: &Origin,
) -> bool {
    let name = names::restored_pvc(meta::uid(&volume.metadata));
    let claim = context.cluster.stores.claims.get(&origin.namespace, &name);
    plan::is_handed_over(target)
        && claim.is_some_and(|claim| {
            plan::restored_for(&claim.metadata).is_some()
                && meta::claim_phase(&claim) == ClaimPhase::Bound
                && claim.metadata.deletion_timestamp.is_none()
        })
}

/// The pod that binds the claim.
fn pod_of(context: &Context, namespace: &str, volume_uid: &str) -> Option<Arc<Pod>> {
    let pod = context.cluster.stores.pods.get(namespace, &plan::restored_pod_name(volume_uid))?;
    plan::is_restored_pod(&pod, volume_uid).then_some(pod)
}

/// Whether a claim was made here, of whichever snapshot, for the DataVolume with this UID.
fn is_ours(
    context: &Context,
    claim: &PersistentVolumeClaim,
    volume_uid: &str,
) -> Result<bool, Error> {
    let is_named = plan::restored_for(&claim.metadata) == Some(volume_uid);
    match plan::restored_of(claim).filter(|_| is_named) {
        Some(origin) => rights::is_marked(context, &origin, &claim.metadata, volume_uid),
        None => Ok(false),
    }
}

/// Whether pods may copy `source` to the target: it was made of that snapshot, for the target's DataVolume, and that has
/// handed it over.
///
/// # Errors
/// Where there is no key.
pub fn may_be_read(
    context: &Context,
    target: &PersistentVolumeClaim,
    source: &PersistentVolumeClaim,
    origin: &Origin,
) -> Result<bool, Error> {
    let owner = meta::controller(&target.metadata).filter(|owner| owner.kind == "DataVolume");
    let Some(owner) = owner.filter(|_| plan::is_handed_over(target)) else { return Ok(false) };
    let is_of_it = source.metadata.deletion_timestamp.is_none()
        && plan::restored_of(source).as_ref() == Some(origin);
    Ok(is_of_it && is_ours(context, source, &owner.uid)?)
}
