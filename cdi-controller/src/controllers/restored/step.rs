//! The next step towards a PVC of a snapshot.

use super::*;

pub(super) async fn step(
    context: &Context,
    volume: &DataVolume,
    target: &PersistentVolumeClaim,
    origin: &Origin,
) -> Result<RestoreStep, Error> {
    let stores = &context.cluster.stores;
    let uid = meta::uid(&volume.metadata);
    let name = names::restored_pvc(uid);
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

pub(super) async fn carry_out(
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
            let known =
                context.cluster.stores.claims.get(&origin.namespace, &names::restored_pvc(uid));
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

/// Notes on the target why nothing comes of it.
pub(super) async fn complain(
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

pub(super) async fn tell(
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
