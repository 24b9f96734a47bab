//! DataVolumes, whose PVCs move with them.

use super::*;

const TRY: &str = "try other/disk, other/disk";
const RESERVE: &str = r#"patch DataVolume vms/disk: {"metadata":{"annotations":{"cdi.kubevirt.io/objectTransferName":"move"}}}"#;
const ORPHAN: &str = r#"patch PersistentVolumeClaim vms/disk: {"metadata":{"ownerReferences":[]}}"#;
const DELETE_SOURCE: &str = "delete DataVolume vms/disk";
const CREATE_CHILD: &str = "create ObjectTransfer pvc-transfer-t";
const MARK_POPULATED: &str = r#"patch PersistentVolumeClaim other/disk: {"metadata":{"annotations":{"cdi.kubevirt.io/storage.populatedFor":"disk"}}}"#;

#[test]
fn pvc_is_orphaned_before_its_data_volume_is_deleted() {
    fn begun() -> TransferObjects {
        TransferObjects { is_noted: true, ..TransferObjects::of_data_volume() }
    }
    fn gone() -> TransferObjects {
        let mut objects = begun();
        objects.data_volume = Value::Null;
        objects.claim["metadata"]["ownerReferences"] = json!([]);
        objects
    }
    fn claim_moved() -> TransferObjects {
        let mut objects = gone();
        objects.claim = Value::Null;
        objects.child = objects.transfer.clone();
        objects.child["status"] = json!({ "phase": "Complete" });
        objects.target_claim = target_of(&TransferObjects::of_claim());
        objects
    }
    check(
        TransferObjects::of_data_volume,
        &[
            ("all is well", |_| (), TRY),
            ("no source", |w| w.data_volume = Value::Null, "Pending: No source ..."),
            ("no claim", |w| w.claim = Value::Null, "Pending: The DataVolume has no PVC ..."),
            (
                "not done",
                |w| w.data_volume["status"]["phase"] = "ImportInProgress".into(),
                "Pending: The DataVolume has not succeeded ...",
            ),
            ("in use", |w| w.is_used = true, "Pending: Pods using PVC ..."),
            ("not marked yet", |w| w.data_volume["metadata"]["annotations"] = json!({}), RESERVE),
            (
                "target claim there",
                |w| w.target_claim = w.claim.clone(),
                "Pending: The target exists already ...",
            ),
            (
                "target there",
                |w| w.target_data_volume = w.data_volume.clone(),
                "Pending: The target exists already ...",
            ),
        ],
    );
    check(
        begun,
        &[
            ("owned", |_| (), ORPHAN),
            ("orphaned", |w| w.claim["metadata"]["ownerReferences"] = json!([]), DELETE_SOURCE),
            (
                "terminating",
                |w| {
                    w.claim["metadata"]["ownerReferences"] = json!([]);
                    w.data_volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                "Running: Waiting for the source to go ...",
            ),
        ],
    );
    check(
        gone,
        &[
            ("gone", |_| (), CREATE_CHILD),
            (
                "another one of its name",
                |w| {
                    w.data_volume = TransferObjects::of_data_volume().data_volume;
                    w.data_volume["metadata"]["uid"] = "d2".into();
                },
                CREATE_CHILD,
            ),
            (
                "under way",
                |w| {
                    w.child = w.transfer.clone();
                    w.child["status"] = json!({ "phase": "Running", "conditions": [
                        { "type": "Complete", "status": "False", "message": "Pods using PVC" },
                    ] });
                },
                "Running: Waiting for the PVC: Pods using PVC ...",
            ),
            (
                "deleted, and its claim cannot go on",
                |w| {
                    w.child = w.transfer.clone();
                    w.child["status"] = json!({ "phase": "Error" });
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                "delete ObjectTransfer move",
            ),
            (
                "deleted, and its claim is on the way",
                |w| {
                    w.child = w.transfer.clone();
                    w.child["status"] = json!({ "phase": "Running" });
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                "Running: Waiting for the PVC:  ...",
            ),
            (
                "deleted, and its claim was given up",
                |w| {
                    w.claim = Value::Null;
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                "Pending: Given up",
            ),
            (
                "deleted, and its claim is where it was",
                |w| w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                CREATE_CHILD,
            ),
        ],
    );
    check(
        claim_moved,
        &[
            ("moved", |_| (), MARK_POPULATED),
            (
                "moved, and its transfer is gone",
                |w| {
                    w.child = Value::Null;
                    w.target_claim["status"]["phase"] = "Bound".into();
                },
                MARK_POPULATED,
            ),
            (
                "marked as populated",
                |w| {
                    let annotations = json!({ api::annotations::request::POPULATED_FOR: "disk" });
                    w.target_claim["metadata"]["annotations"] = annotations;
                },
                "create DataVolume other/disk",
            ),
        ],
    );
    for (phase, expected) in [
        ("Pending", "Running: Waiting for the DataVolume ..."),
        (SUCCEEDED, "Complete: Transfer complete"),
    ] {
        let mut objects = claim_moved();
        let annotations = json!({ api::annotations::request::POPULATED_FOR: "disk" });
        objects.target_claim["metadata"]["annotations"] = annotations;
        objects.target_data_volume = TransferObjects::of_data_volume().data_volume;
        objects.target_data_volume["status"]["phase"] = phase.into();
        assert_eq!(objects.step(), expected);
    }
}
