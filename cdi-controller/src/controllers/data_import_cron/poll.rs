//! Polls the source of a cron for its latest image.

use std::sync::Arc;
use std::time::Duration;

use api::v1beta1::DataImportCron;

use super::clone_permission::may_clone;
use super::image_stream::poll_image_stream;
use super::node_pull::poll_by_node;
use crate::engine::{Engine, Error};
use crate::image_polling::polls;
use controller_core::data_import_cron::{PollFailure, PollResult, Poller};
use controller_core::meta;

/// When to reconcile a cron again whose source is polled elsewhere.
const ELSEWHERE: Duration = Duration::from_secs(5);

/// What came of a poll.
pub enum PollOutcome {
    Result(PollResult),
    /// No result yet: reconcile again then.
    Later(Duration),
    /// The cron's service account may not clone the PVC, so nothing about it is looked up.
    Denied,
}

pub async fn poll_source(
    engine: &Arc<Engine>,
    cron: &Arc<DataImportCron>,
    poller: Poller,
) -> Result<PollOutcome, Error> {
    match poller {
        Poller::Registry | Poller::Web => Ok(PollOutcome::Later(polls::start_poll(engine, cron))),
        Poller::Claim if !may_clone(engine, cron).await? => Ok(PollOutcome::Denied),
        Poller::Claim => Ok(PollOutcome::Result(poll_claim(engine, cron))),
        Poller::ImageStream => Ok(match engine.polls.try_begin(cron) {
            Err(wait) => PollOutcome::Later(wait),
            Ok(()) => PollOutcome::Result(match poll_image_stream(engine, cron).await {
                Ok(result) => result,
                Err(error) => engine.polls.failed(cron, &error),
            }),
        }),
        Poller::NodePull => match poll_by_node(engine, cron).await {
            // The refusal of the pod is a result: the rest of the reconcile does not need the pod.
            Err(error) if error.is_final() => {
                Ok(PollOutcome::Result(engine.polls.failed(cron, &error)))
            }
            other => other,
        },
        // Polled by Jobs, or not at all. A plan requests neither here.
        Poller::None | Poller::Job => Ok(PollOutcome::Later(ELSEWHERE)),
    }
}

/// The UID of the PVC that is cloned: another PVC of its name is another image.
fn poll_claim(engine: &Engine, cron: &DataImportCron) -> PollResult {
    let source = cron.spec.template.spec.source.as_ref();
    let Some(place) = source.and_then(|source| source.pvc.as_ref()) else {
        return engine.polls.failed(cron, &PollFailure::Cancelled);
    };
    let own = meta::namespace(&cron.metadata);
    let namespace = if place.namespace.is_empty() { own } else { place.namespace.as_str() };
    let (namespace, name) = (namespace.to_owned(), place.name.clone());
    match engine.api.caches.claims.get(&namespace, &name) {
        Some(claim) => engine.polls.found(cron, &format!("uid:{}", meta::uid(&claim.metadata))),
        None => engine.polls.failed(cron, &PollFailure::NoClaim { namespace, name }),
    }
}
