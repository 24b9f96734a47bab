//! DataImportCrons: the latest image of a source is imported, and a DataSource refers to it.
//!
//! A reconcile costs no request where nothing has changed: objects are watched, and sources are polled in the background.

mod cleanup;
mod clone_permission;
mod image_stream;
mod jobs;
mod node_pull;
mod observe;
mod poll;

use std::sync::Arc;
use std::time::Duration;

use super::POLL;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::data_import_cron::Polled;
use controller_core::plan::Requeue;

use clone_permission::may_clone;
use observe::CronFacts;
pub use observe::OwnedObjects;
use poll::{PollOutcome, poll_source};

/// RBAC permissions are not watched.
const RIGHTS_AGAIN: Duration = Duration::from_mins(1);

pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let caches = &engine.api.caches;
    if caches.crons.is_undecodable(&key.namespace, &key.name) {
        return Ok(Requeue::OnChange); // it is there: nothing of it is cleaned up
    }
    let cron = caches.crons.get(&key.namespace, &key.name);
    let cron = cron.filter(|cron| cron.metadata.deletion_timestamp.is_none());
    let Some(cron) = cron else {
        return cleanup::clean_up(&engine, &key).await;
    };
    // Without the list of snapshots, an image that a snapshot holds would be imported again.
    if !caches.snapshots.is_settled() || !caches.snapshot_classes.is_settled() {
        return Ok(Requeue::After(POLL));
    }
    let now = engine.now();
    let mut facts = CronFacts::observe(&engine, cron);
    let mut polled = engine.polls.result(&facts.cron);
    let mut plan = facts.plan(&engine, polled.as_ref(), now);
    let mut wait = None;
    if let Some(poller) = plan.poll {
        match poll_source(&engine, &facts.cron, poller).await? {
            PollOutcome::Result(result) => {
                let result = Polled { at: now, result };
                engine.polls.keep(&facts.cron, result.clone());
                plan = facts.plan(&engine, Some(&result), now);
                polled = Some(result);
            }
            PollOutcome::Later(delay) => wait = Some(delay),
            PollOutcome::Denied => {
                plan.deny(&facts.cron, now);
                wait = Some(RIGHTS_AGAIN);
            }
        }
    }
    if wait.is_none() && plan.is_refused() {
        facts.may_clone = may_clone(&engine, &facts.cron).await?;
        if facts.may_clone {
            plan = facts.plan(&engine, polled.as_ref(), now);
        } else {
            wait = Some(wait.map_or(RIGHTS_AGAIN, |wait| wait.min(RIGHTS_AGAIN)));
        }
    }
    let changes = facts.changes_plan(&engine, std::mem::take(&mut plan.changes));
    engine.execute_and_report(changes.then(plan.status_and_events(&facts.cron))).await?;
    if let Some(polled) = &polled {
        engine.polls.discard(&facts.cron, polled);
    }
    // A cron whose DataSource another cron manages does nothing.
    if plan.events.is_empty()
        && let Some(delay) = jobs::ensure_jobs(&engine, &facts.cron).await?
    {
        wait = Some(wait.map_or(delay, |wait| wait.min(delay)));
    }
    Ok(plan.requeue(wait, now))
}
