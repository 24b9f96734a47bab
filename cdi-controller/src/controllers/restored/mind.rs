//! The end of a PVC that was made of a snapshot.

use super::*;

/// Deletes a claim that was made of a snapshot when nobody needs it any more. `None`: it is no such claim. That somebody owns
/// something across namespaces is known to nobody else.
pub async fn mind(engine: &Engine, key: &Key) -> Result<Option<Requeue>, Error> {
    let Some(uid) = plan::restored_uid(&key.name) else { return Ok(None) };
    let claim = engine.api.caches.claims.get(&key.namespace, &key.name);
    let pod = pod_of(engine, &key.namespace, uid);
    let ours = match claim {
        Some(claim) => is_ours(engine, &claim, uid)?.then_some(claim),
        None => None,
    };
    if let Some(claim) = &ours
        && is_needed(engine, claim, uid).await?
    {
        return Ok(Some(Requeue::After(MINDED)));
    }
    // First the pod, which keeps the PVC from being deleted.
    let is_ours = ours.is_some();
    let pod = pod.and_then(|pod| Write::delete(pod.as_ref()));
    let claim = ours.and_then(|claim| Write::delete(claim.as_ref()));
    engine.execute_and_report(Plan::writes(pod.into_iter().chain(claim))).await?;
    if is_ours {
        engine.pvc_warnings.forget(&key.namespace, &key.name);
    }
    Ok(is_ours.then_some(Requeue::OnChange))
}

/// Whether the DataVolume of such a claim is there, and not done.
async fn is_needed(
    engine: &Engine,
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
    match engine.api.caches.volumes.get(namespace, name).filter(|volume| is_it(volume)) {
        Some(volume) => Ok(is_at_work(&volume)),
        // Of a new one the watch may not have told.
        None => {
            let volume = engine.api.get::<DataVolume>(namespace, name).await?;
            Ok(volume.is_some_and(|volume| is_it(&volume) && is_at_work(&volume)))
        }
    }
}

/// The clone is complete: the claim that was made for it is looked at, and goes.
pub fn let_go(engine: &Engine, volume: &DataVolume, origin: Option<&Origin>) {
    let Some(origin) = origin.filter(|origin| origin.kind == OriginKind::Snapshot) else { return };
    let name = names::restored_pvc(meta::uid(&volume.metadata));
    if engine.api.caches.claims.get(&origin.namespace, &name).is_some() {
        engine.queues.copies.add(Key::new(origin.namespace.as_str(), name));
    }
}
