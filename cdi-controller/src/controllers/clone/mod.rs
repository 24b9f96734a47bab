//! PVCs that refer to a VolumeCloneSource: filled by the storage or by pods, in the namespace of the source, and bound to
//! the volume when it is complete.

mod admission;
mod finish;
mod step;
mod strategy;

use std::sync::Arc;

use api::ClaimPhase;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::controllers::clone_facts::{self as facts, Parts};
use crate::controllers::workers;
use crate::engine::cache::key_of;
use crate::engine::queue::Key;
use crate::engine::slots::Slot;
use crate::engine::{Engine, Error, chain, rights};
use controller_core::claim_kind::is_clone_target;
use controller_core::clone::{self, Names, Origin, StepProgress, has_finalizer};
use controller_core::components::CLONE_POPULATOR;
use controller_core::meta;
use controller_core::object::ObjectKind;
use controller_core::plan::{Plan, Requeue, Write};

pub use step::measure_copy as measure;
use strategy::Choice;

pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let Some(target) = engine.api.caches.claims.get(&key.namespace, &key.name) else {
        engine.pvc_warnings.forget(&key.namespace, &key.name);
        return Ok(Requeue::OnChange);
    };
    let is_terminating = target.metadata.deletion_timestamp.is_some();
    let is_bound = meta::claim_phase(&target) == ClaimPhase::Bound;
    let has_begun = has_finalizer(&target.metadata);
    if !is_clone_target(&target) || !has_begun && (is_terminating || is_bound) {
        return Ok(Requeue::OnChange);
    }
    if is_terminating || is_bound {
        return finish::finish(&engine, &target).await;
    }
    let next = plan_next(&engine, &target).await.unwrap_or_else(Next::failed);
    execute(&engine, &target, next).await
}

/// What a clone does now.
#[derive(Default)]
struct Next<'a> {
    plan: Plan,
    /// Warnings about the intermediate PVC are forwarded to the target, which users see.
    parts: Option<Parts>,
    /// Held until the objects of the plan are in the cache, which shows them from then on.
    slot: Option<Slot<'a>>,
    failure: Option<Error>,
}

impl Next<'_> {
    fn failed(failure: Error) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

impl From<Plan> for Next<'_> {
    fn from(plan: Plan) -> Self {
        Self { plan, ..Self::default() }
    }
}

async fn plan_next<'a>(
    engine: &'a Engine,
    target: &PersistentVolumeClaim,
) -> Result<Next<'a>, Error> {
    // A watch reports a VolumeCloneSource that is created; until then the PVC is one like any other.
    let Some(source) = facts::clone_source(engine, target) else { return Ok(Next::default()) };
    if !facts::is_placed(engine, target) {
        return Ok(Next::default());
    }
    let origin = Origin::referred_to(meta::namespace(&source.metadata), &source.spec.source)
        .ok_or_else(|| Error::NoOrigin { name: meta::name(&source.metadata).to_owned() })?;
    if rights::is_awaited(&origin, &target.metadata) {
        return Ok(Next::default());
    }
    strategy::verify_permission(engine, &origin, target)
        .map_err(|error| strategy::hide_origin(error, &source))?;
    let Some(found) = facts::find(engine, &origin) else {
        return Ok(clone::plan_without_source(target, &origin).into());
    };
    let plan = match strategy::choose_strategy(engine, target, &origin, &found).await? {
        Choice::Noted(plan) => plan,
        Choice::Open(plan) => return Ok(plan.into()),
        Choice::Refused(refusal) => {
            let plan = clone::plan_refusal(target, &refusal);
            return Ok(Next { plan, ..Next::failed(Error::CloneRefused(refusal)) });
        }
    };
    let uid = meta::uid(&target.metadata);
    let parts = Parts::observe(engine, &origin.namespace, uid, &Names::for_plan(uid, &plan));
    let slot = match admission::reserve_slot(engine, target, &parts) {
        Ok(slot) => slot,
        Err(limit) => {
            let plan = clone::plan_queued(target, limit);
            return Ok(Next { parts: Some(parts), ..plan.into() });
        }
    };
    let next = match step::find_step(engine, target, &source, &found, &plan, &parts).await {
        Ok(step) => {
            let measured = step::measure_step(engine, &step, &parts).await;
            let known = StepProgress { claim: parts.claim(), measured };
            clone::plan_step(target, step, known).into()
        }
        Err(error) => Next::failed(error),
    };
    Ok(Next { parts: Some(parts), slot, ..next })
}

async fn execute(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    next: Next<'_>,
) -> Result<Requeue, Error> {
    let Next { mut plan, parts, slot: _slot, failure } = next;
    if let Some(error) = failure.as_ref().filter(|error| error.is_of_clone()) {
        plan = plan.then(clone::plan_stuck(target, &chain(error)));
    }
    let mut deleted = Vec::new();
    for write in &plan.writes {
        match write {
            Write::Delete(it) if it.kind == ObjectKind::PersistentVolumeClaim => {
                deleted.push(it.key.clone());
            }
            Write::Patch { target: volume, .. } if volume.kind == ObjectKind::PersistentVolume => {
                tracing::info!("rebinding {volume} to PVC {}", key_of(target));
            }
            _ => {}
        }
    }
    let requeue = match &parts {
        Some(parts) => {
            workers::execute_with_warnings(engine, CLONE_POPULATOR, target, parts.claim(), plan)
                .await?
        }
        None => engine.execute_and_report(plan).await?,
    };
    for Key { namespace, name } in deleted {
        engine.pvc_warnings.forget(&namespace, &name);
    }
    failure.map_or(Ok(requeue), Err)
}
