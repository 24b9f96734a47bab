//! Claims that one of forklift's populators fills: a pod for each, and what it tells.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use runtime::MetricsKey;

use super::{POLL, workers};
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error, scrape};
use controller_core::components::FORKLIFT as COMPONENT;
use controller_core::forklift::{self as plan, Kind, Order};
use controller_core::import::PodFate;
use controller_core::meta;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::OnRefused;

/// Brings one claim that is filled one step on.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let stores = &context.cluster.stores;
    let Some(prime) = stores.claims.get(&key.namespace, &key.name) else {
        return Ok(Next::Wait);
    };
    let Some(uid) = plan::target_uid(&prime.metadata) else { return Ok(Next::Wait) };
    match stores.pods.get(&key.namespace, &plan::pod_name(uid)) {
        // Its end wakes nobody here.
        Some(pod) if !plan::is_of(&pod, &prime) => Ok(Next::After(POLL)),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Next::Wait),
        Some(pod) => follow(&context, prime, &pod).await,
        None if plan::needs_pod(&prime) => begin(&context, prime).await,
        None => Ok(Next::Wait),
    }
}

async fn begin(context: &Context, prime: Arc<PersistentVolumeClaim>) -> Result<Next, Error> {
    let Some(target) = workers::filled_for(context, &prime) else { return Ok(Next::Wait) };
    // Gone since the claim beside was made. Whoever makes it anew wakes this.
    let Some(order) = order(context, &target) else { return Ok(Next::Wait) };
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "make a key for a worker".into(), source })?;
    let config = context.config();
    let placement = context.placement();
    let pod = plan::pod(&plan::Facts {
        prime: &prime,
        target: &target,
        order: &order,
        config: config.as_deref(),
        placement: placement.as_ref(),
        image: &context.settings.image,
        ovirt_image: &context.settings.ovirt_populator_image,
        installation: &context.settings.installation,
        metrics_key: &key.to_text(),
    });
    let name = meta::name(&pod.metadata).to_owned();
    let report = workers::refused_pod(context, COMPONENT, &prime, &name);
    let plan = Plan {
        writes: vec![Write::create(pod)],
        requeue_if_exists: Some(Requeue::Now),
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    match context.carry_out(plan).await? {
        Requeue::Now => meet(context, prime, &name).await,
        requeue => Ok(requeue.into()),
    }
}

/// A pod that no watch has told of: it is new, or the reference made it, whose pods have no labels.
async fn meet(
    context: &Context,
    prime: Arc<PersistentVolumeClaim>,
    name: &str,
) -> Result<Next, Error> {
    let namespace = meta::namespace(&prime.metadata);
    let pod = context.cluster.get::<Pod>(namespace, name).await?;
    if let Some(pod) = pod
        && plan::is_of(&pod, &prime)
        && pod.metadata.deletion_timestamp.is_none()
    {
        follow(context, prime, &pod).await?;
    }
    Ok(Next::After(POLL))
}

async fn follow(
    context: &Context,
    prime: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Next, Error> {
    let plan = plan::plan(&prime, pod);
    let phase = meta::pod_phase(pod);
    if phase.is_waiting() && plan.pod == PodFate::Stays {
        let is_young = workers::rest_of_its_way(context, pod).is_some_and(|rest| !rest.is_zero());
        if controller_core::import::is_on_its_way(pod, is_young) {
            return workers::mind_start(context, prime, pod).await;
        }
    }
    let noted = Write::annotations(prime.as_ref(), &plan.annotations);
    let deleted = if plan.pod == PodFate::Goes { Write::delete(pod) } else { None };
    let mut executed = Plan::writes(noted.into_iter().chain(deleted));
    if let Some(target) = workers::filled_for(context, &prime) {
        executed.record(COMPONENT, target.as_ref(), plan.events);
    }
    context.carry_out(executed).await.map(Next::from)
}

/// What a claim is to be filled with. `None`: it refers to neither kind, or to something that is not there.
pub fn order(context: &Context, target: &PersistentVolumeClaim) -> Option<Order> {
    let stores = &context.cluster.stores;
    let namespace = meta::namespace(&target.metadata);
    let name = target.spec.as_ref()?.data_source_ref.as_ref()?.name.as_str();
    match Kind::of(target)? {
        Kind::Ovirt => {
            stores.ovirt_disks.get(namespace, name).map(|source| Order::from(&source.spec))
        }
        Kind::Openstack => {
            stores.openstack_images.get(namespace, name).map(|source| Order::from(&source.spec))
        }
    }
}

/// How far the pod of a claim is that is filled, in percent.
pub async fn measure(context: &Context, prime: &PersistentVolumeClaim) -> Option<f64> {
    let kind = Kind::of(workers::filled_for(context, prime)?.as_ref())?;
    let name = plan::pod_name(plan::target_uid(&prime.metadata)?);
    let pod = context.cluster.stores.pods.get(meta::namespace(&prime.metadata), &name)?;
    if plan::is_of(&pod, prime) { scrape::percentage(&pod, kind.metric()).await } else { None }
}
