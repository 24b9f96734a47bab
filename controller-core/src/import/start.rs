//! Whether a PVC gets an importer pod now.

use api::annotations::{import, request, state};
use api::conditions::reason;
use api::events;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::meta::{self, Changes};
use crate::worker::{self, StartDecision, WorkerStart, decide_worker_start};

/// The condition of a PVC that waits for other imports to end. It has not failed: it has not started.
pub fn queued(claim: &PersistentVolumeClaim, workers_max: usize) -> Changes {
    let mut changes = Changes::default();
    let message = format!("waits until one of {workers_max} imports has ended");
    changes.set(&claim.metadata, state::RUNNING, "false");
    changes.set(&claim.metadata, state::RUNNING_REASON, reason::QUEUED);
    changes.set(&claim.metadata, state::RUNNING_MESSAGE, message);
    changes
}

/// What has to be done for a PVC that has no worker. `pods`: all that mount it.
pub fn decide_start(
    claim: &PersistentVolumeClaim,
    pods: &[Pod],
    honors_waiting: bool,
) -> StartDecision {
    let metadata = &claim.metadata;
    let noted = |key| meta::annotation(metadata, key);
    let is_requested = noted(import::SOURCE).is_some() || noted(import::ENDPOINT).is_some();
    let is_paused_or_done = noted(state::POD_PHASE) == Some("Succeeded");
    if !is_requested
        || metadata.deletion_timestamp.is_some()
        || noted(request::EXTERNAL_POPULATION).is_some()
        || meta::is_true(metadata, import::FATAL_ERROR)
        || is_paused_or_done
    {
        return StartDecision::Never;
    }
    let name = worker::pod_name(claim);
    let mut changes = Changes::default();
    changes.set(metadata, import::POD_NAME, name.as_str());
    let worker = WorkerStart { pod_name: &name, in_use: events::IMPORT_TARGET_IN_USE, changes };
    decide_worker_start(claim, pods, honors_waiting, worker)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(phase: &str, annotations: Value) -> PersistentVolumeClaim {
        let mut all = json!({ import::SOURCE: "none" });
        all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": { "name": "disk", "namespace": "vms", "annotations": all },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    fn pod(name: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "vms" }, "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn worker_start_decision_table() {
        let named = json!({ import::POD_NAME: "importer-disk" });
        let with = |changes: Value| {
            let mut all = named.clone();
            all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            all
        };
        for (phase, annotations, pods, honors, expected) in [
            ("Bound", json!({}), vec![], true, "note"),
            ("Bound", named.clone(), vec![], true, "create"),
            ("Pending", named.clone(), vec![], true, "wait"),
            ("Pending", named.clone(), vec![], false, "create"),
            ("Pending", with(json!({ request::BIND_IMMEDIATE: "" })), vec![], true, "create"),
            ("Bound", with(json!({ request::EXTERNAL_POPULATION: "true" })), vec![], true, "never"),
            ("Bound", with(json!({ import::FATAL_ERROR: "true" })), vec![], true, "never"),
            ("Bound", with(json!({ state::POD_PHASE: "Succeeded" })), vec![], true, "never"),
            ("Bound", with(json!({ state::POD_PHASE: "Failed" })), vec![], true, "create"),
            ("Bound", named.clone(), vec![pod("vm", "Running")], true, "busy"),
            ("Bound", named.clone(), vec![pod("vm", "Succeeded")], true, "create"),
            ("Bound", named.clone(), vec![pod("importer-disk", "Pending")], true, "create"),
        ] {
            let found = decide_start(&claim(phase, annotations.clone()), &pods, honors);
            assert_eq!(found.name(), expected, "{phase} {annotations} {honors}");
        }
        let StartDecision::Busy(event) =
            decide_start(&claim("Bound", named), &[pod("vm", "Running")], true)
        else {
            panic!()
        };
        assert_eq!(event.message, "pod vms/vm using PersistentVolumeClaim disk");
    }

    #[test]
    fn pvc_without_an_import_source_gets_no_worker() {
        let plain = serde_json::from_value(json!({ "metadata": { "name": "disk" } })).unwrap();
        assert_eq!(decide_start(&plain, &[], false), StartDecision::Never);
    }

    #[test]
    fn each_stage_has_its_own_worker() {
        let claim = claim("Bound", json!({ state::CHECKPOINT_CURRENT: "s2" }));
        let StartDecision::Note(changes) = decide_start(&claim, &[], true) else { panic!() };
        let name = changes.0[import::POD_NAME].as_deref();
        assert_eq!(name, Some("importer-disk-checkpoint-s2"));
    }
}
