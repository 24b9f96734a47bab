//! The claim that a snapshot becomes, for pods to copy where there is no populator: made and bound for its DataVolume, and
//! deleted when that needs it no more, or is gone. Whatever else has its name is neither read nor touched.

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

/// Notes on the target why nothing comes of it.
async fn complain(
    context: &Context,
    volume: &Arc<DataVolume>,
    claim: &Arc<PersistentVolumeClaim>,
    error: &Error,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let mut audience = bound::audience(COMPONENT, claim, None);
    let about = ObjectRef::of(volume.as_ref());
    audience.insert(0, Audience { component: COMPONENT, about, prefix: String::new() });
    let report = RefusalReport {
        which: ReportedFailures::All,
        kind: ObjectKind::PersistentVolumeClaim,
        reason: events::CLONE_VALIDATION_FAILED,
        prefix: String::new(),
        cause: CauseText::Chain,
        audience,
        note: Some((key_of(claim.as_ref()), PvcNote::CopyNotRunning)),
    };
    context.report_failure(&report, error).await?;
    let (namespace, name) = (meta::namespace(&claim.metadata), meta::name(&claim.metadata));
    let latest = context.cluster.stores.claims.get(namespace, name);
    Ok(latest.unwrap_or_else(|| Arc::clone(claim)))
}

/// Whether the claim of the snapshot was handed to the pods that copy, and is still there. They look at it more closely.
fn is_begun(
    context: &Context,
    volume: &DataVolume,
    target: &PersistentVolumeClaim,
    origin: &Origin,
) -> bool {
    let name = names::restored(meta::uid(&volume.metadata));
    let claim = context.cluster.stores.claims.get(&origin.namespace, &name);
    plan::is_handed_over(target)
        && claim.is_some_and(|claim| {
            plan::restored_for(&claim.metadata).is_some()
                && meta::claim_phase(&claim) == ClaimPhase::Bound
                && claim.metadata.deletion_timestamp.is_none()
        })
}

async fn tell(
    context: &Context,
    volume: &Arc<DataVolume>,
    claim: &Arc<PersistentVolumeClaim>,
    trouble: Option<&Event>,
) -> Result<(), Error> {
    let mut plan = Plan::default();
    plan.record(COMPONENT, volume.as_ref(), trouble.cloned());
    plan.record(COMPONENT, claim.as_ref(), trouble.cloned());
    context.carry_out(plan).await.map(drop)
}

async fn step(
    context: &Context,
    volume: &DataVolume,
    target: &PersistentVolumeClaim,
    origin: &Origin,
) -> Result<RestoreStep, Error> {
    let stores = &context.cluster.stores;
    let uid = meta::uid(&volume.metadata);
    let name = names::restored(uid);
    let present = stores.claims.get(&origin.namespace, &name);
    let claim = match &present {
        None => Namesake::Nobody,
        Some(claim) if !is_ours(context, claim, uid)? => Namesake::Foreign,
        Some(claim) if plan::restored_of(claim).as_ref() == Some(origin) => Namesake::Ours(claim),
        Some(claim) => Namesake::Earlier(claim),
    };
    let (mut snapshot, mut class) = (None, None);
    match (claim, facts::find(context, origin)) {
        (Namesake::Ours(claim), _) => class = facts::class_of(context, claim),
        (Namesake::Nobody, Some(Found::Snapshot(found))) => {
            let content = facts::content_of(context, &found).await?;
            snapshot = Some(plan::state_of(&found, content.as_ref()));
            let driver = content.as_ref().map(|content| content.spec.driver.as_str());
            class = driver.and_then(|driver| facts::first_class_of(context, driver));
        }
        (Namesake::Nobody | Namesake::Earlier(_) | Namesake::Foreign, _) => {}
    }
    let profile = class
        .as_ref()
        .and_then(|class| context.cluster.stores.profiles.get("", meta::name(&class.metadata)));
    let told = context.complaints.of(&origin.namespace, &name);
    let pod = pod_of(context, &origin.namespace, uid);
    let settings = context.config();
    let placement = context.placement();
    Ok(plan::restore(&RestoreFacts {
        volume: &volume.metadata,
        target,
        origin,
        snapshot: snapshot.as_ref(),
        claim,
        told: &told,
        class: class.as_deref(),
        least: config::minimum_size(profile.as_deref()),
        pod: pod.as_deref(),
        image: &context.settings.cloner_image,
        placement: placement.as_ref(),
        config: settings.as_deref(),
        installation: &context.settings.installation,
    }))
}

async fn carry_out(
    context: &Context,
    volume: &DataVolume,
    origin: &Origin,
    action: RestoreAction,
) -> Result<Next, Error> {
    let uid = meta::uid(&volume.metadata);
    let write = match action {
        RestoreAction::CreateClaim(mut claim) => {
            let mark = rights::mark(context, origin, &claim.metadata, uid)?;
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(state::EXTENDED_CLONE_TOKEN.into(), mark);
            Some(Write::create(*claim))
        }
        RestoreAction::CreatePod(pod) => Some(Write::create(*pod)),
        RestoreAction::DeletePod => {
            pod_of(context, &origin.namespace, uid).and_then(|pod| Write::delete(pod.as_ref()))
        }
        RestoreAction::DeleteClaim => {
            let known = context.cluster.stores.claims.get(&origin.namespace, &names::restored(uid));
            // It may be another one by now.
            match known {
                Some(claim) if is_ours(context, &claim, uid)? => Write::delete(claim.as_ref()),
                _ => None,
            }
        }
    };
    let plan = Plan {
        // There was one already, which the watch has not reported yet.
        requeue_if_exists: Some(Requeue::After(POLL)),
        ..Plan::writes(write)
    };
    context.carry_out(plan).await.map(Next::from)
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

/// The clone is complete: the claim that was made for it is looked at, and goes.
pub fn let_go(context: &Context, volume: &DataVolume, origin: Option<&Origin>) {
    let Some(origin) = origin.filter(|origin| origin.kind == OriginKind::Snapshot) else { return };
    let name = names::restored(meta::uid(&volume.metadata));
    if context.cluster.stores.claims.get(&origin.namespace, &name).is_some() {
        context.queues.copies.add(Key::new(origin.namespace.as_str(), name));
    }
}

/// Deletes a claim that was made of a snapshot when nobody needs it any more. `None`: it is no such claim. That somebody owns
/// something across namespaces is known to nobody else.
pub async fn mind(context: &Context, key: &Key) -> Result<Option<Next>, Error> {
    let Some(uid) = plan::restored_uid(&key.name) else { return Ok(None) };
    let claim = context.cluster.stores.claims.get(&key.namespace, &key.name);
    let pod = pod_of(context, &key.namespace, uid);
    let ours = match claim {
        Some(claim) => is_ours(context, &claim, uid)?.then_some(claim),
        None => None,
    };
    if let Some(claim) = &ours
        && is_needed(context, claim, uid).await?
    {
        return Ok(Some(Next::After(MINDED)));
    }
    // First the pod, which keeps the PVC from being deleted.
    let is_ours = ours.is_some();
    let pod = pod.and_then(|pod| Write::delete(pod.as_ref()));
    let claim = ours.and_then(|claim| Write::delete(claim.as_ref()));
    context.carry_out(Plan::writes(pod.into_iter().chain(claim))).await?;
    if is_ours {
        context.complaints.forget(&key.namespace, &key.name);
    }
    Ok(is_ours.then_some(Next::Wait))
}

/// Whether the DataVolume of such a claim is there, and not done.
async fn is_needed(
    context: &Context,
    claim: &PersistentVolumeClaim,
    volume_uid: &str,
) -> Result<bool, Error> {
    let Some((namespace, name)) = plan::volume_of_restored(&claim.metadata) else {
        return Ok(false);
    };
    let is_it = |volume: &DataVolume| meta::uid(&volume.metadata) == volume_uid;
    let is_at_work = |volume: &DataVolume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_over =
            [Phase::Succeeded, Phase::Failed].iter().any(|over| phase == Some(over.as_str()));
        volume.metadata.deletion_timestamp.is_none() && !is_over
    };
    match context.cluster.stores.volumes.get(namespace, name).filter(|volume| is_it(volume)) {
        Some(volume) => Ok(is_at_work(&volume)),
        // Of a new one the watch may not have told.
        None => {
            let volume = context.cluster.get::<DataVolume>(namespace, name).await?;
            Ok(volume.is_some_and(|volume| is_it(&volume) && is_at_work(&volume)))
        }
    }
}
