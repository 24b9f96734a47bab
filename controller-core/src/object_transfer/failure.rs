//! What follows from a step that failed.

use api::v1beta1::ObjectTransfer;
use jiff::Timestamp;

use super::planner::Planner;
use super::{Phase, TransferFacts, release};
use crate::object::Object;
use crate::plan::{Plan, Requeue, Write};
use crate::refusal::WriteFailure;

/// The step that failed.
#[derive(Clone, Copy, Debug)]
pub enum FailedStep<'a> {
    /// The dry run of the creation of the target.
    DryRun,
    Plan(&'a Plan),
}

/// What follows from a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterFailure {
    /// Execute the plan, and retry the step with back-off.
    Retry(Plan),
    /// The transfer can neither continue nor be undone, and is deleted: this ends it. Its volume is retained.
    GiveUp(Plan),
}

/// Reports the refusal of a step in the status. Without a response of the API server, and after a conflict, only
/// retries.
pub fn plan_after_failure(
    transfer: &ObjectTransfer,
    facts: &TransferFacts,
    step: FailedStep,
    failure: &WriteFailure,
    now: Timestamp,
) -> AfterFailure {
    let planner = Planner { transfer, facts, now };
    let Some(refusal) = &failure.refusal else { return AfterFailure::Retry(Plan::default()) };
    let has_no_namespace = refusal.namespace_is_terminating || refusal.is_not_found();
    if planner.is_terminating() && creates_target(step) && has_no_namespace {
        return AfterFailure::GiveUp(release(transfer));
    }
    if refusal.is_conflict() || only_reports(step, facts) {
        return AfterFailure::Retry(Plan::default());
    }
    let phase = if facts.record.is_some() { Phase::Error } else { Phase::Pending };
    let plan = planner.report(phase, &failure.chain).unwrap_or_default();
    AfterFailure::Retry(Plan { requeue: Requeue::OnChange, ..plan })
}

fn creates_target(step: FailedStep) -> bool {
    let FailedStep::Plan(plan) = step else { return false };
    let created = plan.writes.iter().filter_map(|write| match write {
        Write::Create(object) => Some(object),
        _ => None,
    });
    let is_target = |object: &Object| {
        matches!(object, Object::PersistentVolumeClaim(_) | Object::DataVolume(_))
    };
    created.into_iter().any(is_target)
}

/// A report that was refused is not reported. The record is no report, though it is in the status.
fn only_reports(step: FailedStep, facts: &TransferFacts) -> bool {
    match step {
        FailedStep::DryRun => false,
        FailedStep::Plan(plan) => plan.writes.is_empty() && !facts.is_target_accepted,
    }
}
