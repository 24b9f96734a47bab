//! Whether a clone is permitted, and by which strategy it is done.

use super::*;

/// Whether the claim may have what it asks for: within a namespace always, from another one with a token that says so.
pub(super) fn allow(
    engine: &Engine,
    origin: &Origin,
    target: &PersistentVolumeClaim,
) -> Result<(), Error> {
    let metadata = &target.metadata;
    if origin.namespace == meta::namespace(metadata) {
        return Ok(());
    }
    let key = api::annotations::state::DATA_SOURCE_NAMESPACE;
    if meta::annotation(metadata, key) != Some(origin.namespace.as_str()) {
        return Err(Error::NoGrant);
    }
    rights::check_claim(engine, origin, metadata)
}

/// Whoever writes a claim may name any VolumeCloneSource, and is not told what that refers to.
pub(super) fn without_origin(error: Error, source: &VolumeCloneSource) -> Error {
    let metadata = &source.metadata;
    let name = format!("VolumeCloneSource {}/{}", meta::namespace(metadata), meta::name(metadata));
    match error {
        Error::NoRight { target, source, .. } => Error::NoRight { origin: name, target, source },
        error => error,
    }
}

/// The way, as it was noted before, or as it is decided and noted now. `None`: nothing can be decided yet.
pub(super) async fn decided(
    engine: &Engine,
    target: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    found: &Found,
) -> Result<Option<(Arc<PersistentVolumeClaim>, ClonePlan)>, Error> {
    let class = match found {
        Found::Claim(claim) => facts::class_for_snapshot(engine, claim, &target).await?,
        Found::Snapshot(_) => None,
    };
    let class_name = class.as_ref().map(|class| class.name.as_str());
    if let Some(plan) = plan::noted_plan(&target.metadata, origin.kind, class_name) {
        return Ok(Some((target, plan)));
    }
    if !facts::is_profiled(engine, &target) {
        let waits_for = "the StorageProfile of its storage class";
        progress(engine, target, Phase::Pending, waits_for, None).await?;
        return Ok(None);
    }
    let content = match found {
        Found::Snapshot(snapshot) => facts::content_of(engine, snapshot).await?,
        Found::Claim(_) => None,
    };
    let of = facts::of_decision(engine, &target, found, content.as_ref(), class.as_ref())?;
    match plan::plan_clone(&of) {
        Decision::Wait(Wait::ForClass | Wait::ForSource) => Ok(None),
        Decision::Refuse(refusal) => {
            if let Refusal::TooSmall { .. } | Refusal::ModeOfFiles = &refusal {
                let words = refusal.to_string();
                let told = [
                    Event::warning(events::INCOMPATIBLE_PVC, words.as_str()),
                    Event::warning(events::CLONE_VALIDATION_FAILED, words),
                ];
                workers::record(engine, COMPONENT, target.as_ref(), told).await?;
            }
            Err(Error::CloneRefused(refusal))
        }
        Decision::Clone(plan) => {
            let target = note_decision(engine, target, &plan, class.as_ref()).await?;
            Ok(Some((target, plan)))
        }
    }
}

/// In one write: who sees the decision sees that somebody is going to tidy up.
async fn note_decision(
    engine: &Engine,
    target: Arc<PersistentVolumeClaim>,
    plan: &ClonePlan,
    class: Option<&ChosenClass>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let mut changes = plan::decided(&target.metadata, plan);
    changes.set(&target.metadata, api::annotations::state::CLONE_PHASE, Phase::Pending.as_str());
    let labels = plan::target_labels(&target);
    let mut finalizers = target.metadata.finalizers.clone().unwrap_or_default();
    if !plan::has_finalizer(&target.metadata) {
        finalizers.push(api::labels::finalizer::CLONE_POPULATOR.to_owned());
    }
    let patch = metadata_patch(&labels, &changes);
    let mut patch = patch.unwrap_or_else(|| json!({ "metadata": {} }));
    patch["metadata"]["finalizers"] = json!(finalizers);
    let fallback = plan.fallback();
    let mut told: Vec<_> =
        fallback.map(|why| Event::warning(why.reason(), why.to_string())).into_iter().collect();
    if let (ClonePlan::Snapshot { .. }, Some(class)) = (plan, class) {
        told.push(class.event());
    }
    let mut executed = Plan::writes([Write::guarded_patch(target.as_ref(), patch)]);
    executed.record(COMPONENT, target.as_ref(), told);
    let applied = engine.execute(executed).await?;
    let target = applied.latest().map_or(target, Arc::new);
    engine.report(applied).await?;
    Ok(target)
}
