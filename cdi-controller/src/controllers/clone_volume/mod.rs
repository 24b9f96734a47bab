//! The DataVolume's side of a clone: its source, the right to it, and the claim that is to be filled.

mod size;

use std::sync::Arc;

use api::annotations::state;
use api::labels::finalizer;
use api::v1beta1::{DataVolume, VolumeCloneSource};
use api::{events, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::clone_facts::{self as facts, Found};
use super::workers;
use crate::engine::index::Term;
use crate::engine::rights;
use crate::engine::{Engine, Error, chain};
use controller_core::clone::{self as plan, HeldToken, Origin};
use controller_core::event::Event;
use controller_core::operation::PopulationMode;
use controller_core::plan::{Plan, Write};
use controller_core::{data_source, meta};

/// What a DataVolume is cloned from: as it was noted when its claim was made, else as it says now. `None`: a DataSource that
/// stands for nothing.
pub fn origin(
    engine: &Engine,
    volume: &DataVolume,
    claim: Option<&PersistentVolumeClaim>,
) -> Option<Origin> {
    let noted = claim.and_then(|claim| {
        let source = || {
            let source = facts::clone_source(engine, claim)?;
            Origin::referred_to(meta::namespace(&source.metadata), &source.spec.source)
        };
        Origin::copied(&claim.metadata).or_else(source)
    });
    noted.or_else(|| resolved(engine, volume))
}

fn resolved(engine: &Engine, volume: &DataVolume) -> Option<Origin> {
    let Some(reference) = &volume.spec.source_ref else { return Origin::of(volume, None, None) };
    let own = meta::namespace(&volume.metadata);
    let namespace = reference.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
    let all = &engine.api.caches.data_sources;
    let source = all.get(namespace, &reference.name)?;
    let pointed_to = data_source::pointer(&source).and_then(|name| all.get(namespace, name));
    Origin::of(volume, Some(&source), pointed_to.as_deref())
}

/// Everything that has to be there before the claim: the right to clone, the source, and the object that names it. Returns
/// the claim as it is to be made, or what stands in the way.
pub async fn prepare(
    engine: &Engine,
    volume: &mut Arc<DataVolume>,
    population: PopulationMode,
    origin: Option<&Origin>,
    mut object: PersistentVolumeClaim,
) -> Result<Result<PersistentVolumeClaim, Event>, Error> {
    let Some(origin) = origin else {
        let name = volume.spec.source_ref.as_ref().map(|source| source.name.as_str());
        let name = name.unwrap_or_default();
        let message = format!("The DataSource {name} doesn't exist, or stands for nothing yet");
        return Ok(Err(Event::warning(events::CLONE_WITHOUT_SOURCE, message)));
    };
    if let Some(event) = hold_right(engine, volume, origin).await? {
        return Ok(Err(event));
    }
    let Some(found) = facts::find(engine, origin) else {
        let message = format!("The source {} doesn't exist", origin.named());
        return Ok(Err(Event::warning(events::CLONE_WITHOUT_SOURCE, message)));
    };
    if let Found::Claim(source) = &found
        && let Some(event) = plan::mismatch(volume, source, &object)
    {
        return Ok(Err(event));
    }
    if let Err(event) = size::complete(engine, volume, &found, &mut object).await? {
        return Ok(Err(event));
    }
    plan::annotate(&mut object, volume, origin, population);
    if population == PopulationMode::Populator {
        if origin.namespace != meta::namespace(&volume.metadata) {
            let held = Write::add_finalizer(volume.as_ref(), finalizer::DATA_VOLUME);
            *volume = workers::write_one(engine, Arc::clone(volume), held).await?;
        }
        // The source first: who sees the claim finds what it refers to.
        let source = plan::clone_source(volume, origin);
        engine.execute_and_report(Plan::writes([Write::create(source)])).await?;
    }
    Ok(Ok(object))
}

/// The right to clone from another namespace, made to last. What the webhook signed is good for some minutes only.
async fn hold_right(
    engine: &Engine,
    volume: &mut Arc<DataVolume>,
    origin: &Origin,
) -> Result<Option<Event>, Error> {
    if origin.namespace == meta::namespace(&volume.metadata) {
        return Ok(None);
    }
    let held = match rights::check(engine, origin, &volume.metadata) {
        Ok(held) => held,
        Err(error @ Error::NoRight { .. }) => {
            let message = format!("{} {}", plan::NOT_MET, chain(&error));
            return Ok(Some(Event::warning(events::CLONE_VALIDATION_FAILED, message)));
        }
        Err(error) => return Err(error),
    };
    if held == HeldToken::Short {
        let token = rights::extend(engine, origin, &volume.metadata)?;
        let patch =
            json!({ "metadata": { "annotations": { state::EXTENDED_CLONE_TOKEN: token } } });
        let write = Write::patch(volume.as_ref(), patch);
        *volume = workers::write_one(engine, Arc::clone(volume), Some(write)).await?;
    }
    Ok(None)
}

/// The claim that was made, and is not complete, gets a token of its own, which no other claim of its name has.
pub async fn hand_on_right(
    engine: &Engine,
    volume: &DataVolume,
    origin: Option<&Origin>,
    claim: Arc<PersistentVolumeClaim>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let is_near = origin.is_none_or(|origin| origin.namespace == meta::namespace(&volume.metadata));
    let Some(origin) = origin.filter(|_| !is_near) else { return Ok(claim) };
    if meta::has_annotation(&claim.metadata, state::EXTENDED_CLONE_TOKEN) {
        return Ok(claim);
    }
    rights::check(engine, origin, &volume.metadata)?;
    let token = rights::extend(engine, origin, &claim.metadata)?;
    let patch = json!({ "metadata": { "annotations": { state::EXTENDED_CLONE_TOKEN: token } } });
    let write = Write::patch(claim.as_ref(), patch);
    workers::write_one(engine, claim, Some(write)).await
}

/// The labels of these keys that a clone takes: those of what it is cloned from, and where that has none, those of the
/// DataSource that was named together with its namespace. None of another namespace before the right to clone is verified.
pub fn labelled(
    engine: &Engine,
    volume: &DataVolume,
    origin: &Origin,
    keys: &[&str],
) -> meta::Pairs {
    let labels = match facts::find(engine, origin) {
        Some(Found::Claim(claim)) => claim.metadata.labels.clone(),
        Some(Found::Snapshot(snapshot)) => snapshot.metadata.labels.clone(),
        // Its own may come with it.
        None => return meta::Pairs::new(),
    };
    let of_these = |labels: Option<meta::Pairs>| {
        let mut labels = labels.unwrap_or_default();
        labels.retain(|key, _| keys.contains(&key.as_str()));
        labels
    };
    let own = of_these(labels);
    let target_namespace = meta::namespace(&volume.metadata);
    let is_near = origin.namespace == target_namespace;
    let named = volume.spec.source_ref.as_ref().filter(|_| own.is_empty());
    let source = named.and_then(|reference| {
        let namespace = reference.namespace.as_deref().filter(|name| !name.is_empty())?;
        // The right to clone says nothing about a DataSource elsewhere that refers to a source in the own namespace.
        let may_read = !is_near || namespace == target_namespace;
        let all = &engine.api.caches.data_sources;
        all.get(namespace, &reference.name).filter(|_| may_read)
    });
    let found = source.map_or(own, |source| of_these(source.metadata.labels.clone()));
    if found.is_empty() || is_near || rights::check(engine, origin, &volume.metadata).is_ok() {
        found
    } else {
        meta::Pairs::new()
    }
}

/// The clone is complete, or nobody wants it any more: what was made beside the claim goes, and then the DataVolume may.
pub async fn leave(engine: &Engine, volume: Arc<DataVolume>) -> Result<(), Error> {
    let name = names::clone_source(meta::uid(&volume.metadata));
    let sources = engine.api.caches.clone_sources.find(&Term::Named(name.clone()));
    let deleted = sources.iter().filter_map(|source| Write::delete(source.as_ref()));
    let mut plan = Plan::writes(deleted);
    let released = Write::remove_finalizer(volume.as_ref(), finalizer::DATA_VOLUME);
    // It may have been asked for a moment ago, and not have been told of.
    if released.is_some()
        && volume.metadata.deletion_timestamp.is_some()
        && let Some(origin) = resolved(engine, &volume)
    {
        plan.writes.push(Write::delete_named::<VolumeCloneSource>(&origin.namespace, &name));
    }
    plan.writes.extend(released);
    engine.execute_and_report(plan).await.map(drop)
}
