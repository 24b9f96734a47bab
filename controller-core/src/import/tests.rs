use serde_json::{Value, json};

use super::*;

fn claim(annotations: Value) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": "disk", "namespace": "vms", "annotations": annotations,
                      "labels": { "instancetype.kubevirt.io/default-preference": "mine" } },
    }))
    .unwrap()
}

fn pod(phase: &str, state: Value, last: Value) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "importer-disk" }, "status": {
        "phase": phase,
        "containerStatuses": [{
            "name": "importer", "image": "registry.test/importer:1", "imageID": "", "ready": false,
            "restartCount": 2, "state": state, "lastState": last,
        }],
    } }))
    .unwrap()
}

/// For a worker without scratch space.
fn plan(claim: &PersistentVolumeClaim, pod: &Pod) -> Plan {
    super::plan(claim, pod, None)
}

fn ended(code: i32, reason: &str, message: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } })
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({ "waiting": { "reason": reason, "message": message } })
}

/// Status, reason and message of the condition `Running` that the plan writes.
fn running_condition(plan: &Plan) -> (String, String, String) {
    let get = |key: &str| plan.annotations.0.get(key).cloned().flatten().unwrap_or_default();
    (get(state::RUNNING), get(state::RUNNING_REASON), get(state::RUNNING_MESSAGE))
}

#[test]
fn running_condition_by_pod_status() {
    let done = r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#;
    let scratch = r#"{"scratchSpaceRequired":true,"message":"Import Complete"}"#;
    let mismatch =
        r#"{"message":"Unable to process data: checksum mismatch: expected a, calculated b"}"#;
    let full = "Unable to process data: write: no space left on device";
    let large = "Virtual image size 5 is larger than the reported available storage 4.";
    let refused = "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found";
    let none = json!({});
    let stays = PodAction::Keep;
    let goes = PodAction::Delete;
    // Phase, state, last state, then: running, reason, message, phase on the PVC, what happens to the pod.
    let table: Vec<(&str, Value, Value, &str, &str, &str, &str, PodAction)> = vec![
        ("Pending", none.clone(), none.clone(), "", "", "", "Pending", stays),
        (
            "Running",
            json!({ "running": {} }),
            none.clone(),
            "true",
            "Pod is running",
            "",
            "Running",
            stays,
        ),
        (
            "Pending",
            waiting("ImagePullBackOff", "Back-off"),
            none.clone(),
            "false",
            "ImagePullFailed",
            "failed to pull image: registry.test/importer:1",
            "Pending",
            stays,
        ),
        (
            "Pending",
            waiting("InvalidImageName", ""),
            none.clone(),
            "false",
            "ImagePullFailed",
            "failed to pull image: registry.test/importer:1",
            "Pending",
            stays,
        ),
        (
            "Pending",
            waiting("CreateContainerConfigError", "secret \"creds\" not found"),
            none.clone(),
            "false",
            "CreateContainerConfigError",
            "secret \"creds\" not found",
            "Pending",
            stays,
        ),
        (
            "Running",
            waiting("CrashLoopBackOff", "back-off 10s"),
            ended(1, "Error", refused),
            "false",
            "Error",
            refused,
            "Running",
            stays,
        ),
        (
            "Running",
            waiting("CrashLoopBackOff", "back-off 10s"),
            none.clone(),
            "",
            "",
            "",
            "Running",
            stays,
        ),
        (
            "Succeeded",
            ended(0, "Completed", scratch),
            none.clone(),
            "false",
            "Scratch space required",
            "scratch space required and none found",
            "",
            goes,
        ),
        (
            "Succeeded",
            ended(0, "Completed", done),
            none.clone(),
            "false",
            "Completed",
            "Import Complete",
            "Succeeded",
            goes,
        ),
        (
            "Succeeded",
            ended(0, "Completed", mismatch),
            none.clone(),
            "false",
            "ChecksumError",
            "Unable to process data: checksum mismatch: expected a, calculated b",
            "Failed",
            goes,
        ),
        (
            "Running",
            ended(1, "Error", refused),
            none.clone(),
            "false",
            "Error",
            refused,
            "Running",
            stays,
        ),
        (
            "Running",
            ended(1, "Error", full),
            none.clone(),
            "false",
            "Error",
            "DataVolume too small to contain image",
            "Running",
            stays,
        ),
        (
            "Running",
            ended(1, "", large),
            none.clone(),
            "false",
            "Error",
            "DataVolume too small to contain image: the image needs 5 bytes, the volume has 4 bytes",
            "Running",
            stays,
        ),
        (
            "Running",
            ended(1, "Error", "x: failed to pull image: no such thing"),
            none.clone(),
            "false",
            "ImagePullFailed",
            "x: failed to pull image: no such thing",
            "Running",
            stays,
        ),
        (
            "Succeeded",
            ended(0, "Completed", ""),
            none.clone(),
            "false",
            "Completed",
            "",
            "Succeeded",
            goes,
        ),
        (
            "Running",
            json!({ "running": {} }),
            ended(137, "OOMKilled", ""),
            "false",
            "OOMKilled",
            "the importer ran out of memory",
            "",
            goes,
        ),
    ];
    for (phase, state, last, running, reason, message, recorded, action) in table {
        let plan = plan(&claim(json!({})), &pod(phase, state.clone(), last));
        let case = format!("{phase} {state}");
        assert_eq!(
            running_condition(&plan),
            (running.into(), reason.into(), message.into()),
            "{case}"
        );
        let written = plan.annotations.0.get(state::POD_PHASE).cloned().flatten();
        assert_eq!(written.unwrap_or_default(), recorded, "{case}");
        assert_eq!(plan.pod, action, "{case}");
    }
}

/// Its container in this state.
fn pod_on_node_2(state: &Value) -> Pod {
    let mut pod = pod("Running", state.clone(), json!({}));
    pod.spec =
        Some(serde_json::from_value(json!({ "containers": [], "nodeName": "node-2" })).unwrap());
    pod
}

#[test]
fn evicted_worker_is_not_reported_as_running() {
    let evicted = "the pod importer-disk is evicted by a taint of the node node-2 and has not ended; \
                   waiting until the node reports its end or the pod is deleted";
    let running = json!({ "running": {} });
    let ended = json!({ "terminated": { "exitCode": 0, "message": "{}" } });
    let (stays, goes) = (PodAction::Keep, PodAction::Delete);
    let table = [
        ("DeletionByTaintManager", "True", &running, ("false", "PodEvicted", evicted), stays),
        ("DeletionByTaintManager", "False", &running, ("true", "Pod is running", ""), stays),
        ("PreemptionByScheduler", "True", &running, ("true", "Pod is running", ""), stays),
        ("DeletionByTaintManager", "True", &ended, ("false", "Completed", ""), goes),
    ];
    for (cause, status, state, expected, action) in table {
        let mut pod = pod_on_node_2(state);
        let target = json!([{ "type": "DisruptionTarget", "status": status, "reason": cause }]);
        pod.status.as_mut().unwrap().conditions = Some(serde_json::from_value(target).unwrap());
        let plan = plan(&claim(json!({})), &pod);
        let (running, reason, message) = expected;
        assert_eq!(
            running_condition(&plan),
            (running.into(), reason.into(), message.into()),
            "{cause} {status} {state}"
        );
        assert_eq!(plan.pod, action, "{cause} {status} {state}");
    }
}

#[test]
fn worker_on_a_lost_node_is_not_reported_as_running() {
    let lost = "the node node-2 of the pod importer-disk does not respond; \
                waiting until it does or the pod is deleted";
    // The container, then status and reason of the pod's condition `Ready`, then the condition `Running` of the PVC.
    let table = [
        ("ready", true, "True", None, ("true", "Pod is running", "")),
        ("lost", true, "False", None, ("false", "NodeLost", lost)),
        ("not ready", false, "False", Some("ContainersNotReady"), ("true", "Pod is running", "")),
        ("gate", true, "False", Some("ReadinessGatesNotReady"), ("true", "Pod is running", "")),
    ];
    for (case, is_ready, status, reason, expected) in table {
        let mut pod = pod_on_node_2(&json!({ "running": {} }));
        let of_pod = pod.status.as_mut().unwrap();
        of_pod.container_statuses.as_mut().unwrap()[0].ready = is_ready;
        let ready = json!([{ "type": "Ready", "status": status, "reason": reason }]);
        of_pod.conditions = Some(serde_json::from_value(ready).unwrap());
        let plan = plan(&claim(json!({})), &pod);
        let (running, reason, message) = expected;
        assert_eq!(
            running_condition(&plan),
            (running.into(), reason.into(), message.into()),
            "{case}"
        );
        assert_eq!(plan.pod, PodAction::Keep, "{case}");
    }
}

#[test]
fn reports_of_the_worker_are_recorded() {
    let message = json!({
        "preallocationApplied": true,
        "vddkInfo": { "Version": "8.0", "Host": "esx-1" },
        "labels": {
            "instancetype.kubevirt.io/default-instancetype": "u1.medium",
            "instancetype.kubevirt.io/default-preference": "theirs",
            "instancetype.kubevirt.io/default-preference-kind": "no good",
            "app": "evil",
        },
        "message": "Import Complete",
    });
    let plan = plan(
        &claim(json!({})),
        &pod("Succeeded", ended(0, "Completed", &message.to_string()), json!({})),
    );
    let labels: Vec<_> =
        plan.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("instancetype.kubevirt.io/default-instancetype", "u1.medium")]);
    for (key, value) in [
        (state::PREALLOCATION, "true"),
        (state::VDDK_HOST, "esx-1"),
        (state::VDDK_VERSION, "8.0"),
        (state::POD_RESTARTS, "2"),
        (state::POD_SCHEDULABLE, "true"),
    ] {
        assert_eq!(plan.annotations.0[key].as_deref(), Some(value), "{key}");
    }
    assert_eq!(plan.events, [Event::normal("ImportSucceeded", "Import Successful")]);
}

#[test]
fn second_reconcile_writes_nothing() {
    let refused = "Unable to connect to http data source: refused";
    for (phase, state) in [
        ("Pending", json!({})),
        ("Running", json!({ "running": {} })),
        ("Running", ended(1, "Error", refused)),
        ("Succeeded", ended(0, "Completed", r#"{"message":"Import Complete"}"#)),
        ("Succeeded", ended(0, "Completed", r#"{"message":"checksum mismatch"}"#)),
        ("Succeeded", ended(0, "Completed", r#"{"scratchSpaceRequired":true}"#)),
    ] {
        let pod = pod(phase, state, json!({}));
        let mut claim = claim(json!({}));
        let first = plan(&claim, &pod);
        claim.metadata.annotations = Some(first.annotations.applied_to(&claim.metadata));
        claim.metadata.labels.get_or_insert_default().extend(first.labels);
        let second = plan(&claim, &pod);
        assert!(second.annotations.is_empty() && second.events.is_empty(), "{second:?}");
    }
}

#[test]
fn each_failure_of_a_worker_is_reported_once() {
    let failed = |restarts: i32| {
        let mut pod = pod("Running", ended(1, "Error", "refused"), json!({}));
        let statuses = pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
        statuses[0].restart_count = restarts;
        pod
    };
    let mut claim = claim(json!({ state::POD_RESTARTS: "0" }));
    let mut event_count = 0;
    for restarts in [0, 0, 1, 1, 1, 2] {
        let plan = plan(&claim, &failed(restarts));
        event_count += plan.events.len();
        claim.metadata.annotations = Some(plan.annotations.applied_to(&claim.metadata));
    }
    assert_eq!(event_count, 3);
    // A new pod counts from zero; the PVC keeps its count.
    let plan = plan(&claim, &failed(0));
    assert!(!plan.annotations.0.contains_key(state::POD_RESTARTS));
}

#[test]
fn importer_that_ran_out_of_memory_is_replaced_by_one_that_bypasses_the_cache() {
    let (killed, runs) = (ended(137, "OOMKilled", ""), json!({ "running": {} }));
    let past_cache = |mut pod: Pod| {
        pod.spec = serde_json::from_value(json!({ "containers": [{
            "name": "importer", "env": [{ "name": "CACHE_MODE", "value": "TRYNONE" }],
        }] }))
        .unwrap();
        pod
    };
    let first = |state: &Value, last: &Value| pod("Running", state.clone(), last.clone());
    let second = |state: &Value, last: &Value| past_cache(first(state, last));
    let done = pod("Succeeded", ended(0, "Completed", "{}"), killed.clone());
    let none = json!({});
    // The recorded value, the pod, then: the value afterwards, and what happens to the pod.
    for (case, noted, pod, expected, action) in [
        ("is killed", "", first(&killed, &none), "true", PodAction::Delete),
        ("was killed and restarted", "", first(&runs, &killed), "true", PodAction::Delete),
        ("could not be deleted", "true", first(&killed, &none), "true", PodAction::Delete),
        ("is still terminating", "true", first(&runs, &none), "true", PodAction::Keep),
        ("replacement runs", "true", second(&runs, &none), "false", PodAction::Keep),
        ("replacement still runs", "false", second(&runs, &none), "false", PodAction::Keep),
        (
            "replacement is killed at once",
            "true",
            second(&killed, &none),
            "true",
            PodAction::Delete,
        ),
        ("replacement is killed later", "false", second(&killed, &none), "true", PodAction::Delete),
        ("was restarted by the kubelet and succeeded", "", done, "", PodAction::Delete),
    ] {
        let noted = match noted {
            "" => json!({}),
            noted => json!({ import::REQUIRES_DIRECT_IO: noted }),
        };
        let claim = claim(noted);
        let plan = plan(&claim, &pod);
        let after = plan.annotations.applied_to(&claim.metadata);
        let after = after.get(import::REQUIRES_DIRECT_IO).map(String::as_str);
        assert_eq!((after.unwrap_or_default(), plan.pod), (expected, action), "{case}");
    }
}

#[test]
fn creating_scratch_space_is_reported_until_the_worker_starts() {
    let noted = json!({
        state::BOUND: "false", state::BOUND_REASON: reason::CREATING_SCRATCH_SPACE,
        state::BOUND_MESSAGE: "Creating scratch space",
    });
    for (phase, is_over) in [("Pending", false), ("Running", true), ("Failed", true)] {
        let plan = plan(&claim(noted.clone()), &pod(phase, json!({}), json!({})));
        for key in [state::BOUND, state::BOUND_REASON, state::BOUND_MESSAGE] {
            assert_eq!(plan.annotations.0.contains_key(key), is_over, "{phase} {key}");
        }
    }
}

#[test]
fn pod_without_a_node_is_reported_as_unschedulable() {
    let mut pod = pod("Pending", json!({}), json!({}));
    pod.status.as_mut().unwrap().container_statuses = None;
    pod.status.as_mut().unwrap().conditions = serde_json::from_value(json!([
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too few nodes" },
    ]))
    .unwrap();
    let stuck = plan(&claim(json!({})), &pod);
    assert_eq!(stuck.annotations.0[state::POD_SCHEDULABLE].as_deref(), Some("false"));
    let expected = ["false", "Unschedulable", "too few nodes"].map(str::to_owned);
    assert_eq!(<[String; 3]>::from(running_condition(&stuck)), expected);
    pod.status.as_mut().unwrap().phase = Some("Running".into());
    let moving = plan(&claim(json!({ state::POD_SCHEDULABLE: "false" })), &pod);
    assert_eq!(moving.annotations.0[state::POD_SCHEDULABLE].as_deref(), Some("true"));
}

#[test]
fn worker_has_succeeded_once_all_its_containers_have() {
    let (ended, failed, running) =
        (ended(0, "Completed", ""), ended(1, "Error", ""), json!({ "running": {} }));
    let table: [(&str, &[&Value], PodPhase); 8] = [
        ("Running", &[&ended], PodPhase::Succeeded),
        ("Running", &[&ended, &ended], PodPhase::Succeeded),
        ("Running", &[&ended, &running], PodPhase::Running),
        ("Running", &[&failed], PodPhase::Running),
        ("Running", &[], PodPhase::Running),
        ("Failed", &[&ended], PodPhase::Failed),
        ("Pending", &[&ended], PodPhase::Pending),
        ("Succeeded", &[&ended], PodPhase::Succeeded),
    ];
    for (phase, states, expected) in table {
        let containers: Vec<_> = states
            .iter()
            .map(|state| {
                json!({
                    "name": "importer", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": state,
                })
            })
            .collect();
        let status = json!({ "status": { "phase": phase, "containerStatuses": containers } });
        let pod = serde_json::from_value(status).unwrap();
        assert_eq!(report(&pod).phase, expected, "{phase}, {states:?}");
    }
}

#[test]
fn completed_pod_is_kept_only_on_request() {
    let done = pod("Succeeded", ended(0, "Completed", "{}"), json!({}));
    let scratch =
        pod("Succeeded", ended(0, "Completed", r#"{"scratchSpaceRequired":true}"#), json!({}));
    let kept = json!({ request::RETAIN_PODS: "true" });
    assert_eq!(plan(&claim(kept.clone()), &done).pod, PodAction::Keep);
    assert_eq!(plan(&claim(json!({})), &done).pod, PodAction::Delete);
    assert_eq!(plan(&claim(kept.clone()), &scratch).pod, PodAction::Delete);
    let mut leaving = claim(kept);
    leaving.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let plan = plan(&leaving, &done);
    assert_eq!(plan.pod, PodAction::Delete);
    assert!(plan.annotations.is_empty());
}
