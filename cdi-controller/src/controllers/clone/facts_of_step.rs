//! The facts of the next step of a clone.

use super::*;

/// What is to be done next.
pub(super) async fn step(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    clone_source: &VolumeCloneSource,
    found: &Found,
    plan: &ClonePlan,
    parts: &Parts,
) -> Result<Step, Error> {
    let temporary = parts.temporary();
    let reads_source = matches!(plan, ClonePlan::CsiClone | ClonePlan::Snapshot { .. })
        && temporary.claim.is_none()
        && temporary.snapshot.is_none();
    let pods = match found {
        Found::Claim(claim) if reads_source => {
            let metadata = &claim.metadata;
            workers::pods_with(engine, meta::namespace(metadata), meta::name(metadata)).await?
        }
        _ => Vec::new(),
    };
    let content = match (found, plan) {
        (Found::Snapshot(snapshot), ClonePlan::RestoreAndCopy { .. })
            if temporary.source_claim.is_none() && temporary.claim.is_none() =>
        {
            facts::content_of(engine, snapshot).await?
        }
        _ => None,
    };
    let (writers, state);
    let source = match found {
        Found::Claim(claim) => {
            writers = plan::writers(&pods, meta::name(&claim.metadata));
            let populated = facts::is_filled(engine, claim);
            Source::Claim { claim, populated, writers: &writers }
        }
        Found::Snapshot(snapshot) => {
            state = plan::state_of(snapshot, content.as_ref());
            Source::Snapshot(&state)
        }
    };
    let class = facts::class_of(engine, target);
    let restore_class = facts::restore_class(engine, parts, content.as_ref());
    let profile = facts::profile_of(engine, target);
    let said = profile.as_ref().and_then(|profile| {
        meta::annotation(&profile.metadata, api::annotations::request::CLONE_FALLBACK_AFTER)
    });
    let config = engine.config();
    let placement = engine.placement();
    let namespace = meta::namespace(&clone_source.metadata);
    let facts = Facts {
        target,
        source,
        plan,
        temporary,
        class: class.as_deref(),
        restore_class: restore_class.as_deref(),
        preallocation: claim::preallocation(clone_source.spec.preallocation, config.as_deref()),
        priority_class: plan::chosen_priority_class(clone_source)
            .or(worker::priority_class_in(namespace, &target.metadata)),
        patience: plan::patience(said),
        now: engine.now(),
        image: &engine.settings.cloner_image,
        placement: placement.as_ref(),
        config: config.as_deref(),
        installation: &engine.settings.installation,
    };
    plan::advance(&facts).map_err(Error::Clone)
}
