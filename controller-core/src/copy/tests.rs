use serde_json::{Value, json};

use super::*;
use crate::meta::Installation;
use crate::worker::Image;

fn claim(name: &str, mode: &str, phase: &str, annotations: Value) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "vms", "uid": format!("{name}-uid"), "annotations": annotations,
        },
        "spec": { "volumeMode": mode, "accessModes": ["ReadWriteOnce"] },
        "status": { "phase": phase },
    }))
    .unwrap()
}

fn target(phase: &str, more: Value) -> PersistentVolumeClaim {
    let mut annotations = json!({ request::CLONE_REQUEST: "images/golden" });
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claim("disk", "Block", phase, annotations)
}

#[test]
fn source_is_read_when_the_upload_server_is_ready() {
    for (phase, annotations, expected) in [
        ("Pending", json!({}), CopyState::Waiting),
        ("Bound", json!({}), CopyState::Waiting),
        ("Bound", json!({ state::POD_READY: "false" }), CopyState::Waiting),
        ("Bound", json!({ state::POD_READY: "true" }), CopyState::Ready),
        ("Pending", json!({ state::POD_READY: "true" }), CopyState::Waiting),
        ("Bound", json!({ state::POD_PHASE: "Succeeded" }), CopyState::Ready),
        ("Bound", json!({ state::POD_READY: "true", state::CLONE_OF: "true" }), CopyState::Over),
    ] {
        assert_eq!(
            copy_state(&target(phase, annotations.clone())),
            expected,
            "{phase} {annotations}"
        );
    }
    for (is_held, one_pod, server_phase, expected) in [
        (true, "false", "Running", CopyState::Read),
        (true, "false", "Succeeded", CopyState::Over),
        (true, "true", "Running", CopyState::Over),
        (false, "false", "Running", CopyState::Over),
    ] {
        let mut claim = target(
            "Bound",
            json!({
                request::CLONE_REQUEST: "vms/golden", state::CLONE_OF: "true",
                state::CLONE_ON_ONE_NODE: one_pod, state::POD_PHASE: server_phase,
            }),
        );
        claim.metadata.finalizers = is_held.then(|| vec![finalizer::CLONE_SOURCE.into()]);
        assert_eq!(copy_state(&claim), expected, "{is_held} {one_pod} {server_phase}");
    }
    assert_eq!(copy_state(&claim("disk", "Block", "Bound", json!({}))), CopyState::Over);
}

#[test]
fn one_pod_with_both_volumes_needs_no_server_and_is_replaced_where_no_node_has_both() {
    let near = |value: &str| json!({ state::CLONE_ON_ONE_NODE: value, request::CLONE_REQUEST: "vms/golden" });
    let claim = target("Pending", near("true"));
    assert_eq!(copy_state(&claim), CopyState::Ready);
    assert!(!needs_server(&claim.metadata));
    assert!(needs_server(&target("Pending", near("false")).metadata));
    // A pod in the namespace of the source would write to a PVC of the same name there.
    let far = target("Pending", json!({ state::CLONE_ON_ONE_NODE: "true" }));
    assert_eq!(copy_state(&far), CopyState::Waiting);
    assert!(needs_server(&far.metadata) && !uses_one_pod(&far.metadata));
    assert!(needs_server(
        &target("Pending", json!({ state::CLONE_ON_ONE_NODE: "false" })).metadata
    ));
    let hopeless = |second: i64, phase: &str, is_schedulable: &str| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "creationTimestamp": "1970-01-01T00:00:00Z" },
            "status": { "phase": phase, "conditions": [{
                "type": "PodScheduled", "status": is_schedulable, "reason": "Unschedulable",
            }], "containerStatuses": [{
                "name": "cdi-clone-source", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            }] },
        }))
        .unwrap();
        is_hopeless(&pod, Timestamp::from_second(second).unwrap())
    };
    assert!(!hopeless(59, "Pending", "False"));
    assert!(hopeless(60, "Pending", "False"));
    assert!(!hopeless(299, "Pending", "True"));
    assert!(hopeless(300, "Pending", "True"));
    assert!(!hopeless(1_000_000, "Running", "True"));
}

#[test]
fn status_of_the_source_pod_has_annotations_of_its_own() {
    let pod = |phase: &str, state: Value| -> Pod {
        serde_json::from_value(json!({ "status": { "phase": phase, "containerStatuses": [{
            "name": "cdi-clone-source", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
            "state": state,
        }] } }))
        .unwrap()
    };
    let claim = target("Bound", json!({}));
    let after = |pod: &Pod| {
        let plan = plan(&claim.metadata, pod);
        let pairs = plan.annotations.applied_to(&claim.metadata);
        let value = |key: &str| pairs.get(key).cloned().unwrap_or_default();
        (
            value(state::SOURCE_RUNNING),
            value(state::CLONE_OF),
            value(state::PREALLOCATION),
            plan.events.len(),
        )
    };
    let text = |values: (&str, &str, &str, usize)| {
        (values.0.to_owned(), values.1.to_owned(), values.2.to_owned(), values.3)
    };
    assert_eq!(after(&pod("Running", json!({ "running": {} }))), text(("true", "", "", 0)));
    let failed = json!({ "terminated": { "exitCode": 255, "message": "no" } });
    assert_eq!(after(&pod("Running", failed)), text(("false", "", "", 0)));
    let ended = |words: &str| json!({ "terminated": { "exitCode": 0, "message": words } });
    assert_eq!(after(&pod("Succeeded", ended("Clone Complete"))), text(("false", "true", "", 1)));
    let all = ended("Clone Complete, Preallocation applied");
    assert_eq!(after(&pod("Succeeded", all)), text(("false", "true", "true", 1)));
}

#[test]
fn files_are_copied_to_files_and_a_disk_to_a_large_enough_target() {
    let archive = json!({ request::CONTENT_TYPE: "archive" });
    let size = ByteCount::new;
    let check = |source: (&str, Value), claim_has: (&str, Value), capacities| {
        let source = claim("golden", source.0, "Bound", source.1);
        let found = check(&source, &claim("disk", claim_has.0, "Bound", claim_has.1), capacities);
        found.map_err(|mismatch| mismatch.to_string())
    };
    let none = || json!({});
    assert_eq!(check(("Block", none()), ("Filesystem", none()), Some((size(1), size(1)))), Ok(()));
    assert_eq!(
        check(("Block", none()), ("Block", none()), Some((size(2), size(1)))),
        Err("target is too small for a disk of its source: 1 < 2".into())
    );
    let permissive = json!({ request::PERMISSIVE_CLONE: "" });
    assert_eq!(check(("Block", none()), ("Block", permissive), Some((size(2), size(1)))), Ok(()));
    assert!(check(("Filesystem", archive.clone()), ("Filesystem", none()), None).is_err());
    assert!(check(("Filesystem", archive.clone()), ("Block", archive.clone()), None).is_err());
    assert_eq!(check(("Filesystem", archive.clone()), ("Filesystem", archive), None), Ok(()));
}

#[test]
fn source_pod_matches_the_expected_manifest() {
    let claim = target(
        "Bound",
        json!({ state::OWNER_UID: "owner", state::PREALLOCATION_REQUESTED: "true" }),
    );
    let mut source = self::claim("golden", "Filesystem", "Bound", json!({}));
    source.metadata.namespace = Some("images".into());
    let image = Image {
        importer: "i".into(),
        pull_policy: Some("Always".into()),
        verbosity: 1,
        ..Image::default()
    };
    let pod = pod(&Facts {
        claim: &claim,
        source: &source,
        authority: Some("PEM"),
        config: None,
        placement: None,
        image: &image,
        cloner: "cloner:1",
        metrics_key: "key",
        secret: "disk-uid-source-pod-f00d",
        installation: &Installation::default(),
    });
    let secret = secret(&pod, "c", "k", &Installation::default());
    assert_eq!(secret.metadata.name.as_deref(), Some("disk-uid-source-pod-f00d"));
    let pod = serde_json::to_value(&pod).unwrap();
    assert_eq!(pod["metadata"]["name"], "disk-uid-source-pod");
    assert_eq!(pod["metadata"]["namespace"], "images");
    assert_eq!(pod["metadata"]["annotations"]["cdi.kubevirt.io/storage.ownerRef"], "vms/disk");
    assert!(pod["metadata"]["ownerReferences"].is_null());
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["cdi.kubevirt.io"], "cdi-clone-source");
    assert_eq!(labels["cdi.kubevirt.io/storage.clone.cloneUniqeId"], "disk-uid-source-pod");
    assert_eq!(labels["cdi.kubevirt.io/hostAssistedSourcePodCloneSource"], "golden-uid");
    assert_eq!(labels["prometheus.cdi.kubevirt.io"], "true");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!("cdi-clone-source"), &json!("cloner:1"))
    );
    assert_eq!(
        container["volumeMounts"],
        json!([{ "name": "cdi-data-vol", "mountPath": "/var/run/cdi/clone/source", "readOnly": true }])
    );
    let env = container["env"].as_array().unwrap();
    let value =
        |name: &str| env.iter().find(|variable| variable["name"] == name).unwrap()["value"].clone();
    assert_eq!(value("UPLOAD_URL"), "https://cdi-upload-disk.vms.svc:8443/v1beta1/upload");
    assert_eq!(value("VOLUME_MODE"), "filesystem");
    assert_eq!(value("MOUNT_POINT"), "/var/run/cdi/clone/source");
    assert_eq!(value("OWNER_UID"), "owner");
    assert_eq!(value("PREALLOCATION"), "true");
    assert_eq!(value("SERVER_CA_CERT"), "PEM");
    assert!(value("CLIENT_KEY").is_null(), "it comes from the secret");
    let key = env.iter().find(|variable| variable["name"] == "CLIENT_KEY").unwrap();
    assert_eq!(key["valueFrom"]["secretKeyRef"]["name"], "disk-uid-source-pod-f00d");
    let affinity = &pod["spec"]["affinity"]["podAffinity"];
    let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(
        required["labelSelector"]["matchLabels"]["cdi.kubevirt.io/hostAssistedSourcePodCloneSource"],
        "golden-uid"
    );
    let preferred = &affinity["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(preferred["podAffinityTerm"]["namespaces"], json!(["vms"]));
}
