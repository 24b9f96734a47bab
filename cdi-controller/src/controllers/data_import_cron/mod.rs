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
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error};
use controller_core::data_import_cron::{self as crons, Polled};
use controller_core::plan::Plan;
use controller_core::refusal::OnRefused;

use poll::Found;
pub use seen::Belongings;
use seen::Seen;

/// Rights that are missing are given by somebody who tells nobody.
const RIGHTS_AGAIN: Duration = Duration::from_mins(1);

/// Brings one DataImportCron one step on.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let stores = &context.cluster.stores;
    if stores.crons.is_undecodable(&key.namespace, &key.name) {
        return Ok(Next::Wait); // it is there: nothing of it is cleaned up
    }
    let cron = stores.crons.get(&key.namespace, &key.name);
    let cron = cron.filter(|cron| cron.metadata.deletion_timestamp.is_none());
    let Some(cron) = cron else {
        return tidy(&context, &key).await;
    };
    // Whoever does not know of a snapshot would import its image again.
    if !stores.snapshots.is_settled() || !stores.snapshot_classes.is_settled() {
        return Ok(Next::After(POLL));
    }
    let now = context.now();
    let mut seen = Seen::of(&context, cron);
    let mut polled = context.polls.answer(&seen.cron);
    let mut plan = seen.plan(&context, polled.as_ref(), now);
    let mut wait = None;
    if let Some(poller) = plan.poll {
        match poll::poll(&context, &seen.cron, poller).await? {
            Found::Answer(answer) => {
                let answer = Polled { at: now, answer };
                context.polls.keep(&seen.cron, answer.clone());
                plan = seen.plan(&context, Some(&answer), now);
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
        seen.may_clone = poll::may_clone(&context, &seen.cron).await?;
        if seen.may_clone {
            plan = seen.plan(&context, polled.as_ref(), now);
        } else {
            wait = Some(wait.map_or(RIGHTS_AGAIN, |wait| wait.min(RIGHTS_AGAIN)));
        }
    }
    apply::changes(&context, &seen.cron, std::mem::take(&mut plan.changes)).await?;
    context.carry_out(plan.status_and_events(&seen.cron)).await?;
    if let Some(polled) = &polled {
        context.polls.settle(&seen.cron, polled);
    }
    // One whose DataSource is another's does nothing.
    if plan.events.is_empty()
        && let Some(delay) = jobs::keep(&context, &seen.cron).await?
    {
        wait = Some(wait.map_or(delay, |wait| wait.min(delay)));
    }
    Ok(plan.requeue(wait, now).into())
}

/// Deletes what goes with a DataImportCron that is gone, or is on its way out.
async fn tidy(context: &Context, key: &Key) -> Result<Next, Error> {
    let belongings = Belongings::of(&context.cluster.stores, key, None);
    let changes = crons::cleanup(&key.name, &belongings.all());
    let jobs = jobs::of(context, key);
    if changes.is_empty() && jobs.is_empty() {
        return Ok(Next::Wait);
    }
    // What cannot be undone is not done on the word of a watch alone.
    let present = context.cluster.get::<DataImportCron>(&key.namespace, &key.name).await?;
    let stays = |cron: &DataImportCron| cron.metadata.deletion_timestamp.is_none();
    if present.as_ref().is_some_and(stays) {
        return Ok(Next::After(POLL));
    }
    context.carry_out(Plan::writes(jobs::delete(context, &jobs))).await?;
    for change in changes {
        apply::change(context, &key.namespace, change, OnRefused::Retry).await?;
    }
    tracing::info!("tidied what belonged to the DataImportCron {key}");
    Ok(Next::Wait)
}
