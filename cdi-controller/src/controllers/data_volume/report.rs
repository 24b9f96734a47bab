//! What a DataVolume says: labels and annotations, progress, status.

use super::*;

/// Which way it goes, and which machine type its image is meant for.
pub(super) async fn note_on_volume(engine: &Engine, seen: &mut Seen) -> Result<(), Error> {
    let annotations = plan::annotations(&facts(seen, None, None, false));
    let labels = inherited_labels(engine, seen);
    let write = Write::metadata(seen.volume.as_ref(), &labels, &annotations);
    seen.volume = workers::write_one(engine, Arc::clone(&seen.volume), write).await?;
    Ok(())
}

/// A registry's image says which instance type and preference it wants; the claim has it first. So does what is cloned, or
/// the DataSource that stands for it.
fn inherited_labels(engine: &Engine, seen: &Seen) -> meta::Pairs {
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
        (Some(origin), _) => clone_volume::labelled(engine, &seen.volume, origin, &KEYS),
        (None, Some(claim)) if is_registry => claim.metadata.labels.clone().unwrap_or_default(),
        (None, _) => meta::Pairs::new(),
    };
    offered.into_iter().filter(|(key, _)| KEYS.contains(&key.as_str())).collect()
}

/// How far the worker is that fills the claim itself.
pub(super) async fn measure(engine: &Engine, seen: &Seen) -> Option<f64> {
    let claim = seen.claim.as_ref()?;
    if meta::worker_phase(&claim.metadata) != PodPhase::Running {
        return None;
    }
    if seen.operation == Operation::Clone {
        return crate::controllers::clone::measure(engine, claim).await;
    }
    if seen.operation == Operation::Upload {
        return crate::controllers::upload::measure(engine, claim).await;
    }
    scrape::percentage(workers::importer_of(engine, claim)?.as_ref(), scrape::IMPORT).await
}

/// Writes the status, if it changed, and only then tells why.
pub(super) async fn report(
    engine: &Engine,
    seen: &Seen,
    obstacle: Option<&Obstacle>,
    is_static: bool,
) -> Result<Phase, Error> {
    let claim_spec = seen.claim.as_ref().and_then(|claim| claim.spec.as_ref());
    let class = claim_spec
        .and_then(|spec| classes::of_claim(&seen.classes, spec.storage_class_name.as_deref()));
    let plan = plan::status(&facts(seen, class, obstacle, is_static), engine.now());
    let phase = plan.status.phase.as_deref().unwrap_or_default().parse().unwrap_or(Phase::Unknown);
    if seen.volume.status.as_ref() == Some(&plan.status) {
        return Ok(phase);
    }
    let target = ObjectRef::of(seen.volume.as_ref());
    let status = StatusPatch { target, status: json!(plan.status) };
    let mut executed = Plan { status: Some(status), ..Plan::default() };
    executed.record(component(seen), seen.volume.as_ref(), plan.events);
    engine.execute_and_report(executed).await?;
    Ok(phase)
}
