//! The PVC of a DataVolume: created, adopted, or left alone.

use super::*;

/// The claim of its name: made, taken over, or left alone.
pub(super) async fn settle_claim(engine: &Engine, seen: &mut Seen) -> Result<Outcome, Error> {
    if let Some(outcome) = static_volume(engine, seen).await? {
        return Ok(outcome);
    }
    let Some(mut claim) = seen.claim.clone() else {
        if meta::has_annotation(&seen.volume.metadata, request::PRE_POPULATED) {
            return Ok(Outcome::Settled);
        }
        return make_claim(engine, seen).await;
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
            claim = workers::write_one(engine, claim, Some(adopted)).await?;
            seen.claim = Some(Arc::clone(&claim));
        }
        // The claim has to change, and a watch tells when it does.
        Ownership::Refused(event) => {
            return Ok(Outcome::Blocked(
                Box::new(Obstacle::foreign_claim(event)),
                Ok(Requeue::OnChange),
            ));
        }
    }
    // Claims that a populator fills have a controller that minds more.
    if seen.population == PopulationMode::Legacy || seen.operation == Operation::External {
        seen.claim = Some(workers::note_complaints(engine, claim).await?);
    }
    volume_source::keep_stages(engine, &seen.volume, seen.population, &seen.operation).await?;
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
            clone_volume::hand_on_right(engine, &seen.volume, origin, claim).await?
        });
    }
    carry_over_populated_for(engine, seen).await?;
    let Some(obstacle) = external_obstacle(engine, seen) else { return Ok(Outcome::Settled) };
    // It changes nothing in the status, which would else be the reason to tell.
    let mut plan = Plan::default();
    let event = || [obstacle.event.clone()];
    plan.record(components::DATA_VOLUME_EXTERNAL, seen.volume.as_ref(), event());
    if let Some(claim) = &seen.claim {
        plan.record(components::DATA_VOLUME_EXTERNAL, claim.as_ref(), event());
    }
    engine.execute_and_report(plan).await?;
    Ok(Outcome::Blocked(Box::new(obstacle), Ok(Requeue::OnChange)))
}

fn external_obstacle(engine: &Engine, seen: &Seen) -> Option<Obstacle> {
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
    plan::external_obstacle(claim, asked_kind, class, &driver_names(engine))
}

pub(super) fn driver_names(engine: &Engine) -> Vec<String> {
    let drivers = engine.api.caches.drivers.list();
    drivers.iter().map(|driver| meta::name(&driver.metadata).to_owned()).collect()
}

async fn make_claim(engine: &Engine, seen: &mut Seen) -> Result<Outcome, Error> {
    let object = match render(engine, seen) {
        Ok(object) => object,
        Err(error) => {
            let next = if error.waits_for_storage() {
                Ok(Requeue::OnChange)
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
            match clone_volume::prepare(engine, volume, seen.population, origin, object).await? {
                Ok(object) => object,
                Err(event) => {
                    let obstacle = Box::new(Obstacle::of_source(event));
                    return Ok(Outcome::Blocked(obstacle, Ok(Requeue::OnChange)));
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
        engine.execute_and_report(Plan::writes(source)).await?;
    }
    match engine.execute(Plan::writes([Write::create(object)])).await {
        Ok(applied) => {
            // The watch has not reported one that was there. When it does, this reconciles again.
            let created = applied.latest::<PersistentVolumeClaim>();
            if let Some(claim) = &created
                && seen.operation == Operation::Clone
                && seen.population == PopulationMode::Legacy
            {
                let component = clone::component(seen.origin.as_ref());
                workers::record(engine, component, claim, [clone::no_populator()]).await?;
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

pub(super) fn render(engine: &Engine, seen: &Seen) -> Result<PersistentVolumeClaim, claim::Error> {
    let caches = &engine.api.caches;
    let config = engine.config();
    let profiles = caches.profiles.list();
    let storage = seen.volume.spec.storage.as_ref();
    let named = storage.and_then(|storage| storage.storage_class_name.as_deref());
    // Volumes matter only for a class that is no more than a name.
    let volumes: Vec<PersistentVolume> = match named {
        Some(name) if classes::named(&seen.classes, name).is_none() => {
            let of_class = |volume: &PersistentVolume| volume.class_name() == name;
            let all = caches.persistent_volumes.filter(of_class);
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
        installation: &engine.settings.installation,
    };
    claim::object(&facts, &seen.operation, seen.population)
}

/// A DataVolume that is done says so on its claim too, for whoever restores both.
async fn carry_over_populated_for(engine: &Engine, seen: &mut Seen) -> Result<(), Error> {
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
    seen.claim = Some(workers::note(engine, claim, &meta::Pairs::new(), &changes).await?);
    Ok(())
}
