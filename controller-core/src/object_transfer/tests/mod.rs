use api::annotations::state;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::object::Object;
use crate::plan::Presence;
use crate::progress::POLL;

mod data_volume;
mod failure;
mod world;

use world::*;

const SUCCEEDED: &str = "Succeeded";

const TRY: &str = "try other/disk";
const RESERVE: &str = r#"patch PersistentVolumeClaim vms/disk: {"metadata":{"annotations":{"cdi.kubevirt.io/objectTransferName":"move"}}}"#;
const UNRESERVE: &str = r#"patch PersistentVolumeClaim vms/disk: {"metadata":{"annotations":{"cdi.kubevirt.io/objectTransferName":null}}}"#;
const RETAIN_VOLUME: &str =
    r#"patch PersistentVolume pv: {"spec":{"persistentVolumeReclaimPolicy":"Retain"}}"#;
const RESTORE_POLICY: &str =
    r#"patch PersistentVolume pv: {"spec":{"persistentVolumeReclaimPolicy":"Delete"}}"#;
const DELETE_SOURCE: &str = "delete PersistentVolumeClaim vms/disk";
const REBIND: &str = r#"patch PersistentVolume pv: {"spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"disk","namespace":"other","resourceVersion":null,"uid":null}}}"#;
const CREATE_TARGET: &str = "create PersistentVolumeClaim other/disk";
const UNMARK_TARGET: &str = r#"patch PersistentVolumeClaim other/disk: {"metadata":{"annotations":{"cdi.kubevirt.io/objectTransferName":null}}}"#;

type Case = (&'static str, fn(&mut TransferObjects), &'static str);

fn check(objects: fn() -> TransferObjects, table: &[Case]) {
    for (case, change, expected) in table {
        let mut objects = objects();
        change(&mut objects);
        assert_eq!(objects.step(), *expected, "{case}");
    }
}

#[test]
fn pvc_is_not_changed_until_it_may_be_moved() {
    check(
        TransferObjects::of_claim,
        &[
            ("all is well", |_| (), TRY),
            (
                "no kind of ours",
                |w| w.transfer["spec"]["source"]["kind"] = "Secret".into(),
                "Error: Unsupported kind \"Secret\" ...",
            ),
            ("no source", |w| w.claim = Value::Null, "Pending: No source ..."),
            (
                "not bound",
                |w| w.claim["status"]["phase"] = "Pending".into(),
                "Pending: PVC not bound ...",
            ),
            (
                "leaving",
                |w| w.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                "Pending: The source is being deleted ...",
            ),
            (
                "copied from",
                |w| w.claim["metadata"]["finalizers"] = json!([BUSY_FINALIZERS[0]]),
                "Pending: PVC has finalizer: provisioner.storage.kubernetes.io/cloning-protection ...",
            ),
            (
                "protected as every claim is",
                |w| w.claim["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]),
                TRY,
            ),
            ("no volume", |w| w.volume = Value::Null, "Pending: PV not bound ..."),
            (
                "volume of another",
                |w| w.volume["spec"]["claimRef"]["uid"] = "x".into(),
                "Pending: PV not bound ...",
            ),
            ("in use", |w| w.is_used = true, "Pending: Pods using PVC ..."),
            (
                "of a DataVolume",
                |w| {
                    w.claim["metadata"]["ownerReferences"] = TransferObjects::of_data_volume()
                        .claim["metadata"]["ownerReferences"]
                        .clone();
                },
                "Pending: The PVC is that of the DataVolume disk: move that ...",
            ),
            (
                "annotation missing",
                |w| w.transfer["spec"]["source"]["requiredAnnotations"] = json!({ "kept": "no" }),
                "Pending: Required annotation missing ...",
            ),
            (
                "annotation there",
                |w| w.transfer["spec"]["source"]["requiredAnnotations"] = json!({ "kept": "yes" }),
                TRY,
            ),
            (
                "of another transfer",
                |w| w.is_reserved = true,
                "Pending: Source in use by another transfer ...",
            ),
            ("not marked yet", |w| w.claim["metadata"]["annotations"] = json!({}), RESERVE),
            (
                "marked by one that is gone",
                |w| {
                    w.claim["metadata"]["annotations"] =
                        json!({ state::OBJECT_TRANSFER_NAME: "gone" });
                },
                RESERVE,
            ),
            (
                "target there",
                |w| w.target_claim = w.claim.clone(),
                "Pending: The target exists already ...",
            ),
            (
                "given up",
                |w| w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                UNRESERVE,
            ),
            (
                "given up before it was marked",
                |w| {
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    w.claim["metadata"]["annotations"] = json!({});
                },
                "Pending: Given up",
            ),
        ],
    );
}

#[test]
fn volume_is_retained_before_its_pvc_is_deleted() {
    check(
        under_way,
        &[
            ("begun", |_| (), RETAIN_VOLUME),
            ("deleted by another client", |w| w.claim = Value::Null, RETAIN_VOLUME),
            ("volume gone", |w| w.volume = Value::Null, "Error: The PV pv is gone ..."),
            (
                "volume gone, and deleted",
                |w| {
                    w.volume = Value::Null;
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                UNRESERVE,
            ),
            (
                "volume gone, deleted, and the source not marked",
                |w| {
                    w.volume = Value::Null;
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    w.claim["metadata"]["annotations"] = json!({});
                },
                "Pending: Given up",
            ),
            (
                "volume gone, deleted, and a target created",
                |w| {
                    w.target_claim = target_of(&TransferObjects::of_claim());
                    w.volume = Value::Null;
                    w.claim = Value::Null;
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                UNMARK_TARGET,
            ),
        ],
    );
    check(
        retained,
        &[
            ("kept", |_| (), DELETE_SOURCE),
            (
                "given up too late",
                |w| w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                DELETE_SOURCE,
            ),
            ("used meanwhile", |w| w.is_used = true, "Running: Pods using PVC ..."),
            (
                "terminating",
                |w| w.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                "Running: Waiting for the source to go ...",
            ),
            (
                "bound elsewhere",
                |w| w.volume["spec"]["claimRef"]["uid"] = "x".into(),
                "Error: PV bound to wrong PVC ...",
            ),
        ],
    );
}

#[test]
fn volume_is_rebound_only_to_the_target() {
    check(
        without_source,
        &[
            ("left", |_| (), REBIND),
            (
                "another claim of the source's name",
                |w| {
                    w.claim = TransferObjects::of_claim().claim;
                    w.claim["metadata"]["uid"] = "new".into();
                },
                REBIND,
            ),
            (
                "bound to another PVC",
                |w| w.volume["spec"]["claimRef"]["uid"] = "x".into(),
                "Error: PV bound to wrong PVC ...",
            ),
            (
                "a foreign claim in the target's place",
                |w| {
                    w.target_claim = TransferObjects::of_claim().claim;
                    w.target_claim["metadata"]["uid"] = "x".into();
                    w.target_claim["metadata"]["annotations"] = json!({});
                },
                "Error: The target exists already, and is not of this transfer ...",
            ),
        ],
    );
    check(
        with_rebound_volume,
        &[
            ("waits for the target", |_| (), CREATE_TARGET),
            (
                "target created",
                |w| w.target_claim = target_of(&TransferObjects::of_claim()),
                "Running: Waiting for target to be bound ...",
            ),
            (
                "handed to another one of that name",
                |w| {
                    w.target_claim = target_of(&TransferObjects::of_claim());
                    w.volume["spec"]["claimRef"]["uid"] = "x".into();
                },
                "Error: PV bound to wrong PVC ...",
            ),
        ],
    );
    check(
        arrived,
        &[
            ("bound", |_| (), RESTORE_POLICY),
            (
                "policy as it was",
                |w| w.volume["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into(),
                UNMARK_TARGET,
            ),
            (
                "mark off",
                |w| {
                    w.volume["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into();
                    w.target_claim["metadata"]["annotations"] = json!({});
                },
                "Complete: Transfer complete",
            ),
        ],
    );
}

#[test]
fn target_is_the_source_with_another_name() {
    use api::annotations::request;
    let mut objects = TransferObjects::of_claim();
    objects.claim["metadata"]["annotations"] = json!({
        "kept": "yes", "pv.kubernetes.io/bind-completed": "yes", request::CLONE_TOKEN: "secret",
        state::OBJECT_TRANSFER_NAME: "move",
    });
    objects.claim["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "x" }]);
    objects.claim["metadata"]["labels"][api::labels::APPLY_STORAGE_PROFILE] = "true".into();
    objects.claim["spec"]["dataSourceRef"] =
        json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "s" });
    let record = objects.record();
    assert!(!record.source.contains("secret"), "{}", record.source);
    let created = objects.with(|transfer, _| target_claim(transfer, &record).unwrap());
    assert_eq!(meta::namespace(&created.metadata), "other");
    assert_eq!(created.metadata.owner_references, None, "nothing owns across namespaces");
    let labels = created.metadata.labels.as_ref().unwrap();
    assert_eq!(
        labels.keys().collect::<Vec<_>>(),
        ["mine"],
        "the webhook does not complete it again"
    );
    let annotations = created.metadata.annotations.as_ref().unwrap();
    let keys: Vec<_> = annotations.keys().map(String::as_str).collect();
    assert_eq!(keys, [state::OBJECT_TRANSFER_NAME, "kept"]);
    let spec = created.spec.unwrap();
    assert_eq!(spec.volume_name.as_deref(), Some("pv"));
    assert_eq!((spec.data_source, spec.data_source_ref), (None, None), "it is full");

    objects.transfer["spec"]["target"] = json!({ "name": "renamed" });
    let created = objects.with(|transfer, _| target_claim(transfer, &record).unwrap());
    assert_eq!(meta::namespace(&created.metadata), "vms");
    assert_eq!(meta::name(&created.metadata), "renamed");
    assert!(created.metadata.owner_references.is_some());
}

#[test]
fn target_is_recorded_once_its_creation_was_tried() {
    for (objects, tried) in [
        (TransferObjects::of_claim(), "try other/disk"),
        (TransferObjects::of_data_volume(), "try other/disk, other/disk"),
    ] {
        assert_eq!(objects.step(), tried);
        objects.with(|transfer, facts| {
            let facts = TransferFacts { is_target_accepted: true, ..facts.clone() };
            let Decision::Execute(plan) = plan_transfer(transfer, &facts, at(1)) else {
                panic!("it was tried")
            };
            let status = plan.status.unwrap().status;
            assert_eq!((status["phase"].as_str(), plan.requeue), (Some("Running"), Requeue::Now));
            assert_eq!(status["data"], json!(objects.record().to_data()));
            assert_eq!(plan.writes, []);
        });
    }
}

#[test]
fn transfer_is_released_once_its_end_is_reported() {
    let mut objects = arrived();
    objects.volume["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into();
    objects.target_claim["metadata"]["annotations"] = json!({});
    let step = objects.with(|transfer, facts| {
        let mut reported = transfer.clone();
        reported.status = Some(status_with(transfer, Phase::Complete, "Transfer complete", at(1)));
        described(&plan_transfer(&reported, facts, at(2)))
    });
    assert_eq!(step, "release ObjectTransfer move.");
}

#[test]
fn finalizer_decision_table() {
    let deleted = json!("2026-01-01T00:00:00Z");
    for (case, finalizers, deletion, phase, expected) in [
        ("new", json!([]), Value::Null, Value::Null, Some("add")),
        ("held", json!([finalizer::OBJECT_TRANSFER]), Value::Null, Value::Null, None),
        ("deleted", json!([finalizer::OBJECT_TRANSFER]), deleted.clone(), Value::Null, None),
        ("deleted before it was held", json!([]), deleted.clone(), Value::Null, Some("nothing")),
        (
            "over",
            json!([finalizer::OBJECT_TRANSFER]),
            Value::Null,
            json!("Complete"),
            Some("release"),
        ),
        ("over and released", json!([]), Value::Null, json!("Complete"), Some("nothing")),
    ] {
        let mut objects = TransferObjects::of_claim();
        objects.transfer["metadata"]["finalizers"] = finalizers;
        objects.transfer["metadata"]["deletionTimestamp"] = deletion;
        objects.transfer["status"] = json!({ "phase": phase });
        let plan = plan_finalizer(&parsed(&objects.transfer));
        let kind = plan.map(|plan| match (plan.writes.as_slice(), plan.requeue) {
            ([], Requeue::OnChange) => "nothing",
            ([Write::SetFinalizer { presence: Presence::Present, .. }], Requeue::Now) => "add",
            ([Write::SetFinalizer { presence: Presence::Absent, .. }], Requeue::OnChange) => {
                "release"
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(kind, expected, "{case}");
    }
}

#[test]
fn condition_changes_with_the_message_only() {
    let transfer: ObjectTransfer = parsed(&TransferObjects::of_claim().transfer);
    let mut reported = transfer.clone();
    let first = status_with(&reported, Phase::Pending, "No source", at(1));
    reported.status = Some(first.clone());
    assert_eq!(status_with(&reported, Phase::Pending, "No source", at(2)), first);
    assert!(!is_over(&reported));
    reported.status = Some(status_with(&reported, Phase::Complete, "Transfer complete", at(3)));
    assert!(is_over(&reported));
    let condition = &reported.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), (COMPLETE, TRUE));
}
