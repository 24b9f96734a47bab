//! The end of a DataImportCron.

use api::v1beta1::DataImportCron;

use super::{OwnedObjects, jobs};
use crate::controllers::POLL;
use crate::engine::image_proof::is_proven;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::data_import_cron as crons;
use controller_core::plan::{Plan, Requeue};

/// Deletes what belongs to a DataImportCron that is gone or terminating.
pub(super) async fn clean_up(engine: &Engine, key: &Key) -> Result<Requeue, Error> {
    let owned = OwnedObjects::observe(&engine.api.caches, key, None);
    let changes = crons::cleanup(&key.name, &owned.all());
    let jobs = jobs::cron_jobs_of(engine, key);
    if changes.is_empty() && jobs.is_empty() {
        return Ok(Requeue::OnChange);
    }
    // Deletions cannot be undone, and the cache may be stale.
    let present = engine.api.get::<DataImportCron>(&key.namespace, &key.name).await?;
    let stays = |cron: &DataImportCron| cron.metadata.deletion_timestamp.is_none();
    if present.as_ref().is_some_and(stays) {
        return Ok(Requeue::After(POLL));
    }
    let deleted = Plan::writes(jobs::deletions(engine, &jobs));
    let writes = crons::writes(&key.namespace, changes, &owned.all(), &|claim, image| {
        is_proven(engine, claim, image)
    });
    let changed = Plan::writes(writes);
    engine.execute_and_report(deleted.then(changed)).await?;
    tracing::info!("deleted the objects of the DataImportCron {key}");
    Ok(Requeue::OnChange)
}
