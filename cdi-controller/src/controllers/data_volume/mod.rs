//! DataVolumes: a claim for each, and what is known of it.

mod pvc;
mod report;
mod static_volume;

use api::PodPhase;
use std::sync::Arc;

use api::Phase;
use api::annotations::request;
use api::v1beta1::{CdiConfigSpec, DataVolume};
use api::{labels, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;

use super::{clone_volume, finished, restored, volume_source, workers};
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, scrape};
use controller_core::clone::{self, Origin};
use controller_core::data_volume::{self as plan, Fate, Obstacle, StaticVolume};
use controller_core::object::ObjectRef;
use controller_core::operation::{Operation, PopulationMode, population_mode};
use controller_core::ownership::{self, Ownership};
use controller_core::plan::{Plan, Requeue, StatusPatch, Write};
use controller_core::populator::{SourceObject, source_object};
use controller_core::volume::PersistentVolume;
use controller_core::{claim, classes, components, meta, object_transfer};

use pvc::{driver_names, render, settle_claim};
use report::{measure, note_on_volume, report};
use static_volume::static_volume;

/// Everything about one DataVolume that was looked up.
struct Seen {
    volume: Arc<DataVolume>,
    operation: Operation,
    population: PopulationMode,
    origin: Option<Origin>,
    claim: Option<Arc<PersistentVolumeClaim>>,
    prime: Option<Arc<PersistentVolumeClaim>>,
    classes: Arc<Vec<StorageClass>>,
    config: CdiConfigSpec,
    measured: Option<f64>,
}

/// What came of the claim.
enum Outcome {
    /// It is there, or is not to be made.
    Settled,
    /// A volume that somebody made by hand has to be bound first.
    WaitsForStaticVolume,
    /// Something stands in the way, and what follows from that.
    Blocked(Box<Obstacle>, Result<Requeue, Error>),
}

/// Brings one DataVolume one step on.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let Some(volume) = engine.api.caches.volumes.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    let operation = Operation::of(&volume.spec);
    // What it owns goes with it, and only clones have something in other namespaces.
    if volume.metadata.deletion_timestamp.is_some() {
        if operation == Operation::Clone {
            clone_volume::leave(&engine, volume).await?;
        }
        return Ok(Requeue::OnChange);
    }
    if operation == Operation::Undecided || is_being_moved(&engine, &volume) {
        return Ok(Requeue::OnChange);
    }
    let mut seen = observe(&engine, volume, operation)?;
    let ttl_seconds = seen.config.data_volume_ttl_seconds;
    let fate = plan::fate(&seen.volume, seen.claim.as_deref(), ttl_seconds, engine.now());
    if fate == Fate::Goes {
        return finished::let_go(&engine, component(&seen), &seen.volume, seen.claim).await;
    }
    if seen.operation == Operation::Clone {
        // Labels of the source come before the claim, which takes them along.
        note_on_volume(&engine, &mut seen).await?;
    }
    let outcome = settle_claim(&engine, &mut seen).await?;
    note_on_volume(&engine, &mut seen).await?;
    let (obstacle, is_static, mut next) = match outcome {
        Outcome::Settled => (None, false, Ok(Requeue::OnChange)),
        Outcome::WaitsForStaticVolume => (None, true, Ok(Requeue::OnChange)),
        Outcome::Blocked(obstacle, next) => (Some(obstacle), false, next),
    };
    if obstacle.is_none()
        && seen.operation == Operation::Clone
        && seen.population == PopulationMode::Legacy
    {
        next = restored::keep(&engine, &seen.volume, &mut seen.claim).await;
    }
    if seen.population == PopulationMode::Legacy {
        seen.measured = measure(&engine, &seen).await;
    }
    let phase = report(&engine, &seen, obstacle.as_deref(), is_static).await?;
    if phase == Phase::Succeeded {
        volume_source::drop_source(&engine, &seen.volume, seen.claim.as_deref()).await?;
    }
    if seen.operation == Operation::Clone && phase == Phase::Succeeded {
        restored::let_go(&engine, &seen.volume, seen.origin.as_ref());
        let latest = engine.api.caches.volumes.get(&key.namespace, &key.name);
        clone_volume::leave(&engine, latest.unwrap_or_else(|| Arc::clone(&seen.volume))).await?;
    }
    let next = match next {
        Ok(Requeue::OnChange) if seen.population == PopulationMode::Legacy => {
            Ok(plan::progress_poll(&seen.volume, seen.measured, phase))
        }
        next => next,
    };
    match (next, fate) {
        (Ok(Requeue::OnChange), Fate::StaysFor(rest)) => Ok(Requeue::After(rest)),
        (next, _) => next,
    }
}

/// Whether a transfer has it, which is going to make it anew elsewhere.
fn is_being_moved(engine: &Engine, volume: &DataVolume) -> bool {
    let Some(name) = object_transfer::reserved_by(&volume.metadata) else { return false };
    let transfers = &engine.api.caches.transfers;
    if transfers.is_undecodable("", name) {
        return true; // it may still be going on
    }
    transfers.get("", name).is_some_and(|transfer| !object_transfer::is_over(&transfer))
}

fn observe(engine: &Engine, volume: Arc<DataVolume>, operation: Operation) -> Result<Seen, Error> {
    let caches = &engine.api.caches;
    let classes = engine.classes();
    let population =
        population_mode(&volume, &classes, &driver_names(engine)).map_err(Error::PopulationMode)?;
    let namespace = meta::namespace(&volume.metadata);
    let claim = caches.claims.get(namespace, meta::name(&volume.metadata));
    let prime = claim.as_ref().and_then(|claim| {
        caches.claims.get(namespace, &names::prime_pvc(meta::uid(&claim.metadata)))
    });
    let config = engine.config_spec();
    let origin = match operation {
        Operation::Clone => clone_volume::origin(engine, &volume, claim.as_deref()),
        _ => None,
    };
    Ok(Seen {
        volume,
        operation,
        population,
        origin,
        claim,
        prime,
        classes,
        config,
        measured: None,
    })
}

fn facts<'a>(
    seen: &'a Seen,
    class: Option<&'a StorageClass>,
    obstacle: Option<&'a Obstacle>,
    waits_for_static_volume: bool,
) -> plan::Facts<'a> {
    plan::Facts {
        volume: &seen.volume,
        operation: &seen.operation,
        population: seen.population,
        claim: seen.claim.as_deref(),
        prime: seen.prime.as_deref(),
        origin: seen.origin.as_ref(),
        class,
        config: &seen.config,
        waits_for_static_volume,
        measured: seen.measured,
        obstacle,
    }
}

/// Who tells of it.
fn component(seen: &Seen) -> &'static str {
    match seen.operation {
        Operation::Upload => components::DATA_VOLUME_UPLOAD,
        Operation::External => components::DATA_VOLUME_EXTERNAL,
        Operation::Clone => clone::component(seen.origin.as_ref()),
        Operation::Import(_) | Operation::Undecided => components::DATA_VOLUME_IMPORT,
    }
}
