//! Claims that one of forklift's populators fills: a pod for each, and what it tells.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use runtime::MetricsKey;

use super::{POLL, workers};
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, scrape};
use controller_core::components::FORKLIFT as COMPONENT;
use controller_core::forklift::{self as plan, Kind, Order};
use controller_core::import::PodFate;
use controller_core::meta;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::OnRefused;

/// Brings one claim that is filled one step on.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let caches = &engine.api.caches;
    let Some(prime) = caches.claims.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    let Some(uid) = plan::target_uid(&prime.metadata) else { return Ok(Requeue::OnChange) };
    match caches.pods.get(&key.namespace, &plan::pod_name(uid)) {
        // Its end wakes nobody here.
        Some(pod) if !plan::is_of(&pod, &prime) => Ok(Requeue::After(POLL)),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Requeue::OnChange),
        Some(pod) => follow(&engine, prime, &pod).await,
        None if plan::needs_pod(&prime) => begin(&engine, prime).await,
        None => Ok(Requeue::OnChange),
    }
}

async fn begin(engine: &Engine, prime: Arc<PersistentVolumeClaim>) -> Result<Requeue, Error> {
    let Some(target) = workers::filled_for(engine, &prime) else { return Ok(Requeue::OnChange) };
    // Gone since the claim beside was made. Whoever makes it anew wakes this.
    let Some(order) = order(engine, &target) else { return Ok(Requeue::OnChange) };
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "make a key for a worker".into(), source })?;
    let config = engine.config();
    let placement = engine.placement();
    let pod = plan::pod(&plan::Facts {
        prime: &prime,
        target: &target,
        order: &order,
        config: config.as_deref(),
        placement: placement.as_ref(),
        image: &engine.settings.image,
        ovirt_image: &engine.settings.ovirt_populator_image,
        installation: &engine.settings.installation,
        metrics_key: &key.to_text(),
    });
    let name = meta::name(&pod.metadata).to_owned();
    let report = workers::refused_pod(engine, COMPONENT, &prime, &name);
    let plan = Plan {
        writes: vec![Write::create(pod)],
        requeue_if_exists: Some(Requeue::Now),
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    match engine.execute_and_report(plan).await? {
        Requeue::Now => meet(engine, prime, &name).await,
        requeue => Ok(requeue),
    }
}

/// A pod that no watch has told of: it is new, or the reference made it, whose pods have no labels.
async fn meet(
    engine: &Engine,
    prime: Arc<PersistentVolumeClaim>,
    name: &str,
) -> Result<Requeue, Error> {
    let namespace = meta::namespace(&prime.metadata);
    let pod = engine.api.get::<Pod>(namespace, name).await?;
    if let Some(pod) = pod
        && plan::is_of(&pod, &prime)
        && pod.metadata.deletion_timestamp.is_none()
    {
        follow(engine, prime, &pod).await?;
    }
    Ok(Requeue::After(POLL))
}

async fn follow(
    engine: &Engine,
    prime: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Requeue, Error> {
    let plan = plan::plan(&prime, pod);
    let phase = meta::pod_phase(pod);
    if phase.is_waiting() && plan.pod == PodFate::Stays {
        let is_young = workers::rest_of_its_way(engine, pod).is_some_and(|rest| !rest.is_zero());
        if controller_core::import::is_on_its_way(pod, is_young) {
            return workers::mind_start(engine, prime, pod).await;
        }
    }
    let noted = Write::annotations(prime.as_ref(), &plan.annotations);
    let deleted = if plan.pod == PodFate::Goes { Write::delete(pod) } else { None };
    let mut executed = Plan::writes(noted.into_iter().chain(deleted));
    if let Some(target) = workers::filled_for(engine, &prime) {
        executed.record(COMPONENT, target.as_ref(), plan.events);
    }
    engine.execute_and_report(executed).await
}

/// What a claim is to be filled with. `None`: it refers to neither kind, or to something that is not there.
pub fn order(engine: &Engine, target: &PersistentVolumeClaim) -> Option<Order> {
    let caches = &engine.api.caches;
    let namespace = meta::namespace(&target.metadata);
    let name = target.spec.as_ref()?.data_source_ref.as_ref()?.name.as_str();
    match Kind::of(target)? {
        Kind::Ovirt => {
            caches.ovirt_disks.get(namespace, name).map(|source| Order::from(&source.spec))
        }
        Kind::Openstack => {
            caches.openstack_images.get(namespace, name).map(|source| Order::from(&source.spec))
        }
    }
}

/// How far the pod of a claim is that is filled, in percent.
pub async fn measure(engine: &Engine, prime: &PersistentVolumeClaim) -> Option<f64> {
    let kind = Kind::of(workers::filled_for(engine, prime)?.as_ref())?;
    let name = plan::pod_name(plan::target_uid(&prime.metadata)?);
    let pod = engine.api.caches.pods.get(meta::namespace(&prime.metadata), &name)?;
    if plan::is_of(&pod, prime) { scrape::percentage(&pod, kind.metric()).await } else { None }
}
