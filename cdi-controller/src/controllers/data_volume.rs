//! DataVolumes: a claim for each, and what is known of it.

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
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error, scrape};
use controller_core::clone::{self, Origin};
use controller_core::data_volume::{self as plan, Fate, Obstacle, StaticVolume};
use controller_core::object::ObjectRef;
use controller_core::operation::{Operation, PopulationMode, population_mode};
use controller_core::ownership::{self, Ownership};
use controller_core::plan::{Plan, StatusPatch, Write};
use controller_core::populator::{SourceObject, source_object};
use controller_core::volume::PersistentVolume;
use controller_core::{claim, classes, components, meta, object_transfer};

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
    Blocked(Box<Obstacle>, Result<Next, Error>),
}

/// Brings one DataVolume one step on.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(volume) = context.cluster.stores.volumes.get(&key.namespace, &key.name) else {
        return Ok(Next::Wait);
    };
    let operation = Operation::of(&volume.spec);
    // What it owns goes with it, and only clones have something in other namespaces.
    if volume.metadata.deletion_timestamp.is_some() {
        if operation == Operation::Clone {
            clone_volume::leave(&context, volume).await?;
        }
        return Ok(Next::Wait);
    }
    if operation == Operation::Undecided || is_being_moved(&context, &volume) {
        return Ok(Next::Wait);
    }
    let mut seen = observe(&context, volume, operation)?;
    let ttl_seconds = seen.config.data_volume_ttl_seconds;
    let fate = plan::fate(&seen.volume, seen.claim.as_deref(), ttl_seconds, context.now());
    if fate == Fate::Goes {
        return finished::let_go(&context, component(&seen), &seen.volume, seen.claim).await;
    }
    if seen.operation == Operation::Clone {
        // Labels of the source come before the claim, which takes them along.
        note_on_volume(&context, &mut seen).await?;
    }
    let outcome = settle_claim(&context, &mut seen).await?;
    note_on_volume(&context, &mut seen).await?;
    let (obstacle, is_static, mut next) = match outcome {
        Outcome::Settled => (None, false, Ok(Next::Wait)),
        Outcome::WaitsForStaticVolume => (None, true, Ok(Next::Wait)),
        Outcome::Blocked(obstacle, next) => (Some(obstacle), false, next),
    };
    if obstacle.is_none()
        && seen.operation == Operation::Clone
        && seen.population == PopulationMode::Legacy
    {
        next = restored::keep(&context, &seen.volume, &mut seen.claim).await;
    }
    if seen.population == PopulationMode::Legacy {
        seen.measured = measure(&context, &seen).await;
    }
    let phase = report(&context, &seen, obstacle.as_deref(), is_static).await?;
    if phase == Phase::Succeeded {
        volume_source::drop_source(&context, &seen.volume, seen.claim.as_deref()).await?;
    }
    if seen.operation == Operation::Clone && phase == Phase::Succeeded {
        restored::let_go(&context, &seen.volume, seen.origin.as_ref());
        let latest = context.cluster.stores.volumes.get(&key.namespace, &key.name);
        clone_volume::leave(&context, latest.unwrap_or_else(|| Arc::clone(&seen.volume))).await?;
    }
    let next = match next {
        Ok(Next::Wait) if seen.population == PopulationMode::Legacy => {
            Ok(plan::progress_poll(&seen.volume, seen.measured, phase).into())
        }
        next => next,
    };
    match (next, fate) {
        (Ok(Next::Wait), Fate::StaysFor(rest)) => Ok(Next::After(rest)),
        (next, _) => next,
    }
}

/// Whether a transfer has it, which is going to make it anew elsewhere.
fn is_being_moved(context: &Context, volume: &DataVolume) -> bool {
    let Some(name) = object_transfer::reserved_by(&volume.metadata) else { return false };
    let transfers = &context.cluster.stores.transfers;
    if transfers.is_undecodable("", name) {
        return true; // it may still be going on
    }
    transfers.get("", name).is_some_and(|transfer| !object_transfer::is_over(&transfer))
}

fn observe(
    context: &Context,
    volume: Arc<DataVolume>,
    operation: Operation,
) -> Result<Seen, Error> {
    let stores = &context.cluster.stores;
    let classes = context.classes();
    let population = population_mode(&volume, &classes, &driver_names(context))
        .map_err(Error::PopulationMode)?;
    let namespace = meta::namespace(&volume.metadata);
    let claim = stores.claims.get(namespace, meta::name(&volume.metadata));
    let prime = claim
        .as_ref()
        .and_then(|claim| stores.claims.get(namespace, &names::prime(meta::uid(&claim.metadata))));
    let config = context.config_spec();
    let origin = match operation {
        Operation::Clone => clone_volume::origin(context, &volume, claim.as_deref()),
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

/// The claim of its name: made, taken over, or left alone.
async fn settle_claim(context: &Context, seen: &mut Seen) -> Result<Outcome, Error> {
    if let Some(outcome) = static_volume(context, seen).await? {
        return Ok(outcome);
    }
    let Some(mut claim) = seen.claim.clone() else {
        if meta::has_annotation(&seen.volume.metadata, request::PRE_POPULATED) {
            return Ok(Outcome::Settled);
        }
        return make_claim(context, seen).await;
    };
    match ownership::of(&seen.volume, &claim, &seen.config) {
        Ownership::Ours => {}
        Ownership::Adopt => {
            let owner =
                meta::owned_by(api::data_volume::API_VERSION, "DataVolume", &seen.volume.metadata);
            let mut owners = claim.metadata.owner_references.clone().unwrap_or_default();
            owners.push(owner);
            // The list is replaced as a whole, so nobody else may have written to it meanwhile.
            let patch = json!({ "metadata": { "ownerReferences": owners } });
            let adopted = Write::guarded_patch(claim.as_ref(), patch);
            claim = workers::write_one(context, claim, Some(adopted)).await?;
            seen.claim = Some(Arc::clone(&claim));
        }
        // The claim has to change, and a watch tells when it does.
        Ownership::Refused(event) => {
            return Ok(Outcome::Blocked(Box::new(Obstacle::foreign_claim(event)), Ok(Next::Wait)));
        }
    }
    // Claims that a populator fills have a controller that minds more.
    if seen.population == PopulationMode::Legacy || seen.operation == Operation::External {
        seen.claim = Some(workers::note_complaints(context, claim).await?);
    }
    volume_source::keep_stages(context, &seen.volume, seen.population, &seen.operation).await?;
    if seen.operation == Operation::Clone
        && let Some(claim) = seen.claim.take()
    {
        let way = (&seen.operation, seen.population);
        // One that was moved here with its content, restored or adopted, needs no permission to read what it was once
        // cloned from, which may be gone.
        seen.claim = Some(match ownership::is_complete(&seen.volume, &claim, way, &seen.config) {
            true => claim,
            false => {
                let origin = seen.origin.as_ref();
                clone_volume::hand_on_right(context, &seen.volume, origin, claim).await?
            }
        });
    }
    carry_over_populated_for(context, seen).await?;
    let Some(obstacle) = external_obstacle(context, seen) else { return Ok(Outcome::Settled) };
    // It changes nothing in the status, which would else be the reason to tell.
    let mut plan = Plan::default();
    let event = || [obstacle.event.clone()];
    plan.record(components::DATA_VOLUME_EXTERNAL, seen.volume.as_ref(), event());
    if let Some(claim) = &seen.claim {
        plan.record(components::DATA_VOLUME_EXTERNAL, claim.as_ref(), event());
    }
    context.carry_out(plan).await?;
    Ok(Outcome::Blocked(Box::new(obstacle), Ok(Next::Wait)))
}

fn external_obstacle(context: &Context, seen: &Seen) -> Option<Obstacle> {
    if seen.operation != Operation::External {
        return None;
    }
    let claim = seen.claim.as_ref()?;
    let way = (&seen.operation, seen.population);
    if ownership::is_complete(&seen.volume, claim, way, &seen.config) {
        return None; // nothing has to fill it
    }
    let class_name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class = classes::of_claim(&seen.classes, class_name);
    let spec = &seen.volume.spec;
    let pvc = spec.pvc.as_ref();
    let storage = spec.storage.as_ref();
    let asked_kind = pvc
        .and_then(|pvc| pvc.data_source_ref.as_ref())
        .or(storage.and_then(|storage| storage.data_source_ref.as_ref()))
        .map(|reference| reference.kind.as_str());
    plan::external_obstacle(claim, asked_kind, class, &driver_names(context))
}

fn driver_names(context: &Context) -> Vec<String> {
    let drivers = context.cluster.stores.drivers.list();
    drivers.iter().map(|driver| meta::name(&driver.metadata).to_owned()).collect()
}

async fn make_claim(context: &Context, seen: &mut Seen) -> Result<Outcome, Error> {
    let object = match render(context, seen) {
        Ok(object) => object,
        Err(error) => {
            let next = if error.waits_for_storage() {
                Ok(Next::Wait)
            } else {
                Err(Error::Claim(error.clone()))
            };
            return Ok(Outcome::Blocked(Box::new(Obstacle::invalid(&error)), next));
        }
    };
    let object = match seen.operation {
        Operation::Clone => {
            let origin = seen.origin.as_ref();
            let volume = &mut seen.volume;
            match clone_volume::prepare(context, volume, seen.population, origin, object).await? {
                Ok(object) => object,
                Err(event) => {
                    let obstacle = Box::new(Obstacle::of_source(event));
                    return Ok(Outcome::Blocked(obstacle, Ok(Next::Wait)));
                }
            }
        }
        _ => object,
    };
    // The source first: who sees the claim finds what it refers to.
    if seen.population == PopulationMode::Populator {
        let source = source_object(&seen.volume, &seen.operation).map(|source| match source {
            SourceObject::Import(source) => Write::create(*source),
            SourceObject::Upload(source) => Write::create(*source),
        });
        context.carry_out(Plan::writes(source)).await?;
    }
    match context.execute(Plan::writes([Write::create(object)])).await {
        Ok(applied) => {
            // The watch has not reported one that was there. When it does, this reconciles again.
            let created = applied.latest::<PersistentVolumeClaim>();
            if let Some(claim) = &created
                && seen.operation == Operation::Clone
                && seen.population == PopulationMode::Legacy
            {
                let component = clone::component(seen.origin.as_ref());
                workers::record(context, component, claim, [clone::no_populator()]).await?;
            }
            seen.claim = created.map(Arc::new);
            Ok(Outcome::Settled)
        }
        Err(error) => match error.to_write_failure().refusal.as_ref().and_then(Obstacle::refused) {
            Some(obstacle) => Ok(Outcome::Blocked(Box::new(obstacle), Err(error))),
            None => Err(error),
        },
    }
}

fn render(context: &Context, seen: &Seen) -> Result<PersistentVolumeClaim, claim::Error> {
    let stores = &context.cluster.stores;
    let config = context.config();
    let profiles = stores.profiles.list();
    let storage = seen.volume.spec.storage.as_ref();
    let named = storage.and_then(|storage| storage.storage_class_name.as_deref());
    // Volumes matter only for a class that is no more than a name.
    let volumes: Vec<PersistentVolume> = match named {
        Some(name) if classes::named(&seen.classes, name).is_none() => {
            let of_class = |volume: &PersistentVolume| volume.class_name() == name;
            let all = stores.persistent_volumes.filter(of_class);
            all.iter().map(|volume| volume.as_ref().clone()).collect()
        }
        _ => Vec::new(),
    };
    let facts = claim::Facts {
        volume: &seen.volume,
        classes: &seen.classes,
        profiles: &profiles,
        volumes: &volumes,
        config: config.as_deref(),
        installation: &context.settings.installation,
    };
    claim::object(&facts, &seen.operation, seen.population)
}

/// A DataVolume that is done says so on its claim too, for whoever restores both.
async fn carry_over_populated_for(context: &Context, seen: &mut Seen) -> Result<(), Error> {
    let said = meta::annotation(&seen.volume.metadata, request::POPULATED_FOR);
    let status = seen.volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let (Some(said), Some("Succeeded"), Some(claim)) = (said, status, &seen.claim) else {
        return Ok(());
    };
    let way = (&seen.operation, seen.population);
    let is_complete = ownership::is_complete(&seen.volume, claim, way, &seen.config);
    if !is_complete || meta::has_annotation(&claim.metadata, request::POPULATED_FOR) {
        return Ok(());
    }
    let mut changes = meta::Changes::default();
    changes.set(&claim.metadata, request::POPULATED_FOR, said);
    let claim = Arc::clone(claim);
    seen.claim = Some(workers::note(context, claim, &meta::Pairs::new(), &changes).await?);
    Ok(())
}

/// The PVC of a DataVolume that asks for a static volume. `None`: none is reserved for it, or its PVC has it already.
async fn static_volume(context: &Context, seen: &mut Seen) -> Result<Option<Outcome>, Error> {
    if !meta::has_annotation(&seen.volume.metadata, request::CHECK_STATIC_VOLUME) {
        return Ok(None);
    }
    let Some(claim) = seen.claim.clone() else {
        return claim_static_volume(context, seen).await;
    };
    match plan::static_volume(&seen.volume, &claim, seen.population) {
        StaticVolume::Ignore => Ok(None),
        StaticVolume::Wait => Ok(Some(Outcome::WaitsForStaticVolume)),
        StaticVolume::Populated(changes) => {
            seen.claim = Some(workers::note(context, claim, &meta::Pairs::new(), &changes).await?);
            Ok(None)
        }
        StaticVolume::Unexpected { volume } => {
            context.carry_out(Plan::writes(Write::delete(claim.as_ref()))).await?;
            Err(Error::UnexpectedVolume { volume })
        }
    }
}

/// Creates the PVC for volumes that are reserved for a DataVolume.
async fn claim_static_volume(context: &Context, seen: &mut Seen) -> Result<Option<Outcome>, Error> {
    let is_reserved =
        |volume: &PersistentVolume| plan::is_reserved_for(volume, &seen.volume.metadata);
    let mut volumes = context.cluster.stores.persistent_volumes.filter(is_reserved);
    if volumes.is_empty() {
        // One that was reserved recently may not be in the cache. To overlook it would be to import over it.
        let all = context.cluster.list::<PersistentVolume>("", "").await?;
        volumes = all.into_iter().filter(is_reserved).map(Arc::new).collect();
    }
    let Ok(claim) = render(context, seen) else { return Ok(None) };
    if volumes.is_empty() {
        return Ok(None);
    }
    let claim = plan::claim_for(claim, volumes.iter().map(AsRef::as_ref));
    let applied = context.execute(Plan::writes([Write::create(claim)])).await?;
    seen.claim = applied.latest().map(Arc::new);
    Ok(Some(Outcome::WaitsForStaticVolume))
}

/// Which way it goes, and which machine type its image is meant for.
async fn note_on_volume(context: &Context, seen: &mut Seen) -> Result<(), Error> {
    let annotations = plan::annotations(&facts(seen, None, None, false));
    let labels = inherited_labels(context, seen);
    let write = Write::metadata(seen.volume.as_ref(), &labels, &annotations);
    seen.volume = workers::write_one(context, Arc::clone(&seen.volume), write).await?;
    Ok(())
}

/// A registry's image says which instance type and preference it wants; the claim has it first. So does what is cloned, or
/// the DataSource that stands for it.
fn inherited_labels(context: &Context, seen: &Seen) -> meta::Pairs {
    const KEYS: [&str; 4] = [
        labels::DEFAULT_INSTANCETYPE,
        labels::DEFAULT_INSTANCETYPE_KIND,
        labels::DEFAULT_PREFERENCE,
        labels::DEFAULT_PREFERENCE_KIND,
    ];
    let is_registry =
        matches!(&seen.operation, Operation::Import(source) if source.registry.is_some());
    let says_itself = KEYS.iter().any(|key| meta::label(&seen.volume.metadata, key).is_some());
    if says_itself {
        return meta::Pairs::new();
    }
    let offered = match (&seen.origin, &seen.claim) {
        (Some(origin), _) => clone_volume::labelled(context, &seen.volume, origin, &KEYS),
        (None, Some(claim)) if is_registry => claim.metadata.labels.clone().unwrap_or_default(),
        (None, _) => meta::Pairs::new(),
    };
    offered.into_iter().filter(|(key, _)| KEYS.contains(&key.as_str())).collect()
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

/// How far the worker is that fills the claim itself.
async fn measure(context: &Context, seen: &Seen) -> Option<f64> {
    let claim = seen.claim.as_ref()?;
    if meta::worker_phase(&claim.metadata) != PodPhase::Running {
        return None;
    }
    if seen.operation == Operation::Clone {
        return super::clone::measure(context, claim).await;
    }
    if seen.operation == Operation::Upload {
        return super::upload::measure(context, claim).await;
    }
    scrape::percentage(workers::importer_of(context, claim)?.as_ref(), scrape::IMPORT).await
}

/// Writes the status, if it changed, and only then tells why.
async fn report(
    context: &Context,
    seen: &Seen,
    obstacle: Option<&Obstacle>,
    is_static: bool,
) -> Result<Phase, Error> {
    let claim_spec = seen.claim.as_ref().and_then(|claim| claim.spec.as_ref());
    let class = claim_spec
        .and_then(|spec| classes::of_claim(&seen.classes, spec.storage_class_name.as_deref()));
    let plan = plan::status(&facts(seen, class, obstacle, is_static), context.now());
    let phase = plan.status.phase.as_deref().unwrap_or_default().parse().unwrap_or(Phase::Unknown);
    if seen.volume.status.as_ref() == Some(&plan.status) {
        return Ok(phase);
    }
    let target = ObjectRef::of(seen.volume.as_ref());
    let status = StatusPatch { target, status: json!(plan.status), guarded: false };
    let mut executed = Plan { status: Some(status), ..Plan::default() };
    executed.record(component(seen), seen.volume.as_ref(), plan.events);
    context.carry_out(executed).await?;
    Ok(phase)
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
