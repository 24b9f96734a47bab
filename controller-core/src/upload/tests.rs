use api::labels;
use k8s_openapi::api::core::v1::VolumeMount;
use serde_json::{Value, json};

use super::*;
use crate::meta::Installation;
use crate::worker::Image;

fn claim(phase: &str, annotations: Value) -> PersistentVolumeClaim {
    let mut all = json!({ request::UPLOAD_TARGET: "" });
    all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": { "name": "a.disk", "namespace": "vms", "uid": "claim-uid", "annotations": all },
        "spec": { "volumeMode": "Block", "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": phase },
    }))
    .unwrap()
}

fn server(phase: &str, state: Value, ready: bool) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "cdi-upload-a.disk", "namespace": "vms", "uid": "pod-uid" },
        "status": { "phase": phase, "containerStatuses": [{
            "name": "cdi-upload-server", "image": "i", "imageID": "", "ready": ready, "restartCount": 0,
            "state": state,
        }] },
    }))
    .unwrap()
}

fn ended(message: &str) -> Value {
    json!({ "terminated": { "exitCode": 0, "reason": "Completed", "message": message } })
}

/// The annotations after the plan, shortened; `None` for those that are not there.
fn after(claim: &PersistentVolumeClaim, plan: &Plan, key: &str) -> Option<String> {
    plan.annotations.applied_to(&claim.metadata).remove(key)
}

#[test]
fn start_of_a_server_decision_table() {
    let named = json!({ state::UPLOAD_POD_NAME: "cdi-upload-a.disk" });
    let done = json!({ state::POD_PHASE: "Succeeded" });
    let foreign = json!({ state::UPLOAD_POD_NAME: "x" });
    let mut immediate = named.clone();
    immediate[request::BIND_IMMEDIATE] = "".into();
    let other: Pod = serde_json::from_value(json!({ "metadata": { "name": "vm" } })).unwrap();
    for (phase, annotations, pods, honors, expected) in [
        ("Bound", json!({}), vec![], true, "note"),
        ("Bound", named.clone(), vec![], true, "create"),
        ("Bound", foreign, vec![], true, "note"),
        ("Pending", named.clone(), vec![], true, "wait"),
        ("Pending", named.clone(), vec![], false, "create"),
        ("Pending", immediate, vec![], true, "create"),
        ("Bound", done, vec![], true, "never"),
        ("Bound", named.clone(), vec![other], true, "busy"),
    ] {
        let found = decide_start(&claim(phase, annotations.clone()), &pods, honors);
        assert_eq!(found.name(), expected, "{phase} {annotations}");
    }
}

#[test]
fn status_of_the_server_is_reported_until_the_upload_is_complete() {
    let claim = claim("Bound", json!({}));
    let running = plan(&claim, &server("Running", json!({ "running": {} }), true));
    assert_eq!(after(&claim, &running, state::POD_READY).as_deref(), Some("true"));
    assert_eq!(after(&claim, &running, state::RUNNING).as_deref(), Some("true"));
    assert_eq!((running.pod, running.is_over), (PodAction::Keep, false));

    let message = r#"{"preallocationApplied":true,"message":"Upload Complete"}"#;
    let done = plan(&claim, &server("Succeeded", ended(message), false));
    assert_eq!(after(&claim, &done, state::POD_PHASE).as_deref(), Some("Succeeded"));
    assert_eq!(after(&claim, &done, state::PREALLOCATION).as_deref(), Some("true"));
    assert_eq!((done.pod, done.is_over), (PodAction::Delete, true));
    assert_eq!(done.events, [Event::normal("UploadSucceeded", "Upload Successful")]);
}

#[test]
fn server_with_expired_certificates_is_replaced() {
    let claim = claim("Bound", json!({ state::POD_PHASE: "Running", state::POD_READY: "true" }));
    let plan = plan(&claim, &server("Succeeded", ended(r#"{"deadlinePassed":true}"#), false));
    assert_eq!(after(&claim, &plan, state::POD_PHASE).as_deref(), Some(""));
    assert_eq!(after(&claim, &plan, state::POD_READY).as_deref(), Some("false"));
    assert_eq!((plan.pod, plan.is_over), (PodAction::Delete, false));
}

#[test]
fn name_of_the_service_has_no_dots() {
    let claim = claim("Bound", json!({ request::SOURCE_FORMAT: "raw" }));
    let installation = Installation::default();
    let image = Image { verbosity: 2, ..Image::default() };
    let pod = pod(&Facts {
        claim: &claim,
        config: None,
        classes: &[],
        placement: None,
        image: &image,
        upload_server: "upload:1",
        deadline: "2026-11-21T20:00:00Z".parse().unwrap(),
        secret: &secret_name(&claim, "f00d"),
        installation: &installation,
    });
    assert_eq!(pod.metadata.name.as_deref(), Some("cdi-upload-a.disk"));
    assert_eq!(meta::label(&pod.metadata, labels::SERVICE), Some("cdi-upload-a-disk"));
    assert_eq!(meta::label(&pod.metadata, labels::UPLOAD_TARGET), Some("claim-uid"));
    let service = service(&claim, &installation);
    assert_eq!(service.metadata.name.as_deref(), Some("cdi-upload-a-disk"));
    assert_eq!(service.spec.unwrap().selector.unwrap()[labels::SERVICE], "cdi-upload-a-disk");
    assert_eq!(hosts(&claim)[2], "cdi-upload-a-disk.vms.svc");
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let env = |name: &str| {
        let mut all = container.env.iter().flatten();
        all.find(|one| one.name == name).and_then(|one| one.value.clone()).unwrap_or_default()
    };
    assert_eq!(env("DEADLINE"), "2026-11-21T20:00:00Z");
    assert_eq!(env("DESTINATION"), "/dev/cdi-block-volume");
    assert_eq!(env("UPLOAD_IMAGE_SIZE"), "1Gi");
    assert_eq!(env("CLIENT_NAME"), CLIENT_NAME);
    assert_eq!(env("OWNER_UID"), "claim-uid");
    assert_eq!(env("IMPORTER_SOURCE_FORMAT"), "raw");
    assert_eq!(env("TLS_MIN_VERSION"), "VersionTLS12");
    // As old as the pod: what a process completed is known to the one after it.
    let is_mounted =
        |mount: &&VolumeMount| mount.mount_path == "/journal" && mount.read_only.is_none();
    let journal = container.volume_mounts.iter().flatten().find(is_mounted).unwrap();
    let volumes = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    let volume = volumes.iter().find(|volume| volume.name == journal.name).unwrap();
    assert!(volume.empty_dir.is_some());
    let secret = secret(&pod, "c", "k", "a", &installation);
    // The name that the pod mounts.
    assert_eq!(secret.metadata.name.as_deref(), Some("claim-uid-upload-server-f00d"));
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mounted = volumes.find_map(|volume| volume.secret.as_ref()).unwrap();
    assert_eq!(mounted.secret_name, secret.metadata.name);
    assert_eq!(secret.data.unwrap()["ca.crt"].0, b"a");
}
