//! The PVC of a DataVolume: created, adopted, or left alone.

use super::*;

/// The claim of its name: made, taken over, or left alone.
pub(super) async fn settle_claim(context: &Context, seen: &mut Seen) -> Result<Outcome, Error> {
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
        seen.claim = Some(if ownership::is_complete(&seen.volume, &claim, way, &seen.config) {
            claim
        } else {
            let origin = seen.origin.as_ref();
            clone_volume::hand_on_right(context, &seen.volume, origin, claim).await?
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

pub(super) fn driver_names(context: &Context) -> Vec<String> {
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

pub(super) fn render(
    context: &Context,
    seen: &Seen,
) -> Result<PersistentVolumeClaim, claim::Error> {
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
