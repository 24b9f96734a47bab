//! Claims that are imported into: a worker for each, and what it tells.

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
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error};
use controller_core::claim_kind::{is_import_target, prime_target};
use controller_core::components::IMPORT as COMPONENT;
use controller_core::event::Event;
use controller_core::import::{self as plan, Begin, PodFate, stages};
use controller_core::meta::{self, Pairs};
use controller_core::object::ObjectKind;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::{CauseText, OnRefused, RefusalReport, ReportedFailures};
use controller_core::{bound, config, scratch, worker};

/// What the claim says from when its worker is to have scratch space until that runs.
const CREATING_SCRATCH: &str = "Creating scratch space";
/// Key of a ConfigMap of VMware's options.
const VDDK_NODE_SELECTOR: &str = "vddk-node-selector";

/// Brings one claim one step on.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(claim) = context.cluster.stores.claims.get(&key.namespace, &key.name) else {
        return Ok(Next::Wait);
    };
    if !is_import_target(&claim.metadata) {
        return Ok(Next::Wait);
    }
    let name = worker::pod_name(&claim);
    match context.cluster.stores.pods.get(&key.namespace, &name) {
        // Of an earlier claim of this name, and about to be collected: its end wakes nobody here.
        Some(pod) if !worker::works_for(&pod, &claim) => Ok(Next::After(POLL)),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Next::Wait),
        Some(pod) => follow(&context, claim, &pod).await,
        None => {
            // Controllers before this one held a claim until the worker that nobody owns was gone.
            let held_by = finalizer::IMPORT_IMAGE_STREAM;
            let released = Write::remove_finalizer(claim.as_ref(), held_by);
            let claim = workers::write_one(&context, claim, released).await?;
            begin(&context, claim).await
        }
    }
}

async fn begin(context: &Context, claim: Arc<PersistentVolumeClaim>) -> Result<Next, Error> {
    let honors_waiting = config::honors_waiting(&context.config_spec());
    if plan::begin(&claim, &[], honors_waiting) == Begin::Never {
        // The list of stages may have grown while it was paused.
        let plan = Plan::writes(next_stage(context, &claim, None));
        return context.carry_out(plan).await.map(Next::from);
    }
    let may = |claim: &_, users: &[Pod]| plan::begin(claim, users, honors_waiting);
    match workers::admit(context, COMPONENT, claim, may).await? {
        ControlFlow::Continue(claim) => create(context, claim).await,
        ControlFlow::Break(next) => Ok(next),
    }
}

async fn create(context: &Context, claim: Arc<PersistentVolumeClaim>) -> Result<Next, Error> {
    let Some(workers_max) = context.settings.imports_max else { return make(context, claim).await };
    let at_work = || at_work(context);
    let key = key_of(claim.as_ref());
    let Some(_slot) = context.import_slots.reserve("", key, at_work, workers_max) else {
        let changes = plan::queued(&claim, workers_max);
        workers::note(context, claim, &Pairs::new(), &changes).await?;
        return Ok(Next::After(POLL));
    };
    make(context, claim).await
}

/// The PVCs whose importers are at work. What looks like an importer is one only if a PVC that is imported into has it.
fn at_work(context: &Context) -> Vec<Key> {
    let is_at_work = |pod: &Pod| {
        let phase = meta::pod_phase(pod);
        meta::label(&pod.metadata, labels::COMPONENT) == Some(component::IMPORTER)
            && !phase.has_ended()
    };
    let target = |pod: &Arc<Pod>| {
        let claim = workers::claim_of_importer(context, pod)?;
        is_import_target(&claim.metadata).then(|| key_of(claim.as_ref()))
    };
    context.cluster.stores.pods.filter(is_at_work).iter().filter_map(target).collect()
}

async fn make(context: &Context, claim: Arc<PersistentVolumeClaim>) -> Result<Next, Error> {
    let pod = match pod(context, &claim).await {
        Ok(pod) => pod,
        Err(Error::Worker(worker::Error::NoVddkImage)) => {
            let words = worker::Error::NoVddkImage.to_string();
            let changes = bound::obstructed(&claim, reason::AWAITING_VDDK, &words);
            workers::note(context, claim, &Pairs::new(), &changes).await?;
            return Err(Error::Worker(worker::Error::NoVddkImage));
        }
        Err(error) => {
            let name = worker::pod_name(&claim);
            let report = workers::refused_pod(context, COMPONENT, &claim, &name);
            context.report_failure(&report, &error).await?;
            return Err(error);
        }
    };
    let changes = bound::cleared(&claim, reason::AWAITING_VDDK);
    let report = workers::refused_pod(context, COMPONENT, &claim, meta::name(&pod.metadata));
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
    context.carry_out(plan).await.map(Next::from)
}

async fn pod(context: &Context, claim: &PersistentVolumeClaim) -> Result<Pod, Error> {
    let stores = &context.cluster.stores;
    let target = prime_target(&claim.metadata)
        .and_then(|target| stores.claims.get(&target.namespace, &target.name));
    let config = context.config_with_credentials();
    let classes = context.classes();
    let placement = context.placement();
    let is_vddk = meta::annotation(&claim.metadata, order::SOURCE) == Some("vddk");
    let (vddk_image, selector) =
        if is_vddk { vddk(context, claim, target.as_deref()).await? } else { (None, None) };
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "make a key for a worker".into(), source })?;
    worker::pod(&worker::Facts {
        claim,
        target: target.as_deref().unwrap_or(claim),
        config: config.as_deref(),
        classes: &classes,
        placement: placement.as_ref(),
        image: &context.settings.image,
        vddk_image: vddk_image.as_deref(),
        vddk_node_selector: selector.as_ref(),
        installation: &context.settings.installation,
        metrics_key: Some(&key.to_text()),
    })
    .map_err(Error::Worker)
}

/// The image with VMware's library, and where its workers may run.
async fn vddk(
    context: &Context,
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
) -> Result<(Option<String>, Option<BTreeMap<String, String>>), Error> {
    let said = |claim: &PersistentVolumeClaim| {
        let said = meta::annotation(&claim.metadata, request::VDDK_INIT_IMAGE);
        said.filter(|image| !image.is_empty()).map(str::to_owned)
    };
    // Whoever reads that it is waited for may say it on the claim that people see.
    let image = match said(claim).or_else(|| target.and_then(said)) {
        Some(image) => Some(image),
        None => {
            let namespace = &context.settings.installation.namespace;
            let map = context.cluster.get::<ConfigMap>(namespace, names::VDDK_CONFIG_MAP).await?;
            map.and_then(|map| map.data?.remove(names::VDDK_CONFIG_MAP_KEY))
        }
    };
    let arguments = meta::annotation(&claim.metadata, request::VDDK_EXTRA_ARGS);
    let selector = match arguments.filter(|name| !name.is_empty()) {
        Some(name) => {
            let namespace = meta::namespace(&claim.metadata);
            let map = context.cluster.get::<ConfigMap>(namespace, name).await?;
            let text = map.and_then(|map| map.data?.remove(VDDK_NODE_SELECTOR));
            text.and_then(|text| serde_json::from_str(&text).ok())
        }
        None => None,
    };
    Ok((image, selector))
}

async fn follow(
    context: &Context,
    mut claim: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Next, Error> {
    let scratch = scratch_of(context, &claim);
    let plan = plan::plan(&claim, pod, scratch.as_deref());
    let is_starting = meta::pod_phase(pod).is_waiting();
    let is_ending = plan.pod == PodFate::Goes;
    if is_starting && !is_ending {
        provide(context, &claim, pod).await?;
        if scratch::is_needed(&claim) {
            let changes =
                bound::obstructed(&claim, reason::CREATING_SCRATCH_SPACE, CREATING_SCRATCH);
            claim = workers::note(context, claim, &Pairs::new(), &changes).await?;
        }
        let is_young = workers::rest_of_its_way(context, pod).is_some_and(|rest| !rest.is_zero());
        if plan::is_on_its_way(pod, is_young) {
            // Its volume may only just have come: no node takes a pod before that.
            let was_stuck = meta::annotation(&claim.metadata, state::POD_SCHEDULABLE);
            let claim = match was_stuck {
                Some("false") if !is_young => {
                    workers::note(context, claim, &plan.labels, &plan.annotations).await?
                }
                _ => claim,
            };
            return workers::mind_start(context, claim, pod).await;
        }
    }
    let noted = Plan {
        writes: Write::metadata(claim.as_ref(), &plan.labels, &plan.annotations)
            .into_iter()
            .collect(),
        events: workers::events_about(context, COMPONENT, &claim, &plan.events),
        ..Plan::default()
    };
    let applied = context.execute(noted).await?;
    let claim = applied.latest().map_or(claim, Arc::new);
    context.report(applied).await?;
    let next_stage = next_stage(context, &claim, Some(meta::uid(&pod.metadata)));
    let deleted = if is_ending { Write::delete(pod) } else { None };
    let writes = next_stage.into_iter().chain(deleted);
    context.carry_out(Plan::writes(writes)).await.map(Next::from)
}

/// What a worker that has been made waits for: scratch space, and the authority of the cluster's proxy.
async fn provide(context: &Context, claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), Error> {
    if scratch::is_needed(claim) {
        provide_scratch(context, claim, pod).await?;
    }
    let config = context.config();
    let copy = worker::proxy_authority_copy(claim);
    let Some(authority) = worker::proxy_authority(config.as_deref()) else {
        return match mounts(pod, &copy) {
            // It was made when there was one, and would wait for it for ever. Its successor does not.
            true => context.carry_out(Plan::writes(Write::delete(pod))).await.map(drop),
            false => Ok(()),
        };
    };
    let namespace = &context.settings.installation.namespace;
    let Some(map) = context.cluster.get::<ConfigMap>(namespace, authority).await? else {
        let what = format!("the ConfigMap {namespace}/{authority} with the proxy's authority");
        let event =
            Event::warning(api::events::RESOURCE_DOES_NOT_EXIST, format!("there is no {what}"));
        let events = workers::events_about(context, COMPONENT, claim, &[event]);
        return context.carry_out(Plan { events, ..Plan::default() }).await.map(drop);
    };
    let copy = ConfigMap {
        metadata: ObjectMeta {
            name: Some(copy),
            namespace: claim.metadata.namespace.clone(),
            labels: Some(context.settings.installation.labels()),
            owner_references: Some(vec![meta::owned_by("v1", "Pod", &pod.metadata)]),
            ..ObjectMeta::default()
        },
        data: map.data,
        binary_data: map.binary_data,
        immutable: None,
    };
    context.carry_out(Plan::writes([Write::create(copy)])).await.map(drop)
}

/// Whether a pod starts only once there is this ConfigMap.
fn mounts(pod: &Pod, map: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.config_map.as_ref()).any(|source| source.name == map)
}

/// The scratch space that a worker has asked for, once it is there.
fn scratch_of(
    context: &Context,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    if !scratch::is_needed(claim) {
        return None;
    }
    let name = names::scratch(meta::name(&claim.metadata));
    context.cluster.stores.claims.get(meta::namespace(&claim.metadata), &name)
}

/// Makes scratch space for a worker that asked for it.
pub async fn provide_scratch(
    context: &Context,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<(), Error> {
    let namespace = meta::namespace(&claim.metadata);
    let name = names::scratch(meta::name(&claim.metadata));
    if let Some(present) = context.cluster.stores.claims.get(namespace, &name) {
        // It waits for the pod that waits for it.
        let is_terminating = present.metadata.deletion_timestamp.is_some();
        let deleted = if is_terminating { Write::delete(pod) } else { None };
        return context.carry_out(Plan::writes(deleted)).await.map(drop);
    }
    let config = context.config();
    let classes = context.classes();
    let object = scratch::object(&scratch::Facts {
        claim,
        pod,
        classes: &classes,
        config: config.as_ref().and_then(|config| config.status.as_ref()),
        installation: &context.settings.installation,
    });
    let Some(object) = object else { return Ok(()) };
    let target = workers::filled_for(context, claim);
    let report = RefusalReport {
        which: ReportedFailures::Quota,
        kind: ObjectKind::PersistentVolumeClaim,
        reason: api::events::EXCEEDED_QUOTA,
        prefix: String::new(),
        cause: CauseText::Message,
        audience: bound::audience(COMPONENT, claim, target.as_deref()),
        note: None,
    };
    let plan = Plan {
        writes: vec![Write::create(object)],
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    context.carry_out(plan).await.map(drop)
}

/// Notes the next stage of an import in stages.
fn next_stage(
    context: &Context,
    claim: &PersistentVolumeClaim,
    pod_uid: Option<&str>,
) -> Option<Write> {
    if !meta::has_annotation(&claim.metadata, state::CHECKPOINT_CURRENT) {
        return None;
    }
    let (checkpoints, last_is_final) = stages_of(context, claim);
    let changes = stages::advance(claim, &checkpoints, last_is_final, pod_uid);
    Write::annotations(claim, &changes)
}

/// The stages as they are listed now: by the source that the target refers to, or by the DataVolume.
fn stages_of(context: &Context, claim: &PersistentVolumeClaim) -> (Vec<Checkpoint>, bool) {
    let stores = &context.cluster.stores;
    let namespace = meta::namespace(&claim.metadata);
    let target = prime_target(&claim.metadata)
        .and_then(|target| stores.claims.get(&target.namespace, &target.name));
    let source = target.and_then(|target| {
        let reference = target.spec.as_ref()?.data_source_ref.as_ref()?;
        stores.import_sources.get(namespace, &reference.name)
    });
    if let Some(source) = source {
        let stages = source.spec.checkpoints.clone().unwrap_or_default();
        return (stages, source.spec.final_checkpoint.unwrap_or(false));
    }
    let owner = meta::controller(&claim.metadata).filter(|owner| owner.kind == "DataVolume");
    match owner.and_then(|owner| stores.volumes.get(namespace, &owner.name)) {
        Some(volume) => {
            let stages = volume.spec.checkpoints.clone().unwrap_or_default();
            (stages, volume.spec.final_checkpoint.unwrap_or(false))
        }
        None => (Vec::new(), false),
    }
}
