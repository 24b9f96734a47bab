//! An importer pod that is to be created.

use std::ops::ControlFlow;
use std::sync::Arc;

use api::labels::{self, component};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::pod::importer_pod;
use super::stages::next_stage;
use crate::controllers::{POLL, workers};
use crate::engine::cache::key_of;
use crate::engine::queue::Key;
use crate::engine::slots::Slot;
use crate::engine::{Engine, Error};
use controller_core::claim_kind::is_import_target;
use controller_core::components::IMPORT;
use controller_core::import;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::{OnRefused, RefusalReport};
use controller_core::worker::StartDecision;
use controller_core::{config, meta, worker};

/// What the start of an import comes to.
#[derive(Default)]
struct Start<'a> {
    plan: Plan,
    /// Held until the pod is in the cache, which shows it from then on.
    slot: Option<Slot<'a>>,
    /// Why there is no pod, once the plan is executed.
    failure: Option<(Option<RefusalReport>, Error)>,
}

impl From<Plan> for Start<'_> {
    fn from(plan: Plan) -> Self {
        Self { plan, ..Self::default() }
    }
}

pub(super) async fn start(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
) -> Result<Requeue, Error> {
    let Start { plan, slot: _slot, failure } = plan_start(engine, claim).await?;
    let requeue = engine.execute_and_report(plan).await?;
    match failure {
        None => Ok(requeue),
        Some((report, error)) => {
            if let Some(report) = report {
                engine.report_failure(&report, &error).await?;
            }
            Err(error)
        }
    }
}

async fn plan_start<'a>(
    engine: &'a Engine,
    claim: &PersistentVolumeClaim,
) -> Result<Start<'a>, Error> {
    let honors_waiting = config::honors_waiting(&engine.config_spec());
    let decide = |users: &[Pod]| import::decide_start(claim, users, honors_waiting);
    if decide(&[]) == StartDecision::Never {
        // Checkpoints may have been added while the import was paused.
        return Ok(Plan::writes(next_stage(engine, claim, None)).into());
    }
    let named = match workers::admit(engine, IMPORT, claim, decide).await? {
        ControlFlow::Continue(named) => named,
        ControlFlow::Break(plan) => return Ok(plan.into()),
    };
    let slot = match engine.settings.imports_max {
        None => None,
        Some(limit) => {
            let key = key_of(claim);
            let slot = engine.import_slots.reserve("", key, || imports_at_work(engine), limit);
            let Some(slot) = slot else {
                let queued = Write::annotations(claim, &import::queued(claim, limit));
                let requeue = Requeue::After(POLL);
                let plan = Plan { requeue, ..Plan::writes(named.into_iter().chain(queued)) };
                return Ok(plan.into());
            };
            Some(slot)
        }
    };
    let report = workers::refused_pod(engine, IMPORT, claim, &worker::pod_name(claim));
    Ok(match importer_pod(engine, claim).await {
        Ok(pod) => {
            let on_refused = OnRefused::Report(Box::new(report));
            let requeue_if_exists = Some(Requeue::After(POLL));
            let writes = named.into_iter().chain(import::creation_writes(claim, pod));
            let plan = Plan { on_refused, requeue_if_exists, ..Plan::writes(writes) };
            Start { slot, ..plan.into() }
        }
        Err(error) => {
            let is_vddk = matches!(error, Error::Worker(worker::Error::NoVddkImage));
            let waiting = is_vddk.then(|| import::vddk_image_missing(claim)).flatten();
            let failure = Some(((!is_vddk).then_some(report), error));
            Start { plan: Plan::writes(named.into_iter().chain(waiting)), slot: None, failure }
        }
    })
}

/// The PVCs whose importers run. A pod with the labels of an importer counts only where a PVC that is imported into has it.
fn imports_at_work(engine: &Engine) -> Vec<Key> {
    let is_at_work = |pod: &Pod| {
        let phase = meta::worker_pod_phase(pod);
        meta::label(&pod.metadata, labels::COMPONENT) == Some(component::IMPORTER)
            && !phase.has_ended()
    };
    let target = |pod: &Arc<Pod>| {
        let claim = workers::claim_of_importer(engine, pod)?;
        is_import_target(&claim.metadata).then(|| key_of(claim.as_ref()))
    };
    engine.api.caches.pods.filter(is_at_work).iter().filter_map(target).collect()
}
