use serde_json::{Value, json};

use super::*;

fn source(name: &str, spec: Value) -> DataSource {
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": { "name": name, "namespace": "images", "labels": { labels::DATA_IMPORT_CRON: "cron" } },
        "spec": { "source": spec },
    }))
    .unwrap()
}

fn volume(phase: &str) -> DataVolume {
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": "disk", "labels": { labels::DEFAULT_PREFERENCE: "of-volume", labels::APP: "x" } },
        "spec": {}, "status": { "phase": phase },
    }))
    .unwrap()
}

fn claim() -> PersistentVolumeClaim {
    serde_json::from_value(json!({ "metadata": { "name": "disk", "labels": {
        labels::DEFAULT_PREFERENCE: "of-claim", labels::DEFAULT_INSTANCETYPE: "u1", labels::DATA_IMPORT_CRON: "other",
    } } }))
    .unwrap()
}

fn snapshot(ready: Option<bool>) -> VolumeSnapshot {
    serde_json::from_value(json!({
        "metadata": { "name": "disk", "labels": { labels::DEFAULT_PREFERENCE: "of-snapshot" } },
        "spec": { "source": { "persistentVolumeClaimName": "disk" } },
        "status": ready.map(|ready| json!({ "readyToUse": ready })),
    }))
    .unwrap()
}

fn now() -> Timestamp {
    "2026-11-21T20:00:00Z".parse().unwrap()
}

fn of_claim() -> Value {
    json!({ "pvc": { "namespace": "images", "name": "disk" } })
}

fn of_snapshot() -> Value {
    json!({ "snapshot": { "namespace": "images", "name": "disk" } })
}

fn pointing(namespace: &str, name: &str) -> Value {
    json!({ "dataSource": { "namespace": namespace, "name": name } })
}

/// Status, reason and message of the condition `Ready`. A second plan must change nothing.
fn ready_condition(facts: &Facts) -> (String, String, String) {
    let plan = plan(facts, now());
    let mut after = facts.source.clone();
    after.status = Some(plan.status.clone());
    after.metadata.labels.get_or_insert_default().extend(plan.labels);
    let again = super::plan(
        &Facts { source: &after, ..*facts },
        now() + jiff::SignedDuration::from_secs(9),
    );
    assert_eq!(again.status, plan.status, "a second plan changes nothing");
    assert!(again.labels.is_empty());
    let condition = plan.status.conditions.unwrap().remove(0);
    assert_eq!(condition.type_, "Ready");
    let is_ready = condition.status == "True";
    assert_eq!(
        plan.status.source != Some(Default::default()),
        is_ready,
        "{:?}",
        plan.status.source
    );
    (condition.status, condition.reason.unwrap_or_default(), condition.message.unwrap_or_default())
}

#[test]
fn data_source_is_ready_if_its_source_is() {
    let (of_claim, of_snapshot, empty) = (of_claim(), of_snapshot(), json!({}));
    let volumes = ["Succeeded", "ImportInProgress", ""].map(volume);
    let [succeeded, running, new] = &volumes;
    let (claim, taken, untaken, asked) =
        (claim(), snapshot(Some(true)), snapshot(Some(false)), snapshot(None));
    type Row<'a> = (
        &'a Value,
        Option<&'a DataVolume>,
        Option<&'a PersistentVolumeClaim>,
        Option<&'a VolumeSnapshot>,
        (&'a str, &'a str, &'a str),
    );
    let ready = ("True", "Ready", "DataSource is ready to be consumed");
    let no_snapshot = ("False", "SnapshotNotReady", "Snapshot phase is not ready");
    let progress = ("False", "ImportInProgress", "Import DataVolume phase ImportInProgress");
    let table: [Row; 12] = [
        (&empty, None, None, None, ("False", "NoSource", "No source PVC set")),
        (&of_claim, None, None, None, ("False", "NotFound", "PVC not found")),
        (&of_claim, Some(running), None, None, progress),
        (&of_claim, Some(running), Some(&claim), None, progress),
        (&of_claim, Some(new), Some(&claim), None, ("False", "", "Import DataVolume phase ")),
        (&of_claim, Some(succeeded), Some(&claim), None, ready),
        (&of_claim, Some(succeeded), None, None, ready),
        (&of_claim, None, Some(&claim), None, ready),
        (&of_snapshot, None, None, None, ("False", "NotFound", "Snapshot not found")),
        (&of_snapshot, None, None, Some(&untaken), no_snapshot),
        (&of_snapshot, None, None, Some(&asked), no_snapshot),
        (&of_snapshot, None, None, Some(&taken), ready),
    ];
    for (spec, volume, claim, snapshot, expected) in table {
        let source = source("fedora", spec.clone());
        let facts = Facts { source: &source, pointed_to: None, volume, claim, snapshot };
        let (status, reason, message) = ready_condition(&facts);
        assert_eq!((&*status, &*reason, &*message), expected, "{spec}");
    }
}

#[test]
fn pointer_is_followed_once() {
    let claim = claim();
    let target = source("target", of_claim());
    let pointer_too = source("target", pointing("images", "fedora"));
    let empty = source("target", json!({}));
    let mut elsewhere = target.clone();
    elsewhere.metadata.namespace = Some("other".into());
    let table = [
        (pointing("images", "target"), Some(&target), "Ready", Some("target")),
        (pointing("", "target"), Some(&target), "Ready", Some("target")),
        (pointing("images", "target"), Some(&empty), "NoSource", Some("target")),
        (pointing("images", "target"), None, "NotFound", Some("target")),
        (pointing("images", "target"), Some(&elsewhere), "NotFound", Some("target")),
        (
            pointing("images", "target"),
            Some(&pointer_too),
            "MaxReferenceDepthReached",
            Some("target"),
        ),
        (pointing("images", "fedora"), Some(&target), "SelfReference", None),
        (pointing("other", "target"), Some(&target), "CrossNamespaceReference", None),
        (pointing("other", "fedora"), None, "CrossNamespaceReference", None),
    ];
    for (spec, pointed_to, expected, fetched) in table {
        let source = source("fedora", spec.clone());
        assert_eq!(pointer(&source), fetched, "{spec}");
        let facts = Facts {
            source: &source,
            pointed_to,
            volume: None,
            claim: Some(&claim),
            snapshot: None,
        };
        let (_, reason, _) = ready_condition(&facts);
        assert_eq!(reason, expected, "{spec}");
        if expected == "Ready" {
            let found = plan(&facts, now()).status.source.unwrap();
            assert_eq!(found, target.spec.source, "the resolved source");
        }
    }
}

#[test]
fn object_has_the_namespace_of_the_source_or_of_the_data_source() {
    let target = source("target", json!({ "snapshot": { "namespace": "", "name": "s" } }));
    for (spec, expected) in [
        (of_claim(), Some(Object::Claim { namespace: "images", name: "disk" })),
        (
            json!({ "pvc": { "namespace": "", "name": "d" } }),
            Some(Object::Claim { namespace: "images", name: "d" }),
        ),
        (
            json!({ "pvc": { "namespace": "far", "name": "d" } }),
            Some(Object::Claim { namespace: "far", name: "d" }),
        ),
        (of_snapshot(), Some(Object::Snapshot { namespace: "images", name: "disk" })),
        (pointing("images", "target"), Some(Object::Snapshot { namespace: "images", name: "s" })),
        (pointing("far", "target"), None),
        (json!({}), None),
    ] {
        let source = source("fedora", spec.clone());
        assert_eq!(object(&source, Some(&target)), expected, "{spec}");
    }
}

#[test]
fn labels_of_kubevirt_are_copied_and_the_cron_label_stays() {
    let (source, volume, claim) = (source("fedora", of_claim()), volume("Succeeded"), claim());
    let facts = Facts {
        source: &source,
        pointed_to: None,
        volume: Some(&volume),
        claim: Some(&claim),
        snapshot: None,
    };
    let expected = [(labels::DEFAULT_INSTANCETYPE, "u1"), (labels::DEFAULT_PREFERENCE, "of-claim")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(plan(&facts, now()).labels, Pairs::from(expected));
    let unready = Facts { volume: None, claim: None, ..facts };
    assert!(plan(&unready, now()).labels.is_empty());
}

#[test]
fn only_inference_labels_are_copied_from_other_namespaces() {
    let secret = json!({
        labels::DEFAULT_PREFERENCE: "fedora", labels::DYNAMIC_CREDENTIALS: "true",
        "vm.kubevirt.io/name": "payroll", labels::APPLY_STORAGE_PROFILE: "true",
    });
    let labelled = |mut object: Value| {
        object["metadata"]["labels"] = secret.clone();
        object
    };
    let claim: PersistentVolumeClaim =
        serde_json::from_value(labelled(json!({ "metadata": { "name": "disk" } }))).unwrap();
    let snapshot: VolumeSnapshot = serde_json::from_value(labelled(json!({
        "metadata": { "name": "disk" },
        "spec": { "source": {} }, "status": { "readyToUse": true },
    })))
    .unwrap();
    for (spec, is_near) in [
        (json!({ "pvc": { "namespace": "images", "name": "disk" } }), true),
        (json!({ "pvc": { "namespace": "", "name": "disk" } }), true),
        (json!({ "pvc": { "namespace": "payroll", "name": "disk" } }), false),
        (json!({ "snapshot": { "namespace": "images", "name": "disk" } }), true),
        (json!({ "snapshot": { "namespace": "payroll", "name": "disk" } }), false),
    ] {
        let direct = source("fedora", spec.clone());
        let pointer = source("latest", pointing("images", "fedora"));
        for (source, pointed_to) in [(&direct, None), (&pointer, Some(&direct))] {
            let facts = Facts {
                source,
                pointed_to,
                volume: None,
                claim: Some(&claim),
                snapshot: Some(&snapshot),
            };
            let plan = plan(&facts, now());
            let ready = &plan.status.conditions.unwrap()[0];
            assert_eq!(ready.status, "True", "platforms rely on it: {spec}");
            let mut expected = Pairs::from([
                (labels::DEFAULT_PREFERENCE.to_owned(), "fedora".to_owned()),
                (labels::DYNAMIC_CREDENTIALS.to_owned(), "true".to_owned()),
            ]);
            if is_near {
                expected.insert("vm.kubevirt.io/name".into(), "payroll".into());
                expected.insert(labels::APPLY_STORAGE_PROFILE.into(), "true".into());
            }
            assert_eq!(plan.labels, expected, "{spec}");
        }
    }
}

#[test]
fn transition_time_moves_when_another_source_is_ready() {
    let (mut data_source, mut claim) = (source("image", of_claim()), claim());
    let plan_at = |data_source: &DataSource, claim: &PersistentVolumeClaim, second| {
        let facts = Facts {
            source: data_source,
            pointed_to: None,
            volume: None,
            claim: Some(claim),
            snapshot: None,
        };
        plan(&facts, Timestamp::from_second(second).unwrap()).status
    };
    let time = |status: &DataSourceStatus| {
        let condition = &status.conditions.as_ref().unwrap()[0];
        assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("Ready", "True"));
        condition.last_transition_time.as_ref().unwrap().0.as_second()
    };
    let first = plan_at(&data_source, &claim, 1);
    assert_eq!(time(&first), 1);
    data_source.status = Some(first);
    assert_eq!(time(&plan_at(&data_source, &claim, 2)), 1, "the same source");
    data_source.spec.source =
        serde_json::from_value(json!({ "pvc": { "namespace": "images", "name": "newer" } }))
            .unwrap();
    claim.metadata.name = Some("newer".into());
    assert_eq!(time(&plan_at(&data_source, &claim, 3)), 3, "another source");
}
