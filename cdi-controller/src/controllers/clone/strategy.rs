//! Whether a clone is permitted, and by which strategy it is done.

use api::v1beta1::VolumeCloneSource;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::controllers::clone_facts::{self as facts, FoundCloneSource};
use crate::engine::{Engine, Error, rights};
use controller_core::clone::{self, ClonePlan, Decision, Origin, Phase, Refusal, Wait};
use controller_core::meta;
use controller_core::plan::Plan;

/// Within a namespace cloning is always permitted, from another one with a clone token.
pub(super) fn verify_permission(
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

/// A client that creates a PVC may name any VolumeCloneSource, and must not learn what that refers to.
pub(super) fn hide_origin(error: Error, source: &VolumeCloneSource) -> Error {
    let metadata = &source.metadata;
    let name = format!("VolumeCloneSource {}/{}", meta::namespace(metadata), meta::name(metadata));
    match error {
        Error::NoRight { target, source, .. } => Error::NoRight { origin: name, target, source },
        error => error,
    }
}

/// How a target is cloned to.
pub(super) enum Choice {
    /// As it was decided, and written on the target.
    Noted(ClonePlan),
    /// Not before this plan is executed: it writes the decision, or what is waited for.
    Open(Plan),
    Refused(Refusal),
}

pub(super) async fn choose_strategy(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    origin: &Origin,
    found: &FoundCloneSource,
) -> Result<Choice, Error> {
    let class = match found {
        FoundCloneSource::Claim(claim) => facts::class_for_snapshot(engine, claim, target).await?,
        FoundCloneSource::Snapshot(_) => None,
    };
    let class_name = class.as_ref().map(|class| class.name.as_str());
    if let Some(plan) = clone::noted_plan(&target.metadata, origin.kind, class_name) {
        return Ok(Choice::Noted(plan));
    }
    if !facts::is_profiled(engine, target) {
        let waits_for = "the StorageProfile of its storage class";
        return Ok(Choice::Open(clone::plan_progress(target, Phase::Pending, waits_for)));
    }
    let content = match found {
        FoundCloneSource::Snapshot(snapshot) => facts::content_of(engine, snapshot).await?,
        FoundCloneSource::Claim(_) => None,
    };
    let facts = facts::of_decision(engine, target, found, content.as_ref(), class.as_ref())?;
    Ok(match clone::plan_clone(&facts) {
        Decision::Wait(Wait::ForClass | Wait::ForSource) => Choice::Open(Plan::default()),
        Decision::Refuse(refusal) => Choice::Refused(refusal),
        Decision::Clone(plan) => Choice::Open(clone::plan_decision(target, &plan, class.as_ref())),
    })
}
