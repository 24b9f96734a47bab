//! ObjectTransfers, carried out. Everything is read anew before each step: there are few transfers, and what a step takes for
//! granted has to be so.

mod observe;

use std::sync::Arc;

use api::labels::finalizer;
use api::v1beta1::{DataVolume, ObjectTransfer};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{POLL, workers};
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, chain};
use controller_core::meta;
use controller_core::object::ObjectRef;
use controller_core::object_transfer::{
    self as plan, Action, Facts, Moved, Phase, Record, Step, Told,
};
use controller_core::plan::{Plan, Requeue, StatusPatch, Write};
use controller_core::volume::PersistentVolume;

use observe::Seen;

/// More than any transfer takes.
const STEPS_MAX: usize = 20;

/// Brings one transfer as far as it gets.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    if engine.api.caches.transfers.is_undecodable("", &key.name) {
        return Ok(Requeue::OnChange);
    }
    for _ in 0..STEPS_MAX {
        let Some(transfer) = engine.api.get::<ObjectTransfer>("", &key.name).await? else {
            return Ok(Requeue::OnChange);
        };
        let is_leaving = transfer.metadata.deletion_timestamp.is_some();
        let has_finalizer = has_finalizer(&transfer.metadata);
        if plan::is_over(&transfer) || (is_leaving && !has_finalizer) {
            return release(&engine, &transfer).await;
        }
        if !has_finalizer {
            let held = Write::add_finalizer(&transfer, finalizer::OBJECT_TRANSFER);
            engine.execute_and_report(Plan::writes(held)).await?;
            continue;
        }
        let seen = Seen::of(&engine, &transfer).await?;
        match plan::plan(&transfer, &seen.facts()) {
            Step::Wait(told) => {
                report(&engine, &transfer, &told).await?;
                return Ok(Requeue::After(POLL));
            }
            Step::Done(told) => {
                // The finalizer is removed from the transfer as it is then.
                if report(&engine, &transfer, &told).await? == Report::Written {
                    continue;
                }
                return release(&engine, &transfer).await;
            }
            Step::Do(action) => {
                let plan = match action {
                    Action::Begin => begin(&engine, &transfer, &seen).await,
                    _ => Ok(Plan::writes(plan::write(&transfer, &seen.facts(), action))),
                };
                let outcome = match plan {
                    Ok(plan) => engine.execute_and_report(plan).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = outcome {
                    if is_leaving && action == Action::MakeTarget && has_no_place(&error) {
                        return give_up(&engine, transfer, &seen).await;
                    }
                    complain(&engine, &transfer, &seen, &error).await?;
                    return Err(error);
                }
            }
        }
    }
    Ok(Requeue::After(POLL))
}

/// Lets the transfer go.
async fn release(engine: &Engine, transfer: &ObjectTransfer) -> Result<Requeue, Error> {
    let released = Write::remove_finalizer(transfer, finalizer::OBJECT_TRANSFER);
    engine.execute_and_report(Plan::writes(released)).await
}

/// Whether the namespace of the target is gone, or on its way out.
fn has_no_place(error: &Error) -> bool {
    error.is_going() || error.is_gone()
}

/// There is no way on and none back, and nobody wants it any more. What is left is a volume that is retained.
async fn give_up(engine: &Engine, transfer: ObjectTransfer, seen: &Seen) -> Result<Requeue, Error> {
    let volume = seen.record.as_ref().map(|record| record.volume_name.as_str()).unwrap_or_default();
    let place = plan::target(&transfer.spec).namespace;
    let name = meta::name(&transfer.metadata).to_owned();
    release(engine, &transfer).await?;
    tracing::warn!(
        "the transfer {name} is given up, as there is no namespace {place}; its volume {volume} is kept"
    );
    Ok(Requeue::OnChange)
}

fn has_finalizer(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|name| name == finalizer::OBJECT_TRANSFER)
}

/// Writes the words of a transfer, if they are new.
async fn report(engine: &Engine, transfer: &ObjectTransfer, told: &Told) -> Result<Report, Error> {
    let status = plan::status(transfer, told, engine.now());
    if transfer.status.as_ref() == Some(&status) {
        return Ok(Report::Unchanged);
    }
    engine.execute_and_report(status_plan(transfer, json!(status))).await.map(|_| Report::Written)
}

/// Whether the status had to be written.
#[derive(PartialEq, Eq)]
enum Report {
    Written,
    Unchanged,
}

fn status_plan(transfer: &ObjectTransfer, status: Value) -> Plan {
    let target = ObjectRef::of(transfer);
    Plan { status: Some(StatusPatch { target, status }), ..Plan::default() }
}

/// Why a step could not be done, where it was not for want of an answer.
async fn complain(
    engine: &Engine,
    transfer: &ObjectTransfer,
    seen: &Seen,
    error: &Error,
) -> Result<(), Error> {
    if error.refusal().is_none() || error.is_conflict() {
        return Ok(());
    }
    let phase = if seen.record.is_some() { Phase::Error } else { Phase::Pending };
    report(engine, transfer, &Told::new(phase, chain(error))).await.map(drop)
}

/// Tries whether the target can be made, before anything is taken apart, and notes what is there.
async fn begin(engine: &Engine, transfer: &ObjectTransfer, seen: &Seen) -> Result<Plan, Error> {
    let facts = seen.facts();
    let Some(record) = Record::of(&transfer.spec, &facts) else { return Ok(Plan::default()) };
    if plan::moved(&transfer.spec) == Some(Moved::DataVolume) {
        if let Some(target) = plan::target_data_volume(transfer, &record) {
            engine.api.rehearse(&target).await?;
        }
        let child = plan::transfer_of_claim(transfer, &record);
        let of_claim = Record::of(&child.spec, &facts);
        if let Some(target) = of_claim.and_then(|record| plan::target_claim(&child, &record)) {
            engine.api.rehearse(&target).await?;
        }
    } else if let Some(target) = plan::target_claim(transfer, &record) {
        engine.api.rehearse(&target).await?;
    }
    let told = Told::new(Phase::Running, "Running");
    let mut status = plan::status(transfer, &told, engine.now());
    status.data = Some(record.to_data());
    Ok(status_plan(transfer, json!(status)))
}
