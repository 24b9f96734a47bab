//! Claims that refer to a source of ours: filled out of sight, by a claim beside them.

use api::PodPhase;
use std::sync::Arc;

use api::{events, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{forklift, upload, workers};
use crate::engine::cache::key_of;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, scrape};
use controller_core::claim_kind::has_populator_source;
use controller_core::components::populator_of;
use controller_core::event::Event;
use controller_core::forklift::target_uid;
use controller_core::object::ObjectKind;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::populator::{self as plan, Follow, PopulatorPlan, Source};
use controller_core::refusal::{CauseText, OnRefused, PvcNote, RefusalReport, ReportedFailures};
use controller_core::volume::PersistentVolume;
use controller_core::{bound, classes, meta};

/// Brings one claim one step on.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let caches = &engine.api.caches;
    let Some(target) = caches.claims.get(&key.namespace, &key.name) else {
        engine.pvc_warnings.forget(&key.namespace, &key.name);
        return Ok(Requeue::OnChange);
    };
    if !has_populator_source(&target) {
        return Ok(Requeue::OnChange);
    }
    let prime = caches.claims.get(&key.namespace, &names::prime_pvc(meta::uid(&target.metadata)));
    let component = populator_of(&target);
    let target = workers::hand_on(&engine, component, target, prime.as_deref()).await?;

    let volume = prime.as_ref().and_then(|prime| {
        let name = prime.spec.as_ref()?.volume_name.as_deref()?;
        caches.persistent_volumes.get("", name)
    });
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    let source_name = reference.map(|reference| reference.name.as_str()).unwrap_or_default();
    let import = caches.import_sources.get(&key.namespace, source_name);
    let uploaded = caches.upload_sources.get(&key.namespace, source_name);
    let source = match reference.map(|reference| reference.kind.as_str()) {
        Some("VolumeImportSource") => import.as_ref().map(|source| Source::Import(&source.spec)),
        Some("VolumeUploadSource") => uploaded.as_ref().map(|source| Source::Upload(&source.spec)),
        _ => forklift::order(&engine, &target).map(|_| Source::Forklift),
    };
    let all = engine.classes();
    let class_name = target.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let config = engine.config();
    let plan = plan::plan(&plan::Facts {
        target: &target,
        source,
        class: class_name.and_then(|name| classes::named(&all, name)),
        prime: prime.as_deref(),
        volume: volume.as_deref(),
        measured: measure(&engine, prime.as_deref()).await,
        config: config.as_deref(),
        installation: &engine.settings.installation,
    });
    match plan.map_err(Error::Populator)? {
        PopulatorPlan::Ignore | PopulatorPlan::Wait => Ok(Requeue::OnChange),
        PopulatorPlan::Create { prime, created } => create(&engine, &target, *prime, created).await,
        PopulatorPlan::Follow(follow) => apply(&engine, target, prime, volume, follow).await,
    }
}

async fn measure(engine: &Engine, prime: Option<&PersistentVolumeClaim>) -> Option<f64> {
    let prime = prime?;
    if meta::worker_phase(&prime.metadata) != PodPhase::Running {
        return None;
    }
    if target_uid(&prime.metadata).is_some() {
        return forklift::measure(engine, prime).await;
    }
    match workers::importer_of(engine, prime) {
        Some(importer) => scrape::percentage(&importer, scrape::IMPORT).await,
        None => upload::measure(engine, prime).await,
    }
}

async fn create(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    prime: PersistentVolumeClaim,
    created: Event,
) -> Result<Requeue, Error> {
    let component = populator_of(target);
    let report = RefusalReport {
        which: ReportedFailures::All,
        kind: ObjectKind::PersistentVolumeClaim,
        reason: events::PRIME_FAILED,
        prefix: String::new(),
        cause: CauseText::Message,
        audience: bound::audience(component, target, None),
        // The DataVolume's condition says it too.
        note: Some((key_of(target), PvcNote::NotBound)),
    };
    let mut plan = Plan {
        writes: vec![Write::create(prime)],
        requeue_if_exists: Some(Requeue::Now),
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    plan.record(component, target, [created]);
    let applied = engine.execute(plan).await?;
    // An object that was there has its event already.
    match applied.latest::<PersistentVolumeClaim>() {
        Some(_) => engine.report(applied).await,
        None => Ok(Requeue::OnChange),
    }
}

/// Labels come with the annotations in one write, so that no client sees the one without the other; then the volume.
async fn apply(
    engine: &Engine,
    target: Arc<PersistentVolumeClaim>,
    prime: Option<Arc<PersistentVolumeClaim>>,
    volume: Option<Arc<PersistentVolume>>,
    follow: Follow,
) -> Result<Requeue, Error> {
    let Follow { labels, annotations, rebind, delete_prime, events, look_again } = follow;
    let rebound = rebind.as_ref().zip(volume.as_ref());
    let rebound = rebound.map(|(owner, volume)| Write::rebind(volume, owner));
    if let (true, Some(volume)) = (rebound.is_some(), &volume) {
        let volume = meta::name(&volume.metadata);
        tracing::info!("rebinding PersistentVolume {volume} to PVC {}", key_of(target.as_ref()));
    }
    let noted = Write::metadata(target.as_ref(), &labels, &annotations);
    let deleted = prime.filter(|_| delete_prime).and_then(|prime| Write::delete(prime.as_ref()));
    let mut plan = Plan {
        writes: noted.into_iter().chain(rebound).chain(deleted).collect(),
        requeue: Requeue::after(look_again),
        ..Plan::default()
    };
    plan.record(populator_of(&target), target.as_ref(), events);
    engine.execute_and_report(plan).await
}
