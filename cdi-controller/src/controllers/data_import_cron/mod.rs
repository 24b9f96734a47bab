//! DataImportCrons: what is newest is asked for, imported, and stood for by a DataSource.
//!
//! One look costs no request where everything is as it should be: what there is, is watched, and sources are asked in the
//! background.

mod apply;
mod jobs;
mod poll;
mod seen;

use std::sync::Arc;
use std::time::Duration;

use api::v1beta1::DataImportCron;

use super::POLL;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::data_import_cron::{self as crons, Polled};
use controller_core::plan::{Plan, Requeue};
use controller_core::refusal::OnRefused;

use poll::Found;
pub use seen::Belongings;
use seen::Seen;

/// Rights that are missing are given by somebody who tells nobody.
const RIGHTS_AGAIN: Duration = Duration::from_mins(1);

/// Brings one DataImportCron one step on.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let caches = &engine.api.caches;
    if caches.crons.is_undecodable(&key.namespace, &key.name) {
        return Ok(Requeue::OnChange); // it is there: nothing of it is cleaned up
    }
    let cron = caches.crons.get(&key.namespace, &key.name);
    let cron = cron.filter(|cron| cron.metadata.deletion_timestamp.is_none());
    let Some(cron) = cron else {
        return tidy(&engine, &key).await;
    };
    // Whoever does not know of a snapshot would import its image again.
    if !caches.snapshots.is_settled() || !caches.snapshot_classes.is_settled() {
        return Ok(Requeue::After(POLL));
    }
    let now = engine.now();
    let mut seen = Seen::of(&engine, cron);
    let mut polled = engine.polls.answer(&seen.cron);
    let mut plan = seen.plan(&engine, polled.as_ref(), now);
    let mut wait = None;
    if let Some(poller) = plan.poll {
        match poll::poll(&engine, &seen.cron, poller).await? {
            Found::Answer(answer) => {
                let answer = Polled { at: now, answer };
                engine.polls.keep(&seen.cron, answer.clone());
                plan = seen.plan(&engine, Some(&answer), now);
                polled = Some(answer);
            }
            Found::Later(delay) => wait = Some(delay),
            Found::Denied => {
                plan.deny(&seen.cron, now);
                wait = Some(RIGHTS_AGAIN);
            }
        }
    }
    if wait.is_none() && plan.is_refused() {
        seen.may_clone = poll::may_clone(&engine, &seen.cron).await?;
        if seen.may_clone {
            plan = seen.plan(&engine, polled.as_ref(), now);
        } else {
            wait = Some(wait.map_or(RIGHTS_AGAIN, |wait| wait.min(RIGHTS_AGAIN)));
        }
    }
    apply::changes(&engine, &seen.cron, std::mem::take(&mut plan.changes)).await?;
    engine.execute_and_report(plan.status_and_events(&seen.cron)).await?;
    if let Some(polled) = &polled {
        engine.polls.settle(&seen.cron, polled);
    }
    // One whose DataSource is another's does nothing.
    if plan.events.is_empty()
        && let Some(delay) = jobs::keep(&engine, &seen.cron).await?
    {
        wait = Some(wait.map_or(delay, |wait| wait.min(delay)));
    }
    Ok(plan.requeue(wait, now))
}

/// Deletes what goes with a DataImportCron that is gone, or is on its way out.
async fn tidy(engine: &Engine, key: &Key) -> Result<Requeue, Error> {
    let belongings = Belongings::of(&engine.api.caches, key, None);
    let changes = crons::cleanup(&key.name, &belongings.all());
    let jobs = jobs::of(engine, key);
    if changes.is_empty() && jobs.is_empty() {
        return Ok(Requeue::OnChange);
    }
    // What cannot be undone is not done on the word of a watch alone.
    let present = engine.api.get::<DataImportCron>(&key.namespace, &key.name).await?;
    let stays = |cron: &DataImportCron| cron.metadata.deletion_timestamp.is_none();
    if present.as_ref().is_some_and(stays) {
        return Ok(Requeue::After(POLL));
    }
    engine.execute_and_report(Plan::writes(jobs::delete(engine, &jobs))).await?;
    for change in changes {
        apply::change(engine, &key.namespace, change, OnRefused::Retry).await?;
    }
    tracing::info!("tidied what belonged to the DataImportCron {key}");
    Ok(Requeue::OnChange)
}
