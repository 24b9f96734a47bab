//! Steps that failed.

use super::*;
use crate::refusal::{Refusal, WriteFailure};

fn failure(code: u16, namespace_is_terminating: bool) -> WriteFailure {
    let refusal = Refusal { code, message: "m".into(), namespace_is_terminating };
    WriteFailure { refusal: Some(refusal), chain: "cannot create: m".into() }
}

/// What follows where the creation of the target, or another step, failed.
fn after(objects: &TransferObjects, step: Option<&Plan>, failure: &WriteFailure) -> String {
    let after = objects.with(|transfer, facts| {
        let step = step.map_or(FailedStep::DryRun, FailedStep::Plan);
        plan_after_failure(transfer, facts, step, failure, at(1))
    });
    match after {
        AfterFailure::GiveUp(plan) => format!("give up, {}", described(&Decision::execute(plan))),
        AfterFailure::Retry(plan) if plan == Plan::default() => "retry".into(),
        AfterFailure::Retry(plan) => format!("retry, {}", described(&Decision::execute(plan))),
    }
}

#[test]
fn failed_step_decision_table() {
    fn planned(objects: &TransferObjects) -> Option<Plan> {
        match objects.with(|transfer, facts| plan_transfer(transfer, facts, at(1))) {
            Decision::LookUp(_) => None,
            Decision::Execute(plan) => Some(*plan),
        }
    }
    fn deleted(mut objects: TransferObjects) -> TransferObjects {
        objects.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        objects
    }
    let lost = WriteFailure { refusal: None, chain: "no answer".into() };
    let used = || TransferObjects { is_used: true, ..TransferObjects::of_claim() };
    for (case, objects, failure, expected) in [
        ("no answer", with_rebound_volume(), &lost, "retry"),
        ("conflict", with_rebound_volume(), &failure(409, false), "retry"),
        ("refused", with_rebound_volume(), &failure(403, false), "retry, Error: cannot create: m."),
        (
            "tried",
            TransferObjects::of_claim(),
            &failure(403, false),
            "retry, Pending: cannot create: m.",
        ),
        ("report refused", used(), &failure(403, false), "retry"),
        (
            "no namespace",
            with_rebound_volume(),
            &failure(404, false),
            "retry, Error: cannot create: m.",
        ),
        (
            "no namespace, deleted",
            deleted(with_rebound_volume()),
            &failure(404, false),
            "give up, release ObjectTransfer move.",
        ),
        (
            "namespace terminating, deleted",
            deleted(with_rebound_volume()),
            &failure(403, true),
            "give up, release ObjectTransfer move.",
        ),
        (
            "refused, deleted",
            deleted(with_rebound_volume()),
            &failure(403, false),
            "retry, Error: cannot create: m.",
        ),
        (
            "volume of a deleted transfer gone",
            deleted(without_source()),
            &failure(404, false),
            "retry, Error: cannot create: m.",
        ),
    ] {
        assert_eq!(after(&objects, planned(&objects).as_ref(), failure), expected, "{case}");
    }
}
