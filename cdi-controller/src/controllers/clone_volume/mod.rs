//! The DataVolume's side of a clone: its source, the right to it, and the claim that is to be filled.

mod size;

use std::sync::Arc;

use api::annotations::{request, state};
use api::labels::finalizer;
use api::v1beta1::{DataVolume, VolumeCloneSource, VolumeCloneSourceSpec};
use api::{events, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::clone_facts::{self as facts, Found};
use super::workers;
use crate::engine::index::Term;
use crate::engine::rights::{self, HeldToken};
use crate::engine::{Context, Error, chain};
use controller_core::clone::{Origin, OriginKind, Strategy};
use controller_core::event::Event;
use controller_core::operation::PopulationMode;
use controller_core::plan::{Plan, Write};
use controller_core::{claim, clone, components, copy, data_source, meta};

/// Why a claim without a populator is copied to.
const NO_POPULATOR: &str = "In tree storage class does not support snapshot/clone";
/// What a refusal begins with.
const NOT_MET: &str = "The clone doesn't meet the validation requirements:";

/// What a DataVolume is cloned from: as it was noted when its claim was made, else as it says now. `None`: a DataSource that
/// stands for nothing.
pub fn origin(
    context: &Context,
    volume: &DataVolume,
    claim: Option<&PersistentVolumeClaim>,
) -> Option<Origin> {
    let noted = claim.and_then(|claim| {
        let source = || {
            let source = facts::clone_source(context, claim)?;
            Origin::referred_to(meta::namespace(&source.metadata), &source.spec.source)
        };
        Origin::copied(&claim.metadata).or_else(source)
    });
    noted.or_else(|| resolved(context, volume))
}

fn resolved(context: &Context, volume: &DataVolume) -> Option<Origin> {
    let Some(reference) = &volume.spec.source_ref else { return Origin::of(volume, None, None) };
    let own = meta::namespace(&volume.metadata);
    let namespace = reference.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
    let all = &context.cluster.stores.data_sources;
    let source = all.get(namespace, &reference.name)?;
    let pointed_to = data_source::pointer(&source).and_then(|name| all.get(namespace, name));
    Origin::of(volume, Some(&source), pointed_to.as_deref())
}

/// Everything that has to be there before the claim: the right to clone, the source, and the object that names it. Returns
/// the claim as it is to be made, or what stands in the way.
pub async fn prepare(
    context: &Context,
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
    if let Some(event) = hold_right(context, volume, origin).await? {
        return Ok(Err(event));
    }
    let Some(found) = facts::find(context, origin) else {
        let message = format!("The source {} doesn't exist", origin.named());
        return Ok(Err(Event::warning(events::CLONE_WITHOUT_SOURCE, message)));
    };
    if let Some(event) = mismatch(volume, &found, &object) {
        return Ok(Err(event));
    }
    if let Err(event) = size::complete(context, volume, &found, &mut object).await? {
        return Ok(Err(event));
    }
    // The strategy that the user asks for. On a DataVolume that has had a claim, it is what was decided for that one.
    let is_first = volume.status.as_ref().is_none_or(|status| status.claim_name.is_none());
    let annotations = object.metadata.annotations.get_or_insert_default();
    let requested = annotations.get(state::CLONE_TYPE).cloned().filter(|_| is_first);
    annotations.retain(|key, _| !clone::NOT_COPIED.contains(&key.as_str()));
    annotations.extend(requested.map(|strategy| (state::CLONE_TYPE.to_owned(), strategy)));
    match population {
        PopulationMode::Populator => {
            annotations.insert(state::DATA_SOURCE_NAMESPACE.into(), origin.namespace.clone());
            if origin.namespace != meta::namespace(&volume.metadata) {
                let held = Write::add_finalizer(volume.as_ref(), finalizer::DATA_VOLUME);
                *volume = workers::write_one(context, Arc::clone(volume), held).await?;
            }
            // The source first: who sees the claim finds what it refers to.
            context.carry_out(Plan::writes([Write::create(source(volume, origin))])).await?;
        }
        PopulationMode::Legacy => {
            // Of a snapshot the storage makes a claim first, beside it.
            let copied = match origin.kind {
                OriginKind::Claim => origin.name.clone(),
                OriginKind::Snapshot => {
                    annotations.insert(state::CLONE_SOURCE_SNAPSHOT.into(), origin.name.clone());
                    names::restored(meta::uid(&volume.metadata))
                }
            };
            let wanted = format!("{}/{copied}", origin.namespace);
            annotations.insert(request::CLONE_REQUEST.into(), wanted);
            annotations.insert(state::CLONE_TYPE.into(), Strategy::Copy.as_str().into());
            annotations.insert(state::CLONE_FALLBACK_REASON.into(), NO_POPULATOR.into());
        }
    }
    Ok(Ok(object))
}

/// What is told of a claim that only pods can fill.
pub fn no_populator() -> Event {
    Event::warning(events::NO_POPULATOR, NO_POPULATOR)
}

/// The right to clone from another namespace, made to last. What the webhook signed is good for some minutes only.
async fn hold_right(
    context: &Context,
    volume: &mut Arc<DataVolume>,
    origin: &Origin,
) -> Result<Option<Event>, Error> {
    if origin.namespace == meta::namespace(&volume.metadata) {
        return Ok(None);
    }
    let held = match rights::check(context, origin, &volume.metadata) {
        Ok(held) => held,
        Err(error @ Error::NoRight { .. }) => {
            let message = format!("{NOT_MET} {}", chain(&error));
            return Ok(Some(Event::warning(events::CLONE_VALIDATION_FAILED, message)));
        }
        Err(error) => return Err(error),
    };
    if held == HeldToken::Short {
        let token = rights::extend(context, origin, &volume.metadata)?;
        let patch =
            json!({ "metadata": { "annotations": { state::EXTENDED_CLONE_TOKEN: token } } });
        let write = Write::patch(volume.as_ref(), patch);
        *volume = workers::write_one(context, Arc::clone(volume), Some(write)).await?;
    }
    Ok(None)
}

/// The claim that was made, and is not complete, gets a token of its own, which no other claim of its name has.
pub async fn hand_on_right(
    context: &Context,
    volume: &DataVolume,
    origin: Option<&Origin>,
    claim: Arc<PersistentVolumeClaim>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let is_near = origin.is_none_or(|origin| origin.namespace == meta::namespace(&volume.metadata));
    let Some(origin) = origin.filter(|_| !is_near) else { return Ok(claim) };
    if meta::has_annotation(&claim.metadata, state::EXTENDED_CLONE_TOKEN) {
        return Ok(claim);
    }
    rights::check(context, origin, &volume.metadata)?;
    let token = rights::extend(context, origin, &claim.metadata)?;
    let patch = json!({ "metadata": { "annotations": { state::EXTENDED_CLONE_TOKEN: token } } });
    let write = Write::patch(claim.as_ref(), patch);
    workers::write_one(context, claim, Some(write)).await
}

/// Why what is there cannot be cloned to what is wanted.
fn mismatch(volume: &DataVolume, found: &Found, object: &PersistentVolumeClaim) -> Option<Event> {
    let Found::Claim(source) = found else { return None };
    let wanted = claim::content_type(volume).as_str();
    let has = copy::content_of(&source.metadata);
    let why = match copy::check(source, object, None) {
        Ok(()) => return None,
        Err(_) if wanted != has => {
            format!("Source contentType ({has}) and target contentType ({wanted}) do not match")
        }
        Err(mismatch) => mismatch.to_string(),
    };
    Some(Event::warning(events::CLONE_VALIDATION_FAILED, format!("{NOT_MET} {why}")))
}

/// What the claim refers to, in the namespace of what is cloned.
fn source(volume: &DataVolume, origin: &Origin) -> VolumeCloneSource {
    let metadata = &volume.metadata;
    let own = meta::namespace(metadata);
    let is_near = origin.namespace == own;
    let owner = meta::owned_by(api::data_volume::API_VERSION, "DataVolume", metadata);
    let elsewhere = || {
        let owner = format!("{own}/{}", meta::name(metadata));
        meta::Pairs::from([(state::OWNED_BY_DATA_VOLUME.to_owned(), owner)])
    };
    VolumeCloneSource {
        metadata: ObjectMeta {
            name: Some(names::clone_source(meta::uid(metadata))),
            namespace: Some(origin.namespace.clone()),
            // Nothing owns across namespaces.
            owner_references: is_near.then(|| vec![owner]),
            annotations: (!is_near).then(elsewhere),
            ..ObjectMeta::default()
        },
        spec: VolumeCloneSourceSpec {
            source: origin.reference(),
            preallocation: volume.spec.preallocation,
            // Pods are in the namespace of the source, where the DataVolume's owner has no say.
            priority_class_name: volume.spec.priority_class_name.clone().filter(|_| is_near),
        },
        status: None,
    }
}

/// The labels of these keys that a clone takes: those of what it is cloned from, and where that has none, those of the
/// DataSource that was named together with its namespace. None of another namespace before the right to clone is verified.
pub fn labelled(
    context: &Context,
    volume: &DataVolume,
    origin: &Origin,
    keys: &[&str],
) -> meta::Pairs {
    let labels = match facts::find(context, origin) {
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
        let all = &context.cluster.stores.data_sources;
        all.get(namespace, &reference.name).filter(|_| may_read)
    });
    let found = source.map_or(own, |source| of_these(source.metadata.labels.clone()));
    match found.is_empty() || is_near || rights::check(context, origin, &volume.metadata).is_ok() {
        true => found,
        false => meta::Pairs::new(),
    }
}

/// Who tells of the DataVolume.
pub fn component(origin: Option<&Origin>) -> &'static str {
    match origin.map(|origin| origin.kind) {
        Some(OriginKind::Snapshot) => components::DATA_VOLUME_SNAPSHOT_CLONE,
        Some(OriginKind::Claim) | None => components::DATA_VOLUME_PVC_CLONE,
    }
}

/// The clone is complete, or nobody wants it any more: what was made beside the claim goes, and then the DataVolume may.
pub async fn leave(context: &Context, volume: Arc<DataVolume>) -> Result<(), Error> {
    let name = names::clone_source(meta::uid(&volume.metadata));
    let sources = context.cluster.stores.clone_sources.find(&Term::Named(name.clone()));
    let deleted = sources.iter().filter_map(|source| Write::delete(source.as_ref()));
    let mut plan = Plan::writes(deleted);
    let released = Write::remove_finalizer(volume.as_ref(), finalizer::DATA_VOLUME);
    // It may have been asked for a moment ago, and not have been told of.
    if released.is_some()
        && volume.metadata.deletion_timestamp.is_some()
        && let Some(origin) = resolved(context, &volume)
    {
        plan.writes.push(Write::delete_named::<VolumeCloneSource>(&origin.namespace, &name));
    }
    plan.writes.extend(released);
    context.carry_out(plan).await.map(drop)
}
