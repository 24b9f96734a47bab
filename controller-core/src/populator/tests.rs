use api::v1beta1::{HttpSource, ImportSource};
use serde_json::{Value, json};

use super::*;

fn class(provisioner: &str, mode: &str) -> StorageClass {
    serde_json::from_value(json!({
        "metadata": { "name": "fast" }, "provisioner": provisioner, "volumeBindingMode": mode,
    }))
    .unwrap()
}

fn target(kind: &str, changes: Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": "disk", "namespace": "vms", "uid": "t-uid", "resourceVersion": "7" },
        "spec": {
            "storageClassName": "fast", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "10Gi" } },
            "dataSourceRef": { "apiGroup": "cdi.kubevirt.io", "kind": kind, "name": "source" },
        },
        "status": { "phase": "Pending" },
    });
    merge(&mut claim, changes);
    serde_json::from_value(claim).unwrap()
}

fn prime(phase: &str, annotations: Value) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": "prime-t-uid", "namespace": "vms", "uid": "p-uid", "annotations": annotations,
                      "labels": { "instancetype.kubevirt.io/default-preference": "fedora", "app": "x" } },
        "spec": {}, "status": { "phase": phase },
    }))
    .unwrap()
}

fn volume(owner: &str) -> PersistentVolume {
    serde_json::from_value(json!({ "spec": { "claimRef": { "uid": owner } } })).unwrap()
}

/// As `kubectl patch --type merge` does it.
fn merge(into: &mut Value, changes: Value) {
    match changes {
        Value::Object(changes) if into.is_object() => {
            for (key, change) in changes {
                merge(&mut into[&key], change);
            }
        }
        other => *into = other,
    }
}

fn import_spec() -> VolumeImportSourceSpec {
    let http = HttpSource { url: "http://host/disk".into(), ..HttpSource::default() };
    VolumeImportSourceSpec {
        source: Some(ImportSource { http: Some(http), ..ImportSource::default() }),
        ..VolumeImportSourceSpec::default()
    }
}

struct Case {
    target: PersistentVolumeClaim,
    import: Option<VolumeImportSourceSpec>,
    class: Option<StorageClass>,
    prime: Option<PersistentVolumeClaim>,
    volume: Option<PersistentVolume>,
    measured: Option<f64>,
}

impl Case {
    fn new() -> Self {
        Self {
            target: target("VolumeImportSource", json!({})),
            import: Some(import_spec()),
            class: Some(class("csi.example", "Immediate")),
            prime: None,
            volume: None,
            measured: None,
        }
    }

    fn plan(&self) -> Result<PopulatorPlan, Error> {
        plan(&Facts {
            target: &self.target,
            source: self.import.as_ref().map(Source::Import),
            class: self.class.as_ref(),
            prime: self.prime.as_ref(),
            volume: self.volume.as_ref(),
            measured: self.measured,
            config: None,
            installation: &Installation::default(),
        })
    }

    fn follow(&self) -> PrimeProgress {
        match self.plan() {
            Ok(PopulatorPlan::Follow(follow)) => follow,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn prime_pvc_creation_decision_table() {
    type Change = fn(&mut Case);
    let table: [(&str, Change, &str); 14] = [
        ("everything", |_| (), "create"),
        ("no reference", |c| c.target.spec.as_mut().unwrap().data_source_ref = None, "ignore"),
        (
            "another namespace",
            |c| {
                c.target = target(
                    "VolumeImportSource",
                    json!({ "spec": { "dataSourceRef": { "namespace": "other" } } }),
                );
            },
            "ignore",
        ),
        (
            "another group",
            |c| {
                c.target = target(
                    "VolumeImportSource",
                    json!({ "spec": { "dataSourceRef": { "apiGroup": "other.example" } } }),
                );
            },
            "ignore",
        ),
        (
            "going",
            |c| {
                let deleted =
                    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
                c.target = target("VolumeImportSource", deleted);
            },
            "ignore",
        ),
        (
            "bound by another client",
            |c| c.target = target("VolumeImportSource", json!({ "status": { "phase": "Bound" } })),
            "ignore",
        ),
        ("no source", |c| c.import = None, "wait"),
        (
            "for another claim",
            |c| c.import.as_mut().unwrap().target_claim = Some("other".into()),
            "ignore",
        ),
        (
            "for this claim",
            |c| c.import.as_mut().unwrap().target_claim = Some("disk".into()),
            "create",
        ),
        ("no class named", |c| c.target.spec.as_mut().unwrap().storage_class_name = None, "wait"),
        (
            "empty class",
            |c| c.target.spec.as_mut().unwrap().storage_class_name = Some(String::new()),
            "claim has emptystring storageclass, will not work",
        ),
        ("class gone", |c| c.class = None, "storage class \"fast\" not found"),
        (
            "in tree",
            |c| c.class = Some(class("kubernetes.io/rbd", "Immediate")),
            "claims of the in-tree provisioner \"kubernetes.io/rbd\" cannot be filled by a populator",
        ),
        ("no consumer", |c| c.class = Some(class("csi.example", "WaitForFirstConsumer")), "wait"),
    ];
    for (name, change, expected) in table {
        let mut case = Case::new();
        change(&mut case);
        let found = match case.plan() {
            Ok(PopulatorPlan::Ignore) => "ignore".to_owned(),
            Ok(PopulatorPlan::Wait) => "wait".to_owned(),
            Ok(PopulatorPlan::Create { .. }) => "create".to_owned(),
            Ok(PopulatorPlan::Follow(_)) => "follow".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn pvc_that_waits_for_its_consumer_is_filled_once_it_has_a_node_or_binds_immediately() {
    for (annotations, migrated) in [
        (json!({ request::SELECTED_NODE: "node-1" }), false),
        (json!({ request::BIND_IMMEDIATE: "" }), false),
        (json!({ request::BIND_IMMEDIATE: "", state::MIGRATED_TO: "csi.example" }), true),
    ] {
        let mut case = Case::new();
        let provisioner = if migrated { "kubernetes.io/rbd" } else { "csi.example" };
        case.class = Some(class(provisioner, "WaitForFirstConsumer"));
        case.target =
            target("VolumeImportSource", json!({ "metadata": { "annotations": annotations } }));
        assert!(matches!(case.plan(), Ok(PopulatorPlan::Create { .. })), "{annotations}");
    }
}

#[test]
fn prime_pvc_has_the_spec_of_the_target_and_annotations_of_the_source() {
    let mut case = Case::new();
    case.target = target(
        "VolumeImportSource",
        json!({ "metadata": { "annotations": {
            request::SELECTED_NODE: "node-1", request::MULTUS_NETWORKS: "net", "foreign": "x",
            request::VDDK_INIT_IMAGE: "registry.test/vddk:8", request::VDDK_EXTRA_ARGS: "args",
            request::SOURCE_FORMAT: "raw",
        } } }),
    );
    let Ok(PopulatorPlan::Create { prime, created }) = case.plan() else { panic!() };
    assert_eq!(prime.metadata.name.as_deref(), Some("prime-t-uid"));
    assert_eq!(meta::controller(&prime.metadata).unwrap().uid, "t-uid");
    assert_eq!(created.reason, "CreatedPVCPrimeSuccessfully");
    let spec = prime.spec.as_ref().unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    assert_eq!((&spec.data_source_ref, &spec.data_source), (&None, &None));
    let annotations = prime.metadata.annotations.as_ref().unwrap();
    for (key, value) in [
        (import::ENDPOINT, "http://host/disk"),
        (import::SOURCE, "http"),
        (request::CONTENT_TYPE, "kubevirt"),
        (request::BIND_IMMEDIATE, ""),
        (request::SELECTED_NODE, "node-1"),
        (request::VDDK_INIT_IMAGE, "registry.test/vddk:8"),
        (request::VDDK_EXTRA_ARGS, "args"),
        (request::SOURCE_FORMAT, "raw"),
        (request::MULTUS_NETWORKS, "net"),
        (request::ISTIO_INJECT, "false"),
        (state::POPULATOR_KIND, "VolumeImportSource"),
        (state::PREALLOCATION_REQUESTED, "false"),
    ] {
        assert_eq!(annotations.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(!annotations.contains_key("foreign"));
}

#[test]
fn target_has_the_annotations_of_its_prime_pvc() {
    let mut case = Case::new();
    case.target = target(
        "VolumeImportSource",
        json!({ "metadata": { "annotations": { state::RUNNING_REASON: "old", "own": "x" } } }),
    );
    case.prime =
        Some(prime("Bound", json!({ state::POD_PHASE: "Running", state::RUNNING: "true" })));
    case.measured = Some(41.5);
    let follow = case.follow();
    let expected = [
        (state::POD_PHASE, Some("Running")),
        (state::RUNNING, Some("true")),
        (state::RUNNING_REASON, None),
        (state::PRIME, Some("prime-t-uid")),
        (state::POPULATOR_PROGRESS, Some("41.50%")),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
    assert_eq!(follow.annotations.0, expected.into());
    assert_eq!(follow.look_again, Some(progress::POLL));
    assert!(follow.events.is_empty() && follow.rebind.is_none());
}

#[test]
fn new_prime_pvc_without_a_report_causes_no_write() {
    let mut case = Case::new();
    case.target = target(
        "VolumeImportSource",
        json!({ "metadata": { "annotations": { state::POD_RESTARTS: "0" } } }),
    );
    case.prime = Some(prime("Bound", json!({})));
    assert_eq!(case.follow(), PrimeProgress::default());
    case.target = target("VolumeImportSource", json!({}));
    // The first report is written together with the name of the prime PVC.
    case.prime = Some(prime("Bound", json!({ state::RUNNING_REASON: "Queued" })));
    let written = case.follow().annotations.0;
    let keys: Vec<_> = written.keys().map(String::as_str).collect();
    assert_eq!(keys, [state::RUNNING_REASON, state::POPULATOR_PROGRESS, state::PRIME]);
    // Clients that upload look for the name.
    case.import = None;
    case.target = target("VolumeUploadSource", json!({}));
    case.prime = Some(prime("Pending", json!({})));
    assert_eq!(case.follow().annotations.0[state::PRIME].as_deref(), Some("prime-t-uid"));
}

#[test]
fn volume_is_rebound_when_its_content_is_complete() {
    let done = json!({ state::POD_PHASE: "Succeeded" });
    let mut case = Case::new();
    case.prime = Some(prime("Bound", done.clone()));
    case.volume = Some(volume("p-uid"));
    let follow = case.follow();
    let rebind = follow.rebind.unwrap();
    assert_eq!(rebind.uid.as_deref(), Some("t-uid"));
    assert_eq!(rebind.resource_version.as_deref(), Some("7"));
    assert_eq!(follow.annotations.0[state::POPULATOR_PROGRESS].as_deref(), Some("100.0%"));
    let labels: Vec<_> = follow.labels.keys().map(String::as_str).collect();
    assert_eq!(labels, ["instancetype.kubevirt.io/default-preference"]);
    assert_eq!(follow.events.len(), 1);
    assert_eq!(follow.events[0].reason, "importSucceeded");
    assert!(!follow.delete_prime);

    // The volume is not rebound if it is bound to the target or to another PVC.
    for owner in ["t-uid", "other"] {
        case.volume = Some(volume(owner));
        assert_eq!(case.follow().rebind, None, "{owner}");
    }

    // The target has it: the prime PVC is Lost and is deleted.
    case.prime = Some(prime("Lost", done));
    let bound = |retain: &str| {
        target(
            "VolumeImportSource",
            json!({ "status": { "phase": "Bound" }, "metadata": { "annotations": {
                state::PRIME: "prime-t-uid", state::POD_PHASE: "Succeeded", request::RETAIN_PODS: retain,
            } } }),
        )
    };
    case.target = bound("false");
    assert!(case.follow().delete_prime);
    case.target = bound("true");
    assert!(!case.follow().delete_prime);
}

#[test]
fn volume_is_not_rebound_between_two_checkpoints() {
    let mut case = Case::new();
    let paused = json!({ state::POD_PHASE: "Succeeded", state::CHECKPOINT_CURRENT: "s1" });
    case.prime = Some(prime("Bound", paused));
    case.volume = Some(volume("p-uid"));
    let follow = case.follow();
    assert_eq!((follow.rebind, follow.events[0].reason.as_str()), (None, "ImportPaused"));

    let done = json!({ state::POD_PHASE: "Succeeded", state::CHECKPOINT_DONE: "true" });
    case.prime = Some(prime("Bound", done));
    assert!(case.follow().rebind.is_some());
}

#[test]
fn complete_upload_removes_the_name_of_the_prime_pvc() {
    let mut case = Case::new();
    case.target = target("VolumeUploadSource", json!({}));
    case.import = None;
    case.prime =
        Some(prime("Bound", json!({ state::POD_PHASE: "Running", state::POD_READY: "true" })));
    let follow = case.follow();
    assert_eq!(follow.annotations.0[state::PRIME].as_deref(), Some("prime-t-uid"));
    let shown =
        |follow: &PrimeProgress| follow.annotations.0[state::POPULATOR_PROGRESS].clone().unwrap();
    assert_eq!((shown(&follow).as_str(), follow.look_again), ("N/A", Some(progress::POLL_IDLE)));
    case.measured = Some(41.5);
    let follow = case.follow();
    assert_eq!((shown(&follow).as_str(), follow.look_again), ("41.50%", Some(progress::POLL)));
    case.measured = None;

    case.target.metadata.annotations = Some(follow.annotations.applied_to(&case.target.metadata));
    case.prime = Some(prime("Bound", json!({ state::POD_PHASE: "Succeeded" })));
    case.volume = Some(volume("p-uid"));
    let follow = case.follow();
    assert_eq!(follow.annotations.0[state::PRIME], None);
    assert_eq!(follow.events[0].reason, "UploadSucceeded");
    assert!(follow.rebind.is_some());
}

#[test]
fn second_plan_changes_nothing_in_any_state() {
    for phase in ["Pending", "Bound", "Lost"] {
        for pod in ["", "Pending", "Running", "Failed", "Succeeded", "Unknown"] {
            for target_phase in ["Pending", "Bound"] {
                for kind in ["VolumeImportSource", "VolumeUploadSource"] {
                    let mut case = Case::new();
                    case.target = target(kind, json!({ "status": { "phase": target_phase } }));
                    let annotations =
                        if pod.is_empty() { json!({}) } else { json!({ state::POD_PHASE: pod }) };
                    case.prime = Some(prime(phase, annotations));
                    case.volume = Some(volume("p-uid"));
                    let first = case.follow();
                    if first.rebind.is_some() || first.delete_prime {
                        assert_eq!(pod, "Succeeded", "only a complete volume is rebound");
                    }
                    assert!(!first.delete_prime || target_phase == "Bound");
                    let metadata = &case.target.metadata;
                    case.target.metadata.annotations = Some(first.annotations.applied_to(metadata));
                    case.target.metadata.labels.get_or_insert_default().extend(first.labels);
                    let second = case.follow();
                    let case = format!("{phase} {pod} {target_phase} {kind}");
                    assert!(second.annotations.is_empty(), "{case}: {:?}", second.annotations);
                    assert!(second.labels.is_empty() && second.events.is_empty(), "{case}");
                }
            }
        }
    }
}
