//! CronJobs that look for newer images, where the controller reaches no registry itself.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::reason;
use api::v1beta1::DataImportCron;
use api::{labels, names};
use importer::{Cidr, DialExceptions};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;

use crate::engine::cache::key_of;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use crate::image_polling::polls;
use controller_core::components::DATA_IMPORT_CRON;
use controller_core::data_import_cron::jobs as plan;
use controller_core::event::Event;
use controller_core::meta;
use controller_core::plan::{Plan, Write};

/// The CronJobs of a cron, also of one that is gone.
pub fn cron_jobs_of(engine: &Engine, cron: &Key) -> Vec<Arc<CronJob>> {
    engine.api.caches.cron_jobs.filter(|job| {
        let label = |key| meta::label(&job.metadata, key);
        label(labels::DATA_IMPORT_CRON) == Some(cron.name.as_str())
            && label(labels::DATA_IMPORT_CRON_NAMESPACE) == Some(cron.namespace.as_str())
    })
}

/// Deletes them, and the jobs that were made with them. Their own jobs go with them.
pub fn deletions(engine: &Engine, jobs: &[Arc<CronJob>]) -> Vec<Write> {
    let namespace = &engine.settings.installation.namespace;
    let of_job = |job: &Arc<CronJob>| {
        let first = names::object_name("initial-job", meta::name(&job.metadata));
        let first = Write::delete_named::<Job>(namespace, &first);
        std::iter::once(first).chain(Write::delete(job.as_ref()))
    };
    jobs.iter().flat_map(of_job).collect()
}

/// Creates, changes or deletes the CronJob of a cron. Returns how long to wait, where a CronJob would be created too soon
/// after others of its namespace.
pub async fn ensure_jobs(
    engine: &Engine,
    cron: &DataImportCron,
) -> Result<Option<Duration>, Error> {
    let present = cron_jobs_of(engine, &key_of(cron));
    let planned = with_facts(engine, cron, |facts| plan::plan(facts, engine.settings.poll_from));
    let (plan, written) = match planned {
        plan::Plan::Poll { cron_job, first } => {
            match polls::verify_secret_access(engine, cron).await {
                Ok(()) => match plan_poll_job(engine, cron, &cron_job, *first, present) {
                    Ok(plan) => (plan, Some(cron_job)),
                    Err(wait) => return Ok(Some(wait)),
                },
                Err(Error::Source(why)) => {
                    let mut plan = Plan::writes(deletions(engine, &present));
                    let event = Event::warning(reason::POLL_FAILED, why.to_string());
                    plan.record(DATA_IMPORT_CRON, cron, [event]);
                    (plan, None)
                }
                Err(error) => return Err(error),
            }
        }
        _ => (Plan::writes(deletions(engine, &present)), None),
    };
    engine.execute_and_report(plan).await?;
    if let Some(wanted) = written {
        engine.polls.wrote(cron, &wanted.spec);
    }
    Ok(None)
}

/// # Errors
/// How long to wait.
fn plan_poll_job(
    engine: &Engine,
    cron: &DataImportCron,
    wanted: &CronJob,
    first: Job,
    mut present: Vec<Arc<CronJob>>,
) -> Result<Plan, Duration> {
    let at = present.iter().position(|job| job.metadata.name == wanted.metadata.name);
    let mut writes = Vec::new();
    match at.map(|at| present.swap_remove(at)) {
        None => {
            engine.polls.try_begin(cron)?;
            // The Job first: a client that sees the CronJob finds that a poll has started already.
            writes.extend([Write::create(first), Write::create(wanted.clone())]);
        }
        Some(job) if engine.polls.is_written(cron, &wanted.spec) || plan::agrees(&job, wanted) => {}
        Some(job) => {
            let mut changed = job.as_ref().clone();
            changed.spec.clone_from(&wanted.spec);
            writes.push(Write::replace(changed));
        }
    }
    // Of an earlier cron of the same name.
    writes.extend(deletions(engine, &present));
    Ok(Plan::writes(writes))
}

/// The pod whose image is pulled by its node.
pub fn node_pod(engine: &Engine, cron: &DataImportCron) -> Option<Pod> {
    with_facts(engine, cron, plan::node_pod)
}

fn with_facts<T>(
    engine: &Engine,
    cron: &DataImportCron,
    then: impl FnOnce(&plan::Facts) -> T,
) -> T {
    let config = engine.config_with_credentials();
    let (placement, owner) = (engine.placement(), engine.owner());
    let DialExceptions { deny, allow } = &engine.settings.poll_networks;
    let networks = plan::PollNetworks { denied: Cidr::join(deny), allowed: Cidr::join(allow) };
    then(&plan::Facts {
        cron,
        config: config.as_deref(),
        placement: placement.as_ref(),
        image: &engine.settings.image,
        installation: &engine.settings.installation,
        owner: owner.as_ref(),
        networks: &networks,
    })
}
