//! Storage classes: a profile for each.

use std::sync::Arc;

use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error};
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::storage_profile::{self as plan, SnapshotClass};
use controller_core::volume::PersistentVolume;

/// Where nobody provisions volumes, those that are there say what claims may be.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Brings the profile of one class up to date.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let stores = &context.cluster.stores;
    if stores.classes.is_undecodable("", &key.name) || stores.profiles.is_undecodable("", &key.name)
    {
        return Ok(Next::Wait); // the class is there, so its profile stays as it is
    }
    let profile = stores.profiles.get("", &key.name);
    let class = stores.classes.get("", &key.name);
    let class = class.filter(|class| class.metadata.deletion_timestamp.is_none());
    let Some(class) = class else {
        let deleted = profile.and_then(|profile| Write::delete(profile.as_ref()));
        return context.carry_out(Plan::writes(deleted)).await.map(Next::from);
    };
    let Some(profile) = profile else {
        let installation = &context.settings.installation;
        let profile = plan::new_profile(&key.name, installation, context.owner());
        let plan = Plan {
            requeue: Requeue::Now,
            requeue_if_exists: Some(Requeue::OnChange), // the watch reports it
            ..Plan::writes([Write::create(profile)])
        };
        return context.carry_out(plan).await.map(Next::from);
    };
    let volumes: Vec<PersistentVolume> = if class.provisioner == NO_PROVISIONER {
        let of_class = |volume: &PersistentVolume| {
            let spec = volume.spec.as_ref();
            spec.and_then(|spec| spec.storage_class_name.as_deref()) == Some(key.name.as_str())
        };
        let all = stores.persistent_volumes.filter(of_class);
        all.iter().map(|volume| volume.as_ref().clone()).collect()
    } else {
        Vec::new()
    };
    let snapshots: Option<Vec<SnapshotClass>> = stores
        .snapshot_classes
        .is_ready()
        .then(|| stores.snapshot_classes.list().iter().map(|class| class.to_fact()).collect());
    let facts = plan::Facts {
        class: &class,
        profile: Some(&profile),
        snapshot_classes: snapshots.as_deref(),
        volumes: &volumes,
    };
    let plan = plan::plan(&facts, context.now()).map_err(Error::StorageProfile)?;
    context.carry_out(plan.into_writes(&profile)).await.map(Next::from)
}
