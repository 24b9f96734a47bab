//! Storage classes: a profile for each.

use std::sync::Arc;

use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::storage_profile::{self as plan, SnapshotClass};
use controller_core::volume::PersistentVolume;

/// The provisioner of classes without one: their profile follows from the volumes that exist.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let plan = plan_profile(&engine, &key)?;
    engine.execute_and_report(plan).await
}

fn plan_profile(engine: &Engine, key: &Key) -> Result<Plan, Error> {
    let caches = &engine.api.caches;
    if caches.classes.is_undecodable("", &key.name) || caches.profiles.is_undecodable("", &key.name)
    {
        return Ok(Plan::default()); // the class is there, so its profile stays as it is
    }
    let profile = caches.profiles.get("", &key.name);
    let class = caches.classes.get("", &key.name);
    let class = class.filter(|class| class.metadata.deletion_timestamp.is_none());
    let Some(class) = class else {
        let deleted = profile.and_then(|profile| Write::delete(profile.as_ref()));
        return Ok(Plan::writes(deleted));
    };
    let Some(profile) = profile else {
        let installation = &engine.settings.installation;
        let profile = plan::new_profile(&key.name, installation, engine.owner());
        return Ok(Plan {
            requeue: Requeue::Now,
            requeue_if_exists: Some(Requeue::OnChange), // the watch reports it
            ..Plan::writes([Write::create(profile)])
        });
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
    Ok(plan.into_writes(&profile))
}
