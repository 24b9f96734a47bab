//! The removal of an installation, one step at a time. Each step is decided from the cluster alone, so an operator that is
//! killed continues where it stopped.
//!
//! ```text
//! phase Deleting ─► delete cdi-deployment ─► delete workers ─► phase Deleted ─► remove the finalizer ─► garbage collection
//! ```

use jiff::{Timestamp, ToSpan};
use serde_json::Value;

use crate::metadata;
use crate::plan::status::Phase;

/// Pods and Services of running operations, in all namespaces.
pub const WORKER_SELECTOR: &str =
    "cdi.kubevirt.io in (importer,cdi-upload-server,cdi-clone-source)";

/// How long the removal waits for the controller's pods. They may be on a node that is down.
const CONTROLLER_PATIENCE_MINUTES: i64 = 1;

pub struct RemovalFacts<'a> {
    pub installation: &'a Value,
    /// Deployment `cdi-deployment`.
    pub controller: Option<&'a Value>,
    /// Objects of [`WORKER_SELECTOR`].
    pub workers: &'a [Value],
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RemovalStep {
    SetPhase(Phase),
    /// With its pods, which would create workers again.
    DeleteController,
    AwaitController,
    /// Indexes into the workers.
    DeleteWorkers(Vec<usize>),
    RemoveFinalizer,
}

pub fn removal_step(facts: &RemovalFacts) -> RemovalStep {
    let RemovalFacts { installation, controller, workers, now } = *facts;
    let phase = Phase::of_installation(installation);
    if !matches!(phase, Some(Phase::Deleting | Phase::Deleted)) {
        return RemovalStep::SetPhase(Phase::Deleting);
    }
    if let Some(controller) = controller {
        if !metadata::is_terminating(controller) {
            return RemovalStep::DeleteController;
        }
        if is_recent(controller, now) {
            return RemovalStep::AwaitController;
        }
    }
    let live: Vec<_> =
        (0..workers.len()).filter(|index| !metadata::is_terminating(&workers[*index])).collect();
    if !live.is_empty() {
        return RemovalStep::DeleteWorkers(live);
    }
    match phase {
        Some(Phase::Deleted) => RemovalStep::RemoveFinalizer,
        _ => RemovalStep::SetPhase(Phase::Deleted),
    }
}

/// Whether the deletion began within the patience. A time that does not parse is not waited for.
fn is_recent(object: &Value, now: Timestamp) -> bool {
    let since = object["metadata"]["deletionTimestamp"].as_str();
    let since = since.and_then(|text| text.parse::<Timestamp>().ok());
    since.is_some_and(|since| {
        since.checked_add(CONTROLLER_PATIENCE_MINUTES.minutes()).is_ok_and(|end| now < end)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removal_decision_table() {
        let live = json!({ "metadata": {} });
        let terminating = |time: &str| json!({ "metadata": { "deletionTimestamp": time } });
        let now: Timestamp = "2027-01-01T00:10:00Z".parse().unwrap();
        let (recent, old) =
            (terminating("2027-01-01T00:09:30Z"), terminating("2027-01-01T00:00:00Z"));
        for (case, phase, controller, workers, expected) in [
            ("first", "Deployed", Some(&live), vec![], RemovalStep::SetPhase(Phase::Deleting)),
            ("no phase", "", None, vec![], RemovalStep::SetPhase(Phase::Deleting)),
            (
                "controller",
                "Deleting",
                Some(&live),
                vec![live.clone()],
                RemovalStep::DeleteController,
            ),
            ("controller ends", "Deleting", Some(&recent), vec![], RemovalStep::AwaitController),
            (
                "controller is stuck",
                "Deleting",
                Some(&old),
                vec![recent.clone(), live.clone()],
                RemovalStep::DeleteWorkers(vec![1]),
            ),
            (
                "workers",
                "Deleting",
                None,
                vec![live.clone(), live.clone()],
                RemovalStep::DeleteWorkers(vec![0, 1]),
            ),
            (
                "workers end",
                "Deleting",
                None,
                vec![recent.clone()],
                RemovalStep::SetPhase(Phase::Deleted),
            ),
            ("all deleted", "Deleted", None, vec![], RemovalStep::RemoveFinalizer),
            ("controller is back", "Deleted", Some(&live), vec![], RemovalStep::DeleteController),
        ] {
            let installation = json!({ "status": { "phase": phase } });
            let facts =
                RemovalFacts { installation: &installation, controller, workers: &workers, now };
            assert_eq!(removal_step(&facts), expected, "{case}");
        }
    }
}
