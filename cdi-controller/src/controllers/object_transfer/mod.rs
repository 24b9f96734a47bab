//! ObjectTransfers: one step of a transfer in each reconcile.

mod observe;

use std::sync::Arc;

use api::v1beta1::ObjectTransfer;

use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::meta;
use controller_core::object_transfer::{
    AfterFailure, FailedStep, TargetDryRun, TransferFacts, plan_after_failure, plan_finalizer,
    plan_transfer, target,
};
use controller_core::plan::{Decision, Requeue};

use observe::observe;

/// A step of one transfer. The next one has the results of this one's write.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    if engine.api.caches.transfers.is_undecodable("", &key.name) {
        return Ok(Requeue::OnChange);
    }
    let Some(transfer) = engine.api.get::<ObjectTransfer>("", &key.name).await? else {
        return Ok(Requeue::OnChange);
    };
    match plan_finalizer(&transfer) {
        Some(plan) => engine.execute_and_report(plan).await,
        None => {
            let facts = observe(&engine, &transfer).await?;
            execute_step(&engine, &transfer, facts).await
        }
    }
}

async fn execute_step(
    engine: &Engine,
    transfer: &ObjectTransfer,
    mut facts: TransferFacts,
) -> Result<Requeue, Error> {
    loop {
        match plan_transfer(transfer, &facts, engine.now()) {
            Decision::LookUp(target) => match dry_run(engine, &target).await {
                Ok(()) => facts.is_target_accepted = true,
                Err(error) => {
                    return report_failure(engine, transfer, &facts, FailedStep::DryRun, error)
                        .await;
                }
            },
            Decision::Execute(plan) => match engine.execute_and_report(plan.as_ref().clone()).await
            {
                Ok(requeue) => return Ok(requeue),
                Err(error) => {
                    let step = FailedStep::Plan(&plan);
                    return report_failure(engine, transfer, &facts, step, error).await;
                }
            },
        }
    }
}

async fn dry_run(engine: &Engine, target: &TargetDryRun) -> Result<(), Error> {
    if let Some(data_volume) = &target.data_volume {
        engine.api.dry_run_create(data_volume.as_ref()).await?;
    }
    if let Some(claim) = &target.claim {
        engine.api.dry_run_create(claim.as_ref()).await?;
    }
    Ok(())
}

async fn report_failure(
    engine: &Engine,
    transfer: &ObjectTransfer,
    facts: &TransferFacts,
    step: FailedStep<'_>,
    error: Error,
) -> Result<Requeue, Error> {
    let failure = error.to_write_failure();
    let after = plan_after_failure(transfer, facts, step, &failure, engine.now());
    let (plan, result) = match after {
        AfterFailure::Retry(plan) => (plan, Err(error)),
        AfterFailure::GiveUp(plan) => (plan, Ok(Requeue::OnChange)),
    };
    engine.execute_and_report(plan).await?;
    if result.is_ok() {
        let namespace = target(&transfer.spec).namespace;
        let volume = facts.record.as_ref().map_or("", |record| record.volume_name.as_str());
        let name = meta::name(&transfer.metadata);
        tracing::warn!(
            "cannot complete the ObjectTransfer {name}: there is no namespace {namespace}; \
             the PersistentVolume {volume} is retained"
        );
    }
    result
}
