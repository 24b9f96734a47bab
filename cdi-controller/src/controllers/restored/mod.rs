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
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, rights};
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
    engine: &Engine,
    volume: &Arc<DataVolume>,
    target: &mut Option<Arc<PersistentVolumeClaim>>,
) -> Result<Requeue, Error> {
    let Some(claim) = target.as_ref().map(Arc::clone) else { return Ok(Requeue::OnChange) };
    let Some(origin) = plan::restored_origin(volume, &claim) else { return Ok(Requeue::OnChange) };
    if plan::is_copied(&claim) || is_begun(engine, volume, &claim, &origin) {
        let changes = plan::restore_finished(&claim);
        *target = Some(workers::note(engine, claim, &Pairs::new(), &changes).await?);
        return Ok(Requeue::OnChange);
    }
    let is_there = meta::claim_phase(&claim) == ClaimPhase::Bound
        && claim.metadata.deletion_timestamp.is_none();
    if !is_there {
        return Ok(Requeue::OnChange);
    }
    // Whoever writes on the target says what is asked for. What is allowed is written in the DataVolume's token, and before
    // that has been verified nothing is told of the snapshot.
    if let Err(error) = allow(engine, volume, &origin) {
        *target = Some(complain(engine, volume, &claim, &error).await?);
        return Err(error);
    }
    let step = step(engine, volume, &claim, &origin).await?;
    let claim =
        workers::note(engine, claim.clone(), &Pairs::new(), &plan::restore_progress(&claim, &step))
            .await?;
    *target = Some(Arc::clone(&claim));
    tell(engine, volume, &claim, step.trouble.as_ref()).await?;
    let Some(action) = step.action else {
        return Ok(step.look_again.map_or(Requeue::OnChange, Requeue::After));
    };
    match carry_out(engine, volume, &origin, action).await {
        Ok(Requeue::OnChange) => Ok(step.look_again.map_or(Requeue::OnChange, Requeue::After)),
        Ok(next) => Ok(next),
        Err(error) => {
            *target = Some(complain(engine, volume, &claim, &error).await?);
            Err(error)
        }
    }
}

/// Whether the DataVolume may be cloned from the snapshot.
fn allow(engine: &Engine, volume: &DataVolume, origin: &Origin) -> Result<(), Error> {
    if origin.namespace == meta::namespace(&volume.metadata) {
        return Ok(());
    }
    rights::check(engine, origin, &volume.metadata).map(|_| ())
}

/// Whether the claim of the snapshot was handed to the pods that copy, and is still there. They look at it more closely.
fn is_begun(
    engine: &Engine,
    volume: &DataVolume,
    target: &PersistentVolumeClaim,
    origin: &Origin,
) -> bool {
    let name = names::restored_pvc(meta::uid(&volume.metadata));
    let claim = engine.api.caches.claims.get(&origin.namespace, &name);
    plan::is_handed_over(target)
        && claim.is_some_and(|claim| {
            plan::restored_for(&claim.metadata).is_some()
                && meta::claim_phase(&claim) == ClaimPhase::Bound
                && claim.metadata.deletion_timestamp.is_none()
        })
}

/// The pod that binds the claim.
fn pod_of(engine: &Engine, namespace: &str, volume_uid: &str) -> Option<Arc<Pod>> {
    let pod = engine.api.caches.pods.get(namespace, &plan::restored_pod_name(volume_uid))?;
    plan::is_restored_pod(&pod, volume_uid).then_some(pod)
}

/// Whether a claim was made here, of whichever snapshot, for the DataVolume with this UID.
fn is_ours(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    volume_uid: &str,
) -> Result<bool, Error> {
    let is_named = plan::restored_for(&claim.metadata) == Some(volume_uid);
    match plan::restored_of(claim).filter(|_| is_named) {
        Some(origin) => rights::is_marked(engine, &origin, &claim.metadata, volume_uid),
        None => Ok(false),
    }
}

/// Whether pods may copy `source` to the target: it was made of that snapshot, for the target's DataVolume, and that has
/// handed it over.
///
/// # Errors
/// Where there is no key.
pub fn may_be_read(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    source: &PersistentVolumeClaim,
    origin: &Origin,
) -> Result<bool, Error> {
    let owner = meta::controller(&target.metadata).filter(|owner| owner.kind == "DataVolume");
    let Some(owner) = owner.filter(|_| plan::is_handed_over(target)) else { return Ok(false) };
    let is_of_it = source.metadata.deletion_timestamp.is_none()
        && plan::restored_of(source).as_ref() == Some(origin);
    Ok(is_of_it && is_ours(engine, source, &owner.uid)?)
}
