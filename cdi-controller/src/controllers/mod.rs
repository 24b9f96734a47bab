//! One file for each controller: observe, plan, execute, report.

pub(super) mod clone;
mod clone_facts;
pub(super) mod config;
pub(super) mod copy;
mod credentials;
pub(super) mod data_import_cron;
pub(super) mod data_source;
pub(super) mod data_volume;
pub(super) mod forklift;
pub(super) mod import;
pub(super) mod object_transfer;
pub(super) mod populator;
mod restored;
pub(super) mod storage_profile;
pub(super) mod upload;
mod workers;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::engine::queue::{Key, Queue};
use crate::engine::{Engine, Error, chain};
use controller_core::plan::Requeue;
pub use controller_core::progress::POLL;

/// Reconciliations that take longer are logged.
const SLOW: Duration = Duration::from_secs(5);

/// Runs the workers of all controllers. Never ends.
pub fn work(engine: &Arc<Engine>) -> BoxFuture<'static, ()> {
    let count = engine.settings.workers;
    let shared = || Arc::clone(engine);
    let all: Vec<BoxFuture<'static, ()>> = (0..count)
        .flat_map(|_| {
            [
                serve(shared(), "DataVolume", |c| &c.queues.volumes, data_volume::reconcile)
                    .boxed(),
                serve(
                    shared(),
                    "claim to populate",
                    |c| &c.queues.populators,
                    populator::reconcile,
                )
                .boxed(),
                serve(shared(), "claim to import into", |c| &c.queues.imports, import::reconcile)
                    .boxed(),
                serve(shared(), "claim to upload to", |c| &c.queues.uploads, upload::reconcile)
                    .boxed(),
                serve(shared(), "claim to clone to", |c| &c.queues.clones, clone::reconcile)
                    .boxed(),
                serve(shared(), "claim to copy to", |c| &c.queues.copies, copy::reconcile).boxed(),
                serve(shared(), "DataImportCron", |c| &c.queues.crons, data_import_cron::reconcile)
                    .boxed(),
            ]
        })
        .chain([
            serve(shared(), "DataSource", |c| &c.queues.data_sources, data_source::reconcile)
                .boxed(),
            serve(shared(), "StorageProfile", |c| &c.queues.profiles, storage_profile::reconcile)
                .boxed(),
            serve(shared(), "claim of forklift's", |c| &c.queues.forklift, forklift::reconcile)
                .boxed(),
            serve(shared(), "CDIConfig", |c| &c.queues.configs, config::reconcile).boxed(),
            serve(shared(), "ObjectTransfer", |c| &c.queues.transfers, object_transfer::reconcile)
                .boxed(),
        ])
        .collect();
    futures_util::future::join_all(all).map(|_| ()).boxed()
}

/// One worker of one controller.
async fn serve<F>(
    engine: Arc<Engine>,
    what: &'static str,
    queue: fn(&Engine) -> &Queue,
    reconcile: fn(Arc<Engine>, Key) -> F,
) where
    F: Future<Output = Result<Requeue, Error>> + Send + 'static,
{
    loop {
        let key = queue(&engine).next().await;
        let begin = Instant::now();
        // In its own task: a panic about one object must not stop the worker.
        let work = tokio::spawn(reconcile(Arc::clone(&engine), key.clone()));
        let requeue = match work.await {
            Ok(Ok(requeue)) => Some(requeue),
            Ok(Err(error)) if error.is_conflict() || error.is_gone() => {
                tracing::debug!("the {what} {key} changed meanwhile: {}", chain(&error));
                None
            }
            Ok(Err(error)) if error.is_of_terminating_namespace() => {
                tracing::debug!(
                    "the namespace of the {what} {key} is terminating: {}",
                    chain(&error)
                );
                Some(Requeue::OnChange)
            }
            Ok(Err(error)) => {
                tracing::warn!("cannot reconcile the {what} {key}: {}", chain(&error));
                None
            }
            Err(panic) => {
                tracing::error!("the reconciliation of the {what} {key} panicked: {panic}");
                None
            }
        };
        if begin.elapsed() > SLOW {
            tracing::info!("the {what} {key} took {} s", begin.elapsed().as_secs());
        }
        match requeue {
            Some(requeue) => queue(&engine).finish(key, requeue),
            None => queue(&engine).retry(key),
        }
    }
}
