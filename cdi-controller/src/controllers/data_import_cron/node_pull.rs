//! The image that a node pulls, with its own registries and credentials.

use std::time::Duration;

use api::v1beta1::DataImportCron;
use k8s_openapi::api::core::v1::Pod;

use super::jobs;
use super::poll::PollOutcome;
use crate::engine::{Engine, Error};
use controller_core::data_import_cron::{NodePull, PollFailure, node_pull};
use controller_core::meta;
use controller_core::plan::{Plan, Write};

/// Between two checks of a pod whose image is being pulled.
const PULL_POLL: Duration = Duration::from_secs(3);

/// The pod is deleted before its result counts, or it would be the result of the next poll too.
pub(super) async fn poll_by_node(
    engine: &Engine,
    cron: &DataImportCron,
) -> Result<PollOutcome, Error> {
    let refused = |because: String| {
        PollOutcome::Result(engine.polls.failed(cron, &PollFailure::NotPulled { because }))
    };
    let Some(wanted) = jobs::node_pod(engine, cron) else {
        return Ok(refused("the image has no address".into()));
    };
    let (namespace, name) = (meta::namespace(&wanted.metadata), meta::name(&wanted.metadata));
    let pod = engine.api.get::<Pod>(namespace, name).await?;
    let (write, result) = match &pod {
        None => match engine.polls.try_begin(cron) {
            Err(wait) => return Ok(PollOutcome::Later(wait)),
            Ok(()) => (Some(Write::create(wanted)), None),
        },
        Some(pod) => match node_pull(pod, cron, engine.now()) {
            NodePull::Pulling => (None, None),
            NodePull::Ended(result) => (Write::delete(pod), result),
        },
    };
    engine.execute_and_report(Plan::writes(write)).await?;
    Ok(match result {
        None => PollOutcome::Later(PULL_POLL),
        Some(Ok(digest)) => PollOutcome::Result(engine.polls.found(cron, &digest)),
        Some(Err(because)) => refused(because),
    })
}
