//! Claims that are imported into: a worker for each, and what it tells.

mod follow;
mod pod;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use api::annotations::{import as order, request, state};
use api::conditions::reason;
use api::labels::{self, component, finalizer};
use api::names;
use api::v1beta1::Checkpoint;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use runtime::MetricsKey;

use super::{POLL, workers};
use crate::engine::cache::key_of;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::claim_kind::{is_import_target, prime_target};
use controller_core::components::IMPORT as COMPONENT;
use controller_core::event::Event;
use controller_core::import::{self as plan, Begin, PodFate, stages};
use controller_core::meta::{self, Pairs};
use controller_core::object::ObjectKind;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::{CauseText, OnRefused, RefusalReport, ReportedFailures};
use controller_core::{bound, config, scratch, worker};

pub use follow::provide_scratch;
use follow::{follow, next_stage};
use pod::pod;

/// What the claim says from when its worker is to have scratch space until that runs.
const CREATING_SCRATCH: &str = "Creating scratch space";
/// Key of a ConfigMap of VMware's options.
const VDDK_NODE_SELECTOR: &str = "vddk-node-selector";

/// Brings one claim one step on.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let Some(claim) = engine.api.caches.claims.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    if !is_import_target(&claim.metadata) {
        return Ok(Requeue::OnChange);
    }
    let name = worker::pod_name(&claim);
    match engine.api.caches.pods.get(&key.namespace, &name) {
        // Of an earlier claim of this name, and about to be collected: its end wakes nobody here.
        Some(pod) if !worker::works_for(&pod, &claim) => Ok(Requeue::After(POLL)),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Requeue::OnChange),
        Some(pod) => follow(&engine, claim, &pod).await,
        None => {
            // Controllers before this one held a claim until the worker that nobody owns was gone.
            let held_by = finalizer::IMPORT_IMAGE_STREAM;
            let released = Write::remove_finalizer(claim.as_ref(), held_by);
            let claim = workers::write_one(&engine, claim, released).await?;
            begin(&engine, claim).await
        }
    }
}

async fn begin(engine: &Engine, claim: Arc<PersistentVolumeClaim>) -> Result<Requeue, Error> {
    let honors_waiting = config::honors_waiting(&engine.config_spec());
    if plan::begin(&claim, &[], honors_waiting) == Begin::Never {
        // The list of stages may have grown while it was paused.
        let plan = Plan::writes(next_stage(engine, &claim, None));
        return engine.execute_and_report(plan).await;
    }
    let may = |claim: &_, users: &[Pod]| plan::begin(claim, users, honors_waiting);
    match workers::admit(engine, COMPONENT, claim, may).await? {
        ControlFlow::Continue(claim) => create(engine, claim).await,
        ControlFlow::Break(next) => Ok(next),
    }
}

async fn create(engine: &Engine, claim: Arc<PersistentVolumeClaim>) -> Result<Requeue, Error> {
    let Some(workers_max) = engine.settings.imports_max else { return make(engine, claim).await };
    let at_work = || at_work(engine);
    let key = key_of(claim.as_ref());
    let Some(_slot) = engine.import_slots.reserve("", key, at_work, workers_max) else {
        let changes = plan::queued(&claim, workers_max);
        workers::note(engine, claim, &Pairs::new(), &changes).await?;
        return Ok(Requeue::After(POLL));
    };
    make(engine, claim).await
}

/// The PVCs whose importers are at work. What looks like an importer is one only if a PVC that is imported into has it.
fn at_work(engine: &Engine) -> Vec<Key> {
    let is_at_work = |pod: &Pod| {
        let phase = meta::pod_phase(pod);
        meta::label(&pod.metadata, labels::COMPONENT) == Some(component::IMPORTER)
            && !phase.has_ended()
    };
    let target = |pod: &Arc<Pod>| {
        let claim = workers::claim_of_importer(engine, pod)?;
        is_import_target(&claim.metadata).then(|| key_of(claim.as_ref()))
    };
    engine.api.caches.pods.filter(is_at_work).iter().filter_map(target).collect()
}

async fn make(engine: &Engine, claim: Arc<PersistentVolumeClaim>) -> Result<Requeue, Error> {
    let pod = match pod(engine, &claim).await {
        Ok(pod) => pod,
        Err(Error::Worker(worker::Error::NoVddkImage)) => {
            let words = worker::Error::NoVddkImage.to_string();
            let changes = bound::obstructed(&claim, reason::AWAITING_VDDK, &words);
            workers::note(engine, claim, &Pairs::new(), &changes).await?;
            return Err(Error::Worker(worker::Error::NoVddkImage));
        }
        Err(error) => {
            let name = worker::pod_name(&claim);
            let report = workers::refused_pod(engine, COMPONENT, &claim, &name);
            engine.report_failure(&report, &error).await?;
            return Err(error);
        }
    };
    let changes = bound::cleared(&claim, reason::AWAITING_VDDK);
    let report = workers::refused_pod(engine, COMPONENT, &claim, meta::name(&pod.metadata));
    let plan = Plan {
        writes: Write::annotations(claim.as_ref(), &changes)
            .into_iter()
            .chain([Write::create(pod)])
            .collect(),
        // The watch has not reported it yet, or it is another client's.
        requeue_if_exists: Some(Requeue::After(POLL)),
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    engine.execute_and_report(plan).await
}

/// Whether a pod starts only once there is this ConfigMap.
fn mounts(pod: &Pod, map: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.config_map.as_ref()).any(|source| source.name == map)
}
