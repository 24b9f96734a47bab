//! CronJobs that look for newer images, where the controller reaches no registry itself.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::reason;
use api::v1beta1::DataImportCron;
use api::{labels, names};
use importer::{Cidr, DialExceptions};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

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
pub fn of(engine: &Engine, cron: &Key) -> Vec<Arc<CronJob>> {
    engine.api.caches.cron_jobs.filter(|job| {
        let label = |key| meta::label(&job.metadata, key);
        label(labels::DATA_IMPORT_CRON) == Some(cron.name.as_str())
            && label(labels::DATA_IMPORT_CRON_NAMESPACE) == Some(cron.namespace.as_str())
    })
}

/// Deletes them, and the jobs that were made with them. Their own jobs go with them.
pub fn delete(engine: &Engine, jobs: &[Arc<CronJob>]) -> Vec<Write> {
    let namespace = &engine.settings.installation.namespace;
    let of_job = |job: &Arc<CronJob>| {
        let first = names::object_name("initial-job", meta::name(&job.metadata));
        let first = Write::delete_named::<Job>(namespace, &first);
        std::iter::once(first).chain(Write::delete(job.as_ref()))
    };
    jobs.iter().flat_map(of_job).collect()
}

/// Makes the CronJob of a cron, has it be as it should, or deletes it. Returns how long to wait, where one comes too soon
/// after others of its namespace.
pub async fn keep(engine: &Engine, cron: &DataImportCron) -> Result<Option<Duration>, Error> {
    let mut present = of(engine, &key_of(cron));
    let planned = with_facts(engine, cron, |facts| plan::plan(facts, engine.settings.poll_from));
    let plan::Plan::Poll { cron_job: wanted, first } = planned else {
        engine.execute_and_report(Plan::writes(delete(engine, &present))).await?;
        return Ok(None);
    };
    match polls::allow(engine, cron).await {
        Ok(()) => {}
        Err(Error::Source(why)) => {
            let mut plan = Plan::writes(delete(engine, &present));
            let event = Event::warning(reason::POLL_FAILED, why.to_string());
            plan.record(DATA_IMPORT_CRON, cron, [event]);
            engine.execute_and_report(plan).await?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let at = present.iter().position(|job| job.metadata.name == wanted.metadata.name);
    let mut writes = Vec::new();
    match at.map(|at| present.swap_remove(at)) {
        None => {
            if let Err(wait) = engine.polls.try_begin(cron) {
                return Ok(Some(wait));
            }
            // The job first: who sees the CronJob finds that somebody looks already.
            writes.extend([Write::create(*first), Write::create(wanted.as_ref().clone())]);
        }
        Some(job) if engine.polls.is_written(cron, &wanted.spec) || agrees(&job, &wanted) => {}
        Some(job) => {
            let mut changed = job.as_ref().clone();
            changed.spec.clone_from(&wanted.spec);
            writes.push(Write::replace(changed));
        }
    }
    engine.execute_and_report(Plan::writes(writes)).await?;
    engine.polls.wrote(cron, &wanted.spec);
    // Of an earlier cron of the same name.
    engine.execute_and_report(Plan::writes(delete(engine, &present))).await?;
    Ok(None)
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

/// Whether a CronJob is as it should be, whatever the cluster has added.
fn agrees(present: &CronJob, wanted: &CronJob) -> bool {
    holds(&json!(present.spec), &json!(wanted.spec))
}

fn holds(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| present.get(key).is_some_and(|present| holds(present, wanted))),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len()
                && present.iter().zip(wanted).all(|(present, wanted)| holds(present, wanted))
        }
        _ => present == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cluster_adds_is_no_difference_and_everything_else_is() {
        let wanted = json!({ "a": { "b": [{ "c": 1 }] }, "d": "e" });
        for (present, expected) in [
            (wanted.clone(), true),
            (json!({ "a": { "b": [{ "c": 1, "x": 0 }], "x": 0 }, "d": "e", "x": [] }), true),
            (json!({ "a": { "b": [{ "c": 2 }] }, "d": "e" }), false),
            (json!({ "a": { "b": [{ "c": 1 }, {}] }, "d": "e" }), false),
            (json!({ "a": { "b": [] }, "d": "e" }), false),
            (json!({ "a": { "b": [{ "c": 1 }] } }), false),
            (json!(null), false),
        ] {
            assert_eq!(holds(&present, &wanted), expected, "{present}");
        }
    }
}
