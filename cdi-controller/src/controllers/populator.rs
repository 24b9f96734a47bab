//! Claims that refer to a source of ours: filled out of sight, by a claim beside them.

use std::sync::Arc;

use api::annotations::state;
use api::{events, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::{forklift, upload, workers};
use crate::engine::api_client::Made;
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error, scrape};
use controller_core::claim_kind::has_populator_source;
use controller_core::event::Event;
use controller_core::forklift::target_uid;
use controller_core::populator::{self as plan, Follow, Plan, Source};
use controller_core::volume::PersistentVolume;
use controller_core::{bound, classes, meta};

/// As events name it. Imports and uploads are one controller here, under two names.
pub const IMPORT: &str = "import-populator";
pub const UPLOAD: &str = "upload-populator";

/// Who tells of a claim that refers to a source.
pub fn component(target: &PersistentVolumeClaim) -> &'static str {
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    match reference.map(|reference| reference.kind.as_str()) {
        Some("VolumeUploadSource") => UPLOAD,
        Some("OvirtVolumePopulator" | "OpenstackVolumePopulator") => forklift::COMPONENT,
        _ => IMPORT,
    }
}

/// Brings one claim one step on.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let stores = &context.cluster.stores;
    let Some(target) = stores.claims.get(&key.namespace, &key.name) else {
        context.complaints.forget(&key.namespace, &key.name);
        return Ok(Next::Wait);
    };
    if !has_populator_source(&target) {
        return Ok(Next::Wait);
    }
    let prime = stores.claims.get(&key.namespace, &names::prime(meta::uid(&target.metadata)));
    let component = component(&target);
    let target = workers::hand_on(&context, component, target, prime.as_deref()).await?;

    let volume = prime.as_ref().and_then(|prime| {
        let name = prime.spec.as_ref()?.volume_name.as_deref()?;
        stores.persistent_volumes.get("", name)
    });
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    let source_name = reference.map(|reference| reference.name.as_str()).unwrap_or_default();
    let import = stores.import_sources.get(&key.namespace, source_name);
    let uploaded = stores.upload_sources.get(&key.namespace, source_name);
    let source = match reference.map(|reference| reference.kind.as_str()) {
        Some("VolumeImportSource") => import.as_ref().map(|source| Source::Import(&source.spec)),
        Some("VolumeUploadSource") => uploaded.as_ref().map(|source| Source::Upload(&source.spec)),
        _ => forklift::order(&context, &target).map(|_| Source::Forklift),
    };
    let all = context.classes();
    let class_name = target.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let config = context.config();
    let plan = plan::plan(&plan::Facts {
        target: &target,
        source,
        class: class_name.and_then(|name| classes::named(&all, name)),
        prime: prime.as_deref(),
        volume: volume.as_deref(),
        measured: measure(&context, prime.as_deref()).await,
        config: config.as_deref(),
        installation: &context.settings.installation,
    });
    match plan.map_err(Error::Populator)? {
        Plan::Ignore | Plan::Wait => Ok(Next::Wait),
        Plan::Create { prime, created } => create(&context, &target, &prime, created).await,
        Plan::Follow(follow) => apply(&context, target, prime, volume, follow).await,
    }
}

async fn measure(context: &Context, prime: Option<&PersistentVolumeClaim>) -> Option<f64> {
    let prime = prime?;
    if meta::annotation(&prime.metadata, state::POD_PHASE) != Some("Running") {
        return None;
    }
    if target_uid(&prime.metadata).is_some() {
        return forklift::measure(context, prime).await;
    }
    match workers::importer_of(context, prime) {
        Some(importer) => scrape::percentage(&importer, scrape::IMPORT).await,
        None => upload::measure(context, prime).await,
    }
}

async fn create(
    context: &Context,
    target: &PersistentVolumeClaim,
    prime: &PersistentVolumeClaim,
    created: Event,
) -> Result<Next, Error> {
    match context.cluster.create(prime).await {
        Ok(Made::New(_)) => {
            context.recorder.tell(component(target), target, &[created]).await;
            Ok(Next::Wait)
        }
        Ok(Made::Present) => Ok(Next::Wait),
        Err(error) => {
            let words = match error.refusal() {
                Some(status) => status.message.clone(),
                None => crate::engine::chain(&error),
            };
            let event = match error.quota() {
                Some(_) => Event::warning(events::EXCEEDED_QUOTA, words),
                None => Event::warning(events::PRIME_FAILED, words),
            };
            // The DataVolume's condition says it too.
            let seen = bound::Seen { event: event.clone(), at: Some(context.now()) };
            let (namespace, name) =
                (meta::namespace(&target.metadata), meta::name(&target.metadata));
            context.complaints.note(Key::new(namespace, name), seen);
            context.recorder.tell(component(target), target, &[event]).await;
            workers::note_complaints(context, Arc::new(target.clone())).await?;
            Err(error)
        }
    }
}

/// Labels come with the annotations in one write, so that nobody sees the one without the other; then the volume.
async fn apply(
    context: &Context,
    target: Arc<PersistentVolumeClaim>,
    prime: Option<Arc<PersistentVolumeClaim>>,
    volume: Option<Arc<PersistentVolume>>,
    follow: Follow,
) -> Result<Next, Error> {
    let Follow { labels, annotations, rebind, delete_prime, events, look_again } = follow;
    let target = workers::note(context, target, &labels, &annotations).await?;
    context.recorder.tell(component(&target), target.as_ref(), &events).await;
    if let (Some(owner), Some(volume)) = (rebind, volume) {
        // Only if it is still the volume that was looked at.
        let patch = json!({
            "metadata": { "resourceVersion": volume.metadata.resource_version },
            "spec": { "claimRef": owner },
        });
        context.cluster.patch(volume.as_ref(), &patch).await?;
        tracing::info!(
            "the volume {} goes to the claim {}",
            meta::name(&volume.metadata),
            crate::engine::cache::key_of(target.as_ref())
        );
    }
    if let Some(prime) = prime.filter(|_| delete_prime) {
        context.cluster.delete(prime.as_ref()).await?;
    }
    Ok(look_again.map_or(Next::Wait, Next::After))
}
