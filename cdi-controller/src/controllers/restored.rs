//! The PVC that becomes of a snapshot, for pods to copy where there is no populator. Its DataVolume creates it; this deletes it
//! when the DataVolume needs it no longer. Nothing of another PVC with that name is read or changed.

use std::sync::Arc;

use api::names;
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::clone_facts::{self, FoundCloneSource};
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, rights};
use controller_core::clone::{
    self, Origin, RestoredCleanupFacts, needs_restored, plan_restored_cleanup,
};
use controller_core::data_volume::{IsMarked, RestoredSourceFacts};
use controller_core::meta;
use controller_core::plan::Requeue;

/// Deletes such a PVC when it is no longer needed. `None`: this is no such PVC.
pub async fn clean_up(engine: &Engine, key: &Key) -> Result<Option<Requeue>, Error> {
    let Some(uid) = clone::restored_uid(&key.name) else { return Ok(None) };
    let claim = engine.api.caches.claims.get(&key.namespace, &key.name);
    let claim = match claim {
        Some(claim) if is_ours(engine, &claim, uid)? => Some(claim),
        Some(_) | None => None,
    };
    let is_needed = match &claim {
        Some(claim) => is_needed(engine, claim, uid).await?,
        None => false,
    };
    let pod = pod_of(engine, &key.namespace, uid);
    let facts = RestoredCleanupFacts { claim: claim.as_deref(), pod: pod.as_deref(), is_needed };
    let requeue = engine.execute_and_report(plan_restored_cleanup(&facts)).await?;
    if claim.is_some() && !is_needed {
        engine.pvc_warnings.forget(&key.namespace, &key.name);
    }
    Ok(claim.map(|_| requeue))
}

/// Whether the DataVolume of such a PVC still needs it.
async fn is_needed(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    uid: &str,
) -> Result<bool, Error> {
    let Some((namespace, name)) = clone::volume_of_restored(&claim.metadata) else {
        return Ok(false);
    };
    let is_it = |volume: &DataVolume| meta::uid(&volume.metadata) == uid;
    if let Some(volume) = engine.api.caches.volumes.get(namespace, name)
        && is_it(&volume)
    {
        return Ok(needs_restored(&volume, uid));
    }
    // The watch may not have reported a new one.
    let volume = engine.api.get::<DataVolume>(namespace, name).await?;
    Ok(volume.is_some_and(|volume| needs_restored(&volume, uid)))
}

/// What has the name of the PVC that becomes of the snapshot `origin` for the DataVolume with this UID, and what a new one
/// depends on.
pub async fn look_up_restored(
    engine: &Engine,
    origin: &Origin,
    uid: &str,
) -> Result<RestoredSourceFacts, Error> {
    let caches = &engine.api.caches;
    let name = names::restored_pvc(uid);
    let claim = match caches.claims.get(&origin.namespace, &name) {
        Some(claim) if is_ours(engine, &claim, uid)? => Some((claim, IsMarked::Yes)),
        claim => claim.map(|claim| (claim, IsMarked::No)),
    };
    let (mut snapshot, mut class) = (None, None);
    match (&claim, clone_facts::find(engine, origin)) {
        (Some((claim, IsMarked::Yes)), _) => class = clone_facts::class_of(engine, claim),
        (None, Some(FoundCloneSource::Snapshot(found))) => {
            let content = clone_facts::content_of(engine, &found).await?;
            snapshot = Some(clone::state_of(&found, content.as_ref()));
            let driver = content.as_ref().map(|content| content.spec.driver.as_str());
            class = driver.and_then(|driver| clone_facts::first_class_of(engine, driver));
        }
        (Some((_, IsMarked::No)) | None, _) => {}
    }
    let class_name = class.as_ref().map(|class| meta::name(&class.metadata));
    Ok(RestoredSourceFacts {
        profile: class_name.and_then(|name| caches.profiles.get("", name)),
        pvc_warnings: engine.pvc_warnings.for_pvc(&origin.namespace, &name),
        pod: pod_of(engine, &origin.namespace, uid),
        cloner_image: engine.settings.cloner_image.clone(),
        placement: engine.placement(),
        config: engine.config(),
        installation: engine.settings.installation.clone(),
        claim,
        snapshot,
        class,
    })
}

/// The mark of a PVC that is restored from `origin` for the DataVolume with this UID.
///
/// # Errors
/// Where there is no key.
pub fn mark(engine: &Engine, origin: &Origin, uid: &str) -> Result<String, Error> {
    let claim = ObjectMeta {
        namespace: Some(origin.namespace.clone()),
        name: Some(names::restored_pvc(uid)),
        ..ObjectMeta::default()
    };
    rights::mark(engine, origin, &claim, uid)
}

/// The pod that binds the PVC.
fn pod_of(engine: &Engine, namespace: &str, uid: &str) -> Option<Arc<Pod>> {
    let pod = engine.api.caches.pods.get(namespace, &clone::restored_pod_name(uid))?;
    clone::is_restored_pod(&pod, uid).then_some(pod)
}

/// Whether this controller created the PVC, from any snapshot, for the DataVolume with this UID.
fn is_ours(engine: &Engine, claim: &PersistentVolumeClaim, uid: &str) -> Result<bool, Error> {
    let is_named = clone::restored_for(&claim.metadata) == Some(uid);
    match clone::restored_of(claim).filter(|_| is_named) {
        Some(origin) => rights::is_marked(engine, &origin, &claim.metadata, uid),
        None => Ok(false),
    }
}

/// Whether pods may copy `source` to the target: it was restored from that snapshot, for the target's DataVolume, which has
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
    let Some(owner) = owner.filter(|_| clone::has_copy_source(target)) else { return Ok(false) };
    let is_of_it = source.metadata.deletion_timestamp.is_none()
        && clone::restored_of(source).as_ref() == Some(origin);
    Ok(is_of_it && is_ours(engine, source, &owner.uid)?)
}
