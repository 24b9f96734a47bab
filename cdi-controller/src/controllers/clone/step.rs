//! The next step of a clone, from what the cluster has at the moment.

use api::annotations::request;
use api::v1beta1::VolumeCloneSource;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::controllers::clone_facts::{self as facts, FoundCloneSource, Parts};
use crate::controllers::workers;
use crate::engine::{Engine, Error, scrape};
use controller_core::clone::{self, ClonePlan, Facts, Origin, Phase, Source, Step};
use controller_core::{claim, copy, meta, worker};

pub(super) async fn find_step(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    clone_source: &VolumeCloneSource,
    found: &FoundCloneSource,
    plan: &ClonePlan,
    parts: &Parts,
) -> Result<Step, Error> {
    let temporary = parts.intermediate_objects();
    let reads_source = matches!(plan, ClonePlan::CsiClone | ClonePlan::Snapshot { .. })
        && temporary.claim.is_none()
        && temporary.snapshot.is_none();
    let pods = match found {
        FoundCloneSource::Claim(claim) if reads_source => {
            let metadata = &claim.metadata;
            workers::pods_with(engine, meta::namespace(metadata), meta::name(metadata)).await?
        }
        _ => Vec::new(),
    };
    let content = match (found, plan) {
        (FoundCloneSource::Snapshot(snapshot), ClonePlan::RestoreAndCopy { .. })
            if temporary.source_claim.is_none() && temporary.claim.is_none() =>
        {
            facts::content_of(engine, snapshot).await?
        }
        _ => None,
    };
    let (writers, state);
    let source = match found {
        FoundCloneSource::Claim(claim) => {
            writers = clone::writers(&pods, meta::name(&claim.metadata));
            let populated = facts::is_filled(engine, claim);
            Source::Claim { claim, populated, writers: &writers }
        }
        FoundCloneSource::Snapshot(snapshot) => {
            state = clone::state_of(snapshot, content.as_ref());
            Source::Snapshot(&state)
        }
    };
    let class = facts::class_of(engine, target);
    let restore_class = facts::restore_class(engine, parts, content.as_ref());
    let profile = facts::profile_of(engine, target);
    let fallback_after = profile
        .as_ref()
        .and_then(|profile| meta::annotation(&profile.metadata, request::CLONE_FALLBACK_AFTER));
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
        priority_class: clone::chosen_priority_class(clone_source)
            .or(worker::priority_class_in(namespace, &target.metadata)),
        patience: clone::patience(fallback_after),
        now: engine.now(),
        image: &engine.settings.cloner_image,
        placement: placement.as_ref(),
        config: config.as_deref(),
        installation: &engine.settings.installation,
    };
    clone::advance(&facts).map_err(Error::Clone)
}

/// How much the pods of a step have copied, in percent.
pub(super) async fn measure_step(engine: &Engine, step: &Step, parts: &Parts) -> Option<f64> {
    match parts.claim().filter(|_| step.phase == Phase::HostClone) {
        Some(claim) => measure_copy(engine, claim).await,
        None => None,
    }
}

/// How much the pod has read that copies to a PVC, in percent.
pub async fn measure_copy(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<f64> {
    let source = Origin::requested(&claim.metadata)?;
    let name = copy::pod_name(&claim.metadata);
    let pod = engine.api.caches.pods.get(&source.namespace, &name)?;
    scrape::percentage(&pod, scrape::CLONE).await
}
