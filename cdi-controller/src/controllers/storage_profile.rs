//! Storage classes: a profile for each.

use std::sync::Arc;

use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::storage_profile::{self as plan, SnapshotClass};
use controller_core::volume::PersistentVolume;

/// Where nobody provisions volumes, those that are there say what claims may be.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Brings the profile of one class up to date.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let caches = &engine.api.caches;
    if caches.classes.is_undecodable("", &key.name) || caches.profiles.is_undecodable("", &key.name)
    {
        return Ok(Requeue::OnChange); // the class is there, so its profile stays as it is
    }
    let profile = caches.profiles.get("", &key.name);
    let class = caches.classes.get("", &key.name);
    let class = class.filter(|class| class.metadata.deletion_timestamp.is_none());
    let Some(class) = class else {
        let deleted = profile.and_then(|profile| Write::delete(profile.as_ref()));
        return engine.execute_and_report(Plan::writes(deleted)).await;
    };
    let Some(profile) = profile else {
        let installation = &engine.settings.installation;
        let profile = plan::new_profile(&key.name, installation, engine.owner());
        let plan = Plan {
            requeue: Requeue::Now,
            requeue_if_exists: Some(Requeue::OnChange), // the watch reports it
            ..Plan::writes([Write::create(profile)])
        };
        return engine.execute_and_report(plan).await;
    };
    let volumes: Vec<PersistentVolume> = if class.provisioner == NO_PROVISIONER {
        let of_class = |volume: &PersistentVolume| {
            let spec = volume.spec.as_ref();
            spec.and_then(|spec| spec.storage_class_name.as_deref()) == Some(key.name.as_str())
        };
        let all = caches.persistent_volumes.filter(of_class);
        all.iter().map(|volume| volume.as_ref().clone()).collect()
    } else {
        Vec::new()
    };
    let snapshots: Option<Vec<SnapshotClass>> = caches
        .snapshot_classes
        .is_ready()
        .then(|| caches.snapshot_classes.list().iter().map(|class| class.to_fact()).collect());
    let facts = plan::Facts {
        class: &class,
        profile: Some(&profile),
        snapshot_classes: snapshots.as_deref(),
        volumes: &volumes,
    };
    let plan = plan::plan(&facts, engine.now()).map_err(Error::StorageProfile)?;
    engine.execute_and_report(plan.into_writes(&profile)).await
}
