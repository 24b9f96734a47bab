//! A copy whose upload server was replaced after it had everything, and before its end was recorded. The server that replaces it
//! waits for the copy, and the volume may not be as the first one left it. So the copy is repeated.

use api::PodPhase;
use api::annotations::state;
use api::conditions::reason;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, PersistentVolumeClaim, Pod};

use super::not_running;
use crate::meta;
use crate::plan::{Plan, Requeue, Write};

/// A server that has everything exits at once. So much later its end has been reported, even by a slow node.
const END_PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// How soon to look again at a server that has not ended, at the earliest.
const POLL_MIN: SignedDuration = SignedDuration::from_secs(10);
/// Shown until the next source pod runs.
const MESSAGE: &str = "The upload server was lost before it reported its end; the copy is repeated";

/// What follows once the source pod (`reader`) has succeeded, for as long as the end of the upload server (`server`) is not recorded.
/// A pod is `None` where it does not exist.
pub fn plan_after_read(
    claim: &PersistentVolumeClaim,
    reader: Option<&Pod>,
    server: Option<&Pod>,
    now: Timestamp,
) -> Plan {
    if server.is_some_and(|server| meta::worker_pod_phase(server) == PodPhase::Succeeded) {
        return Plan::default(); // its controller records the end
    }
    let read_at = reader.and_then(ended_at).unwrap_or(Timestamp::MIN);
    let passed = now.duration_since(read_at);
    let is_replaced = server.is_none_or(|server| started_at(server) >= Some(read_at));
    if passed < END_PATIENCE || !is_replaced {
        let left = (END_PATIENCE - passed).max(POLL_MIN);
        return Plan::requeue(Requeue::After(left.unsigned_abs()));
    }
    let mut changes = not_running(&claim.metadata, reason::PENDING, MESSAGE);
    changes.remove(&claim.metadata, state::CLONE_OF);
    let repeated = Write::annotations(claim, &changes);
    Plan::writes(repeated.into_iter().chain(reader.and_then(Write::delete)))
}

/// When the last container of a pod that has ended did so; else when the pod was created.
fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let ended = states(pod).filter_map(|state| state.terminated.as_ref()?.finished_at.as_ref());
    ended.map(|time| time.0).max().or_else(|| created_at(pod))
}

/// When the last container started; else when the pod was created.
fn started_at(pod: &Pod) -> Option<Timestamp> {
    let started = states(pod).filter_map(|state| state.running.as_ref()?.started_at.as_ref());
    started.map(|time| time.0).max().or_else(|| created_at(pod))
}

fn created_at(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn states(pod: &Pod) -> impl Iterator<Item = &ContainerState> {
    let containers =
        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.filter_map(|container| container.state.as_ref())
}

#[cfg(test)]
mod tests {
    use api::annotations::request;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, phase: &str, state: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "vms", "uid": name,
                "creationTimestamp": "1970-01-01T00:01:00Z",
            },
            "status": {
                "phase": phase,
                "containerStatuses": [{
                    "name": "worker", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": state,
                }],
            },
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn copy_whose_server_was_replaced_decision_table() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": {
            "name": "disk", "namespace": "vms",
            "annotations": { request::CLONE_REQUEST: "vms/golden", state::CLONE_OF: "true" },
        } }))
        .unwrap();
        let ended = json!({ "terminated": { "exitCode": 0, "finishedAt": at(100).to_string() } });
        let reader = pod("reader", "Succeeded", ended.clone());
        let running = |second| json!({ "running": { "startedAt": at(second).to_string() } });
        let server = |second| pod("server", "Running", running(second));
        let wait = |seconds| (vec![], Requeue::After(std::time::Duration::from_secs(seconds)));
        let repeated = || (vec!["annotate", "delete reader"], Requeue::OnChange);
        for (case, reader, server, now, expected) in [
            ("still running", Some(&reader), Some(server(61)), 105, wait(25)),
            ("an old one hangs", Some(&reader), Some(server(61)), 500, wait(10)),
            ("replaced just now", Some(&reader), Some(server(101)), 110, wait(20)),
            ("replaced", Some(&reader), Some(server(101)), 130, repeated()),
            ("replaced in the same second", Some(&reader), Some(server(100)), 130, repeated()),
            ("not replaced yet", Some(&reader), None, 110, wait(20)),
            ("not replaced", Some(&reader), None, 130, repeated()),
            (
                "ended",
                Some(&reader),
                Some(pod("server", "Succeeded", ended)),
                500,
                (vec![], Requeue::OnChange),
            ),
            (
                "no reader any more",
                None,
                Some(server(61)),
                62,
                (vec!["annotate"], Requeue::OnChange),
            ),
        ] {
            let plan = plan_after_read(&claim, reader, server.as_ref(), at(now));
            let writes: Vec<_> = plan
                .writes
                .iter()
                .map(|write| match write {
                    Write::Patch { merge, .. } => {
                        let changed = &merge["metadata"]["annotations"];
                        assert!(changed[state::CLONE_OF].is_null(), "{case}: {changed}");
                        assert_eq!(changed[state::SOURCE_RUNNING_MESSAGE], MESSAGE, "{case}");
                        "annotate"
                    }
                    Write::Delete(target) if target.key.name == "reader" => "delete reader",
                    other => panic!("{case}: {other:?}"),
                })
                .collect();
            assert_eq!((writes, plan.requeue), expected, "{case}");
        }
    }
}
