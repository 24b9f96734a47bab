//! The next step towards a PVC of a snapshot.

use super::*;

pub(super) async fn step(
    engine: &Engine,
    volume: &DataVolume,
    target: &PersistentVolumeClaim,
    origin: &Origin,
) -> Result<RestoreStep, Error> {
    let caches = &engine.api.caches;
    let uid = meta::uid(&volume.metadata);
    let name = names::restored_pvc(uid);
    let present = caches.claims.get(&origin.namespace, &name);
    let claim = match &present {
        None => Namesake::Nobody,
        Some(claim) if !is_ours(engine, claim, uid)? => Namesake::Foreign,
        Some(claim) if plan::restored_of(claim).as_ref() == Some(origin) => Namesake::Ours(claim),
        Some(claim) => Namesake::Earlier(claim),
    };
    let (mut snapshot, mut class) = (None, None);
    match (claim, facts::find(engine, origin)) {
        (Namesake::Ours(claim), _) => class = facts::class_of(engine, claim),
        (Namesake::Nobody, Some(Found::Snapshot(found))) => {
            let content = facts::content_of(engine, &found).await?;
            snapshot = Some(plan::state_of(&found, content.as_ref()));
            let driver = content.as_ref().map(|content| content.spec.driver.as_str());
            class = driver.and_then(|driver| facts::first_class_of(engine, driver));
        }
        (Namesake::Nobody | Namesake::Earlier(_) | Namesake::Foreign, _) => {}
    }
    let profile = class
        .as_ref()
        .and_then(|class| engine.api.caches.profiles.get("", meta::name(&class.metadata)));
    let told = engine.pvc_warnings.of(&origin.namespace, &name);
    let pod = pod_of(engine, &origin.namespace, uid);
    let settings = engine.config();
    let placement = engine.placement();
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
        image: &engine.settings.cloner_image,
        placement: placement.as_ref(),
        config: settings.as_deref(),
        installation: &engine.settings.installation,
    }))
}

pub(super) async fn carry_out(
    engine: &Engine,
    volume: &DataVolume,
    origin: &Origin,
    action: RestoreAction,
) -> Result<Requeue, Error> {
    let uid = meta::uid(&volume.metadata);
    let write = match action {
        RestoreAction::CreateClaim(mut claim) => {
            let mark = rights::mark(engine, origin, &claim.metadata, uid)?;
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(state::EXTENDED_CLONE_TOKEN.into(), mark);
            Some(Write::create(*claim))
        }
        RestoreAction::CreatePod(pod) => Some(Write::create(*pod)),
        RestoreAction::DeletePod => {
            pod_of(engine, &origin.namespace, uid).and_then(|pod| Write::delete(pod.as_ref()))
        }
        RestoreAction::DeleteClaim => {
            let known = engine.api.caches.claims.get(&origin.namespace, &names::restored_pvc(uid));
            // It may be another one by now.
            match known {
                Some(claim) if is_ours(engine, &claim, uid)? => Write::delete(claim.as_ref()),
                _ => None,
            }
        }
    };
    let plan = Plan {
        // There was one already, which the watch has not reported yet.
        requeue_if_exists: Some(Requeue::After(POLL)),
        ..Plan::writes(write)
    };
    engine.execute_and_report(plan).await
}

/// Notes on the target why nothing comes of it.
pub(super) async fn complain(
    engine: &Engine,
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
    engine.report_failure(&report, error).await?;
    let (namespace, name) = (meta::namespace(&claim.metadata), meta::name(&claim.metadata));
    let latest = engine.api.caches.claims.get(namespace, name);
    Ok(latest.unwrap_or_else(|| Arc::clone(claim)))
}

pub(super) async fn tell(
    engine: &Engine,
    volume: &Arc<DataVolume>,
    claim: &Arc<PersistentVolumeClaim>,
    trouble: Option<&Event>,
) -> Result<(), Error> {
    let mut plan = Plan::default();
    plan.record(COMPONENT, volume.as_ref(), trouble.cloned());
    plan.record(COMPONENT, claim.as_ref(), trouble.cloned());
    engine.execute_and_report(plan).await.map(drop)
}
