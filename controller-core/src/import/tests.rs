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

/// Of a worker without scratch space.
fn plan(claim: &PersistentVolumeClaim, pod: &Pod) -> Plan {
    super::plan(claim, pod, None)
}

fn ended(code: i32, reason: &str, message: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } })
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({ "waiting": { "reason": reason, "message": message } })
}

/// What the claim says after a look at the pod, in the words of the running condition.
fn said(plan: &Plan) -> (String, String, String) {
    let get = |key: &str| plan.annotations.0.get(key).cloned().flatten().unwrap_or_default();
    (get(state::RUNNING), get(state::RUNNING_REASON), get(state::RUNNING_MESSAGE))
}

#[test]
fn each_state_of_the_pod_says_what_clients_know() {
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
    // Phase, state, last state, then: running, reason, message, phase on the claim, what becomes of the pod.
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
            "DataVolume too small to contain image",
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
    for (phase, state, last, running, reason, message, noted, fate) in table {
        let plan = plan(&claim(json!({})), &pod(phase, state.clone(), last));
        let case = format!("{phase} {state}");
        assert_eq!(said(&plan), (running.into(), reason.into(), message.into()), "{case}");
        let written = plan.annotations.0.get(state::POD_PHASE).cloned().flatten();
        assert_eq!(written.unwrap_or_default(), noted, "{case}");
        assert_eq!(plan.pod, fate, "{case}");
    }
}

#[test]
fn what_a_worker_learnt_is_noted() {
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
fn looking_twice_says_nothing_twice() {
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
fn a_worker_that_fails_again_is_told_again() {
    let failed = |restarts: i32| {
        let mut pod = pod("Running", ended(1, "Error", "refused"), json!({}));
        let statuses = pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
        statuses[0].restart_count = restarts;
        pod
    };
    let mut claim = claim(json!({ state::POD_RESTARTS: "0" }));
    let mut told = 0;
    for restarts in [0, 0, 1, 1, 1, 2] {
        let plan = plan(&claim, &failed(restarts));
        told += plan.events.len();
        claim.metadata.annotations = Some(plan.annotations.applied_to(&claim.metadata));
    }
    assert_eq!(told, 3);
    // Another pod counts from zero, and the claim does not.
    let plan = plan(&claim, &failed(0));
    assert!(!plan.annotations.0.contains_key(state::POD_RESTARTS));
}

#[test]
fn whoever_runs_out_of_memory_has_a_successor_that_goes_past_the_cache() {
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
    // What is noted, the pod, then: what is noted afterwards, and what becomes of the pod.
    for (case, noted, pod, expected, fate) in [
        ("it is killed", "", first(&killed, &none), "true", PodAction::Delete),
        ("it was killed a moment ago", "", first(&runs, &killed), "true", PodAction::Delete),
        ("it could not be deleted", "true", first(&killed, &none), "true", PodAction::Delete),
        ("it is not gone yet", "true", first(&runs, &none), "true", PodAction::Keep),
        ("its successor runs", "true", second(&runs, &none), "false", PodAction::Keep),
        ("that goes on", "false", second(&runs, &none), "false", PodAction::Keep),
        ("that is killed at once", "true", second(&killed, &none), "true", PodAction::Delete),
        ("that is killed later", "false", second(&killed, &none), "true", PodAction::Delete),
        ("the kubelet was quicker", "", done, "", PodAction::Delete),
    ] {
        let noted = match noted {
            "" => json!({}),
            noted => json!({ import::REQUIRES_DIRECT_IO: noted }),
        };
        let claim = claim(noted);
        let plan = plan(&claim, &pod);
        let after = plan.annotations.applied_to(&claim.metadata);
        let after = after.get(import::REQUIRES_DIRECT_IO).map(String::as_str);
        assert_eq!((after.unwrap_or_default(), plan.pod), (expected, fate), "{case}");
    }
}

#[test]
fn scratch_space_is_being_made_until_the_worker_begins() {
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
fn a_pod_that_no_node_takes_is_said_to_be_unschedulable() {
    let mut pod = pod("Pending", json!({}), json!({}));
    pod.status.as_mut().unwrap().container_statuses = None;
    pod.status.as_mut().unwrap().conditions = serde_json::from_value(json!([
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too few nodes" },
    ]))
    .unwrap();
    let stuck = plan(&claim(json!({})), &pod);
    assert_eq!(stuck.annotations.0[state::POD_SCHEDULABLE].as_deref(), Some("false"));
    let expected = ["false", "Unschedulable", "too few nodes"].map(str::to_owned);
    assert_eq!(<[String; 3]>::from(said(&stuck)), expected);
    pod.status.as_mut().unwrap().phase = Some("Running".into());
    let moving = plan(&claim(json!({ state::POD_SCHEDULABLE: "false" })), &pod);
    assert_eq!(moving.annotations.0[state::POD_SCHEDULABLE].as_deref(), Some("true"));
}

#[test]
fn a_pod_is_kept_only_for_whoever_wants_to_look() {
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
