//! Facts about a DataVolume that are looked up only if the plan needs them.

use std::sync::Arc;

use crate::controllers::{clone, clone_facts, restored, upload, workers};
use crate::engine::{Engine, Error, chain, rights, scrape};
use controller_core::clone::{HeldToken, Origin};
use controller_core::data_volume::{
    CloneNotAllowed, DataVolumeFacts, Lookup, PvcSettings, is_reserved_for,
};
use controller_core::operation::Operation;
use controller_core::volume::PersistentVolume;
use controller_core::{classes, meta};

/// Adds one fact.
///
/// # Errors
/// A request that failed, or a key that cannot be read.
pub(super) async fn look_up(
    engine: &Engine,
    facts: &mut DataVolumeFacts,
    lookup: Lookup,
) -> Result<(), Error> {
    match lookup {
        Lookup::ReservedVolumes => {
            facts.lookups.reserved_volumes = Some(reserved_volumes(engine, facts).await?);
        }
        Lookup::PvcSettings => facts.lookups.pvc_settings = Some(pvc_settings(engine, facts)),
        Lookup::SnapshotContent(snapshot) => {
            let content = clone_facts::content_of(engine, &snapshot).await?;
            facts.lookups.snapshot_content = Some(content);
        }
        Lookup::ClonePermission(origin) => {
            facts.lookups.clone_permission = Some(clone_permission(engine, &origin, facts)?);
        }
        Lookup::ExtendedToken { origin, target } => {
            facts.lookups.extended_token = Some(rights::extend(engine, &origin, &target)?);
        }
        Lookup::RestoredSource(origin) => {
            let uid = meta::uid(&facts.volume.metadata);
            let found = restored::look_up_restored(engine, &origin, uid).await?;
            facts.lookups.restored_source = Some(found);
        }
        Lookup::RestoredMark(origin) => {
            let uid = meta::uid(&facts.volume.metadata);
            facts.lookups.restored_mark = Some(restored::mark(engine, &origin, uid)?);
        }
        Lookup::Progress => facts.lookups.progress = Some(progress(engine, facts).await),
    }
    Ok(())
}

async fn reserved_volumes(
    engine: &Engine,
    facts: &DataVolumeFacts,
) -> Result<Vec<Arc<PersistentVolume>>, Error> {
    let is_reserved = |volume: &PersistentVolume| is_reserved_for(volume, &facts.volume.metadata);
    let known = engine.api.caches.persistent_volumes.filter(is_reserved);
    if !known.is_empty() {
        return Ok(known);
    }
    let all = engine.api.list::<PersistentVolume>("", "").await?;
    Ok(all.into_iter().filter(is_reserved).map(Arc::new).collect())
}

fn pvc_settings(engine: &Engine, facts: &DataVolumeFacts) -> PvcSettings {
    let caches = &engine.api.caches;
    let storage = facts.volume.spec.storage.as_ref();
    let named = storage.and_then(|storage| storage.storage_class_name.as_deref());
    let missing = named.filter(|name| classes::named(&facts.classes, name).is_none());
    let volumes = missing.map(|name| {
        let of_class = |volume: &PersistentVolume| volume.class_name() == name;
        caches.persistent_volumes.filter(of_class)
    });
    PvcSettings {
        config: engine.config(),
        profiles: caches.profiles.list(),
        volumes: volumes.into_iter().flatten().map(|volume| volume.as_ref().clone()).collect(),
        installation: engine.settings.installation.clone(),
    }
}

/// The inner error: the tokens of the DataVolume do not allow the clone.
fn clone_permission(
    engine: &Engine,
    origin: &Origin,
    facts: &DataVolumeFacts,
) -> Result<Result<HeldToken, CloneNotAllowed>, Error> {
    let error = match rights::check(engine, origin, &facts.volume.metadata) {
        Ok(held) => return Ok(Ok(held)),
        Err(error) => error,
    };
    let message = chain(&error);
    match error {
        Error::NoRight { origin, target, source } => {
            Ok(Err(CloneNotAllowed { origin, target, source, message }))
        }
        error => Err(error),
    }
}

/// The progress of the worker that fills the PVC itself, in percent.
async fn progress(engine: &Engine, facts: &DataVolumeFacts) -> Option<f64> {
    let claim = facts.claim.as_ref()?;
    match facts.operation {
        Operation::Clone => clone::measure(engine, claim).await,
        Operation::Upload => upload::measure(engine, claim).await,
        Operation::Import(_) | Operation::External | Operation::Undecided => {
            let pod = workers::importer_of(engine, claim)?;
            scrape::percentage(pod.as_ref(), scrape::IMPORT).await
        }
    }
}
