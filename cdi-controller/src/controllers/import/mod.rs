//! PVCs that are imported into: an importer pod for each, and its status.

mod follow;
mod pod;
mod stages;
mod start;

use std::sync::Arc;

use api::labels::finalizer;

use super::POLL;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::claim_kind::is_import_target;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::worker;

pub use follow::plan_scratch;

pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let Some(claim) = engine.api.caches.claims.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    if !is_import_target(&claim.metadata) {
        return Ok(Requeue::OnChange);
    }
    let name = worker::pod_name(&claim);
    let plan = match engine.api.caches.pods.get(&key.namespace, &name) {
        // Of an earlier PVC of this name, and about to be garbage-collected, which does not wake this queue.
        Some(pod) if !worker::works_for(&pod, &claim) => Plan::requeue(Requeue::After(POLL)),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => Plan::default(),
        Some(pod) => follow::plan_pod(&engine, &claim, &pod).await?,
        // Upstream CDI held a PVC with a finalizer until a pod without an owner was deleted.
        None => match Write::remove_finalizer(claim.as_ref(), finalizer::IMPORT_IMAGE_STREAM) {
            Some(released) => Plan { requeue: Requeue::Now, ..Plan::writes([released]) },
            None => return start::start(&engine, &claim).await,
        },
    };
    engine.execute_and_report(plan).await
}
