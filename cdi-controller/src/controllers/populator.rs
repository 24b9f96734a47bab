//! PVCs that refer to a VolumeImportSource, a VolumeUploadSource or a forklift populator: a prime PVC is filled for each.

use api::PodPhase;
use std::sync::Arc;

use api::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{forklift, upload, workers};
use crate::engine::cache::key_of;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, scrape};
use controller_core::claim_kind::has_populator_source;
use controller_core::components::populator_of;
use controller_core::forklift::target_uid;
use controller_core::object::ObjectKind;
use controller_core::plan::{Plan, Requeue};
use controller_core::populator::{self as plan, Source};
use controller_core::{classes, meta};

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
    let facts = plan::Facts {
        target: &target,
        source,
        class: class_name.and_then(|name| classes::named(&all, name)),
        prime: prime.as_deref(),
        volume: volume.as_deref(),
        measured: measure(&engine, prime.as_deref()).await,
        config: config.as_deref(),
        installation: &engine.settings.installation,
    };
    let (plan, failure) = match plan::plan(&facts) {
        Ok(plan) => (plan::populator_writes(&facts, plan), None),
        Err(error) => (Plan::default(), Some(Error::Populator(error))),
    };
    let rebound = plan.writes.iter().find(|write| write.kind() == ObjectKind::PersistentVolume);
    if let (Some(_), Some(volume)) = (rebound, &volume) {
        let volume = meta::name(&volume.metadata);
        tracing::info!("rebinding PersistentVolume {volume} to PVC {}", key_of(target.as_ref()));
    }
    let prime = prime.as_deref();
    let requeue = workers::execute_with_warnings(&engine, component, &target, prime, plan).await?;
    failure.map_or(Ok(requeue), Err)
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
