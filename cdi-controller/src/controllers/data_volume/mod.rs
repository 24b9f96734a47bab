//! DataVolumes: observe, plan, execute, report.

mod look_up;
mod observe;

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Resource;

use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::data_volume::{Decision, Failure, plan_after_refusal, plan_data_volume};
use controller_core::plan::Requeue;
use controller_core::refusal::OnRefused;

use look_up::look_up;
use observe::observe;

/// Brings one DataVolume one step further.
///
/// # Errors
/// The failure of a write, or of the plan; both are retried.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let Some(mut facts) = observe(&engine, &key) else { return Ok(Requeue::OnChange) };
    let (plan, failure) = loop {
        match plan_data_volume(&facts, engine.now()) {
            Decision::LookUp(lookup) => look_up(&engine, &mut facts, lookup).await?,
            Decision::Execute(plan) => break (plan, None),
            Decision::ExecuteAndFail(plan, failure) => break (plan, Some(failure)),
        }
    };
    // Only writes on the way to a PVC of a snapshot are reported on objects; see `report_refusal`.
    let is_reported = plan.on_refused != OnRefused::Retry;
    match engine.execute(plan).await {
        Ok(applied) => {
            let requeue = engine.report(applied).await?;
            failure.map_or(Ok(requeue), |failure| Err(error_of(failure)))
        }
        Err(error) => {
            let is_of_pvc =
                facts.claim.is_none() && error.is_about(&PersistentVolumeClaim::kind(&()));
            if is_reported || is_of_pvc {
                report_refusal(&engine, &key, &error).await?;
            }
            Err(error)
        }
    }
}

/// Reports in the status that the API server has refused a write.
async fn report_refusal(engine: &Engine, key: &Key, error: &Error) -> Result<(), Error> {
    let Some(mut facts) = observe(engine, key) else { return Ok(()) };
    let failure = error.to_write_failure();
    let plan = loop {
        match plan_after_refusal(&facts, failure.refusal.as_ref(), engine.now()) {
            Some(Decision::LookUp(lookup)) => look_up(engine, &mut facts, lookup).await?,
            Some(Decision::Execute(plan) | Decision::ExecuteAndFail(plan, _)) => break plan,
            None => return Ok(()),
        }
    };
    engine.execute_and_report(plan).await.map(drop)
}

fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::PopulationMode(source) => Error::PopulationMode(source),
        Failure::InvalidPvc(source) => Error::Claim(source),
        Failure::UnexpectedVolume { volume } => Error::UnexpectedVolume { volume },
        Failure::CloneNotAllowed(refusal) => Error::NoRight {
            origin: refusal.origin,
            target: refusal.target,
            source: refusal.source,
        },
    }
}
