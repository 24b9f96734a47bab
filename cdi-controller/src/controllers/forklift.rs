//! PVCs that one of forklift's populators fills: a pod for each, and its status.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use runtime::MetricsKey;

use super::{POLL, workers};
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, scrape};
use controller_core::components::FORKLIFT as COMPONENT;
use controller_core::forklift::{self as plan, Kind, PopulatorSpec};
use controller_core::import::PodAction;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::OnRefused;
use controller_core::{meta, worker};

pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let caches = &engine.api.caches;
    let Some(prime) = caches.claims.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    let Some(uid) = plan::target_uid(&prime.metadata) else { return Ok(Requeue::OnChange) };
    match caches.pods.get(&key.namespace, &plan::pod_name(uid)) {
        // Its deletion does not wake this queue.
        Some(pod) if !plan::is_of(&pod, &prime) => Ok(Requeue::After(POLL)),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Requeue::OnChange),
        Some(pod) => follow(&engine, &prime, &pod).await,
        None if plan::needs_pod(&prime) => create_pod(&engine, &prime).await,
        None => Ok(Requeue::OnChange),
    }
}

async fn create_pod(engine: &Engine, prime: &PersistentVolumeClaim) -> Result<Requeue, Error> {
    let Some(target) = workers::filled_for(engine, prime) else { return Ok(Requeue::OnChange) };
    // It was deleted after the prime PVC was created. A watch reports when it is created again.
    let Some(order) = order(engine, &target) else { return Ok(Requeue::OnChange) };
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "make a key for a worker".into(), source })?;
    let config = engine.config();
    let placement = engine.placement();
    let pod = plan::pod(&plan::Facts {
        prime,
        target: &target,
        spec: &order,
        config: config.as_deref(),
        placement: placement.as_ref(),
        image: &engine.settings.image,
        ovirt_image: &engine.settings.ovirt_populator_image,
        installation: &engine.settings.installation,
        metrics_key: &key.to_text(),
    });
    let name = meta::name(&pod.metadata).to_owned();
    let report = workers::refused_pod(engine, COMPONENT, prime, &name);
    let plan = Plan {
        writes: vec![Write::create(pod)],
        requeue_if_exists: Some(Requeue::Now),
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    match engine.execute_and_report(plan).await? {
        Requeue::Now => follow_unlabelled(engine, prime, &name).await,
        requeue => Ok(requeue),
    }
}

/// A pod that no watch reports: it is new, or upstream CDI created it, whose pods have no labels.
async fn follow_unlabelled(
    engine: &Engine,
    prime: &PersistentVolumeClaim,
    name: &str,
) -> Result<Requeue, Error> {
    let namespace = meta::namespace(&prime.metadata);
    let pod = engine.api.get::<Pod>(namespace, name).await?;
    if let Some(pod) = pod
        && plan::is_of(&pod, prime)
        && pod.metadata.deletion_timestamp.is_none()
    {
        follow(engine, prime, &pod).await?;
    }
    Ok(Requeue::After(POLL))
}

async fn follow(
    engine: &Engine,
    prime: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<Requeue, Error> {
    let report = plan::plan(prime, pod);
    let is_starting = meta::pod_phase(pod).is_waiting()
        && report.pod == PodAction::Keep
        && controller_core::import::is_starting(pod, worker::is_young(pod, engine.now()));
    let plan = if is_starting {
        workers::plan_delayed_start(engine, prime, pod).await?
    } else {
        let target = workers::filled_for(engine, prime);
        plan::plan_report(prime, target.as_deref(), pod, report)
    };
    engine.execute_and_report(plan).await
}

/// What a PVC is to be filled with. `None`: it refers to neither kind, or to an object that does not exist.
pub fn order(engine: &Engine, target: &PersistentVolumeClaim) -> Option<PopulatorSpec> {
    let caches = &engine.api.caches;
    let namespace = meta::namespace(&target.metadata);
    let name = target.spec.as_ref()?.data_source_ref.as_ref()?.name.as_str();
    match Kind::from_claim(target)? {
        Kind::Ovirt => {
            caches.ovirt_disks.get(namespace, name).map(|source| PopulatorSpec::from(&source.spec))
        }
        Kind::Openstack => caches
            .openstack_images
            .get(namespace, name)
            .map(|source| PopulatorSpec::from(&source.spec)),
    }
}

/// The progress of the pod that fills a prime PVC, in percent.
pub async fn measure(engine: &Engine, prime: &PersistentVolumeClaim) -> Option<f64> {
    let kind = Kind::from_claim(workers::filled_for(engine, prime)?.as_ref())?;
    let name = plan::pod_name(plan::target_uid(&prime.metadata)?);
    let pod = engine.api.caches.pods.get(meta::namespace(&prime.metadata), &name)?;
    if plan::is_of(&pod, prime) { scrape::percentage(&pod, kind.metric()).await } else { None }
}
