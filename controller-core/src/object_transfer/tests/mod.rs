use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

mod data_volume;

const SUCCEEDED: &str = "Succeeded";

fn parsed<K: DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).unwrap()
}

/// All that a step depends on, as JSON.
#[derive(Clone)]
struct World {
    transfer: Value,
    claim: Value,
    volume: Value,
    is_used: bool,
    target_claim: Value,
    is_reserved: bool,
    data_volume: Value,
    target_data_volume: Value,
    child: Value,
    is_noted: bool,
}

impl World {
    /// A claim with its volume, marked by the transfer that moves it from `vms` to `other`.
    fn of_claim() -> Self {
        let mark = json!({ state::OBJECT_TRANSFER_NAME: "move", "kept": "yes" });
        Self {
            transfer: json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "ObjectTransfer",
                "metadata": { "name": "move", "uid": "t" },
                "spec": {
                    "source": { "kind": "PersistentVolumeClaim", "namespace": "vms", "name": "disk" },
                    "target": { "namespace": "other" },
                },
            }),
            claim: json!({
                "metadata": {
                    "name": "disk", "namespace": "vms", "uid": "c", "annotations": mark,
                    "labels": { "mine": "yes" },
                },
                "spec": { "volumeName": "pv", "storageClassName": "fast" },
                "status": { "phase": "Bound" },
            }),
            volume: json!({
                "metadata": { "name": "pv" },
                "spec": {
                    "persistentVolumeReclaimPolicy": "Delete",
                    "claimRef": { "namespace": "vms", "name": "disk", "uid": "c" },
                },
            }),
            is_used: false,
            target_claim: Value::Null,
            is_reserved: false,
            data_volume: Value::Null,
            target_data_volume: Value::Null,
            child: Value::Null,
            is_noted: false,
        }
    }

    /// The same of a DataVolume.
    fn of_data_volume() -> Self {
        let mut world = Self::of_claim();
        world.transfer["spec"]["source"]["kind"] = "DataVolume".into();
        world.data_volume = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {
                "name": "disk", "namespace": "vms", "uid": "d",
                "annotations": { state::OBJECT_TRANSFER_NAME: "move" },
            },
            "spec": { "source": { "blank": {} } },
            "status": { "phase": SUCCEEDED },
        });
        world.claim["metadata"]["annotations"] = json!({});
        world.claim["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": "d",
            "controller": true,
        }]);
        world
    }

    fn with<R>(&self, look: impl FnOnce(&ObjectTransfer, &Facts) -> R) -> R {
        fn present<K: DeserializeOwned>(value: &Value) -> Option<K> {
            (!value.is_null()).then(|| parsed(value))
        }
        let mut transfer: ObjectTransfer = parsed(&self.transfer);
        let (claim, target_claim) = (present(&self.claim), present(&self.target_claim));
        let (volume, child) = (present(&self.volume), present(&self.child));
        let data_volume = present(&self.data_volume);
        let target_data_volume = present(&self.target_data_volume);
        let mut facts = Facts {
            record: None,
            claim: claim.as_ref(),
            volume: volume.as_ref(),
            is_used: self.is_used,
            target_claim: target_claim.as_ref(),
            is_reserved: self.is_reserved,
            data_volume: data_volume.as_ref(),
            target_data_volume: target_data_volume.as_ref(),
            child: child.as_ref(),
        };
        let original = match moved(&transfer.spec) {
            Some(Moved::DataVolume) => Self::of_data_volume(),
            _ => Self::of_claim(),
        };
        let record = self.is_noted.then(|| original.record());
        if let Some(record) = &record {
            transfer.status.get_or_insert_default().data = Some(record.to_data());
            let noted = Record::noted(&transfer);
            assert_eq!(noted.as_ref(), Some(record), "it is read as it was written");
            facts.record = Some(record);
        }
        look(&transfer, &facts)
    }

    fn record(&self) -> Record {
        self.with(|transfer, facts| Record::of(&transfer.spec, facts).unwrap())
    }

    fn step(&self) -> String {
        match self.with(plan) {
            Step::Do(action) => format!("{action:?}"),
            Step::Wait(told) => format!("{}: {}", told.phase.as_str(), told.message),
            Step::Done(told) => format!("done: {}", told.message),
        }
    }
}

type Case = (&'static str, fn(&mut World), &'static str);

fn check(world: fn() -> World, table: &[Case]) {
    for (case, change, expected) in table {
        let mut world = world();
        change(&mut world);
        assert_eq!(world.step(), *expected, "{case}");
    }
}

/// The target as the transfer makes it.
fn target_of(world: &World) -> Value {
    let record = world.record();
    let made = world.with(|transfer, _| target_claim(transfer, &record).unwrap());
    let mut made = json!(made);
    made["metadata"]["uid"] = "c2".into();
    made["status"] = json!({ "phase": "Pending" });
    made
}

#[test]
fn a_claim_is_left_alone_until_it_may_be_moved() {
    check(
        World::of_claim,
        &[
            ("all is well", |_| (), "Begin"),
            (
                "no kind of ours",
                |w| w.transfer["spec"]["source"]["kind"] = "Secret".into(),
                "Error: Unsupported kind \"Secret\"",
            ),
            ("no source", |w| w.claim = Value::Null, "Pending: No source"),
            (
                "not bound",
                |w| w.claim["status"]["phase"] = "Pending".into(),
                "Pending: PVC not bound",
            ),
            (
                "leaving",
                |w| w.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                "Pending: The source is being deleted",
            ),
            (
                "copied from",
                |w| w.claim["metadata"]["finalizers"] = json!([BUSY_FINALIZERS[0]]),
                "Pending: PVC has finalizer: provisioner.storage.kubernetes.io/cloning-protection",
            ),
            (
                "protected as every claim is",
                |w| w.claim["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]),
                "Begin",
            ),
            ("no volume", |w| w.volume = Value::Null, "Pending: PV not bound"),
            (
                "volume of another",
                |w| w.volume["spec"]["claimRef"]["uid"] = "x".into(),
                "Pending: PV not bound",
            ),
            ("in use", |w| w.is_used = true, "Pending: Pods using PVC"),
            (
                "of a DataVolume",
                |w| {
                    w.claim["metadata"]["ownerReferences"] =
                        World::of_data_volume().claim["metadata"]["ownerReferences"].clone();
                },
                "Pending: The PVC is that of the DataVolume disk: move that",
            ),
            (
                "annotation missing",
                |w| w.transfer["spec"]["source"]["requiredAnnotations"] = json!({ "kept": "no" }),
                "Pending: Required annotation missing",
            ),
            (
                "annotation there",
                |w| w.transfer["spec"]["source"]["requiredAnnotations"] = json!({ "kept": "yes" }),
                "Begin",
            ),
            (
                "of another transfer",
                |w| w.is_reserved = true,
                "Pending: Source in use by another transfer",
            ),
            ("not marked yet", |w| w.claim["metadata"]["annotations"] = json!({}), "Reserve"),
            (
                "marked by one that is gone",
                |w| {
                    w.claim["metadata"]["annotations"] =
                        json!({ state::OBJECT_TRANSFER_NAME: "gone" });
                },
                "Reserve",
            ),
            (
                "target there",
                |w| w.target_claim = w.claim.clone(),
                "Pending: The target exists already",
            ),
            (
                "given up",
                |w| w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                "Unreserve",
            ),
            (
                "given up before it was marked",
                |w| {
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    w.claim["metadata"]["annotations"] = json!({});
                },
                "done: Given up",
            ),
        ],
    );
}

fn under_way() -> World {
    World { is_noted: true, ..World::of_claim() }
}

fn retained() -> World {
    let mut world = under_way();
    world.volume["spec"]["persistentVolumeReclaimPolicy"] = RETAIN.into();
    world
}

fn without_source() -> World {
    World { claim: Value::Null, ..retained() }
}

fn handed_over() -> World {
    let mut world = without_source();
    world.volume["spec"]["claimRef"] = json!({ "namespace": "other", "name": "disk" });
    world
}

fn arrived() -> World {
    let mut world = handed_over();
    world.target_claim = target_of(&World::of_claim());
    world.target_claim["status"]["phase"] = "Bound".into();
    world.volume["spec"]["claimRef"]["uid"] = "c2".into();
    world
}

#[test]
fn the_volume_is_kept_before_its_claim_goes() {
    check(
        under_way,
        &[
            ("begun", |_| (), "Retain"),
            ("gone by somebody else's hand", |w| w.claim = Value::Null, "Retain"),
            ("volume gone", |w| w.volume = Value::Null, "Error: The PV pv is gone"),
            (
                "volume gone, and deleted",
                |w| {
                    w.volume = Value::Null;
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                "Unreserve",
            ),
            (
                "volume gone, deleted, and the source let go of",
                |w| {
                    w.volume = Value::Null;
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    w.claim["metadata"]["annotations"] = json!({});
                },
                "done: Given up",
            ),
            (
                "volume gone, deleted, and a target made",
                |w| {
                    w.target_claim = target_of(&World::of_claim());
                    w.volume = Value::Null;
                    w.claim = Value::Null;
                    w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                },
                "Settle",
            ),
        ],
    );
    check(
        retained,
        &[
            ("kept", |_| (), "DeleteSource"),
            (
                "given up too late",
                |w| w.transfer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                "DeleteSource",
            ),
            ("used meanwhile", |w| w.is_used = true, "Running: Pods using PVC"),
            (
                "on its way",
                |w| w.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
                "Running: Waiting for the source to go",
            ),
            (
                "bound elsewhere",
                |w| w.volume["spec"]["claimRef"]["uid"] = "x".into(),
                "Error: PV bound to wrong PVC",
            ),
        ],
    );
}

#[test]
fn the_volume_goes_to_nobody_but_the_target() {
    check(
        without_source,
        &[
            ("left", |_| (), "HandOver"),
            (
                "another claim of the source's name",
                |w| {
                    w.claim = World::of_claim().claim;
                    w.claim["metadata"]["uid"] = "new".into();
                },
                "HandOver",
            ),
            (
                "of somebody else by now",
                |w| w.volume["spec"]["claimRef"]["uid"] = "x".into(),
                "Error: PV bound to wrong PVC",
            ),
            (
                "a foreign claim in the target's place",
                |w| {
                    w.target_claim = World::of_claim().claim;
                    w.target_claim["metadata"]["uid"] = "x".into();
                    w.target_claim["metadata"]["annotations"] = json!({});
                },
                "Error: The target exists already, and is not of this transfer",
            ),
        ],
    );
    check(
        handed_over,
        &[
            ("waits for the target", |_| (), "MakeTarget"),
            (
                "target made",
                |w| w.target_claim = target_of(&World::of_claim()),
                "Running: Waiting for target to be bound",
            ),
            (
                "handed to another one of that name",
                |w| {
                    w.target_claim = target_of(&World::of_claim());
                    w.volume["spec"]["claimRef"]["uid"] = "x".into();
                },
                "Error: PV bound to wrong PVC",
            ),
        ],
    );
    check(
        arrived,
        &[
            ("bound", |_| (), "Restore"),
            (
                "policy as it was",
                |w| w.volume["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into(),
                "Settle",
            ),
            (
                "mark off",
                |w| {
                    w.volume["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into();
                    w.target_claim["metadata"]["annotations"] = json!({});
                },
                "done: Transfer complete",
            ),
        ],
    );
}

#[test]
fn the_target_is_the_source_but_for_its_place() {
    use api::annotations::request;
    let mut world = World::of_claim();
    world.claim["metadata"]["annotations"] = json!({
        "kept": "yes", "pv.kubernetes.io/bind-completed": "yes", request::CLONE_TOKEN: "secret",
        state::OBJECT_TRANSFER_NAME: "move",
    });
    world.claim["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "x" }]);
    world.claim["metadata"]["labels"][api::labels::APPLY_STORAGE_PROFILE] = "true".into();
    world.claim["spec"]["dataSourceRef"] =
        json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "s" });
    let record = world.record();
    assert!(!record.source.contains("secret"), "{}", record.source);
    let made = world.with(|transfer, _| target_claim(transfer, &record).unwrap());
    assert_eq!(meta::namespace(&made.metadata), "other");
    assert_eq!(made.metadata.owner_references, None, "nothing owns across namespaces");
    let labels = made.metadata.labels.as_ref().unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), ["mine"], "nobody completes it again");
    let annotations = made.metadata.annotations.as_ref().unwrap();
    let keys: Vec<_> = annotations.keys().map(String::as_str).collect();
    assert_eq!(keys, [state::OBJECT_TRANSFER_NAME, "kept"]);
    let spec = made.spec.unwrap();
    assert_eq!(spec.volume_name.as_deref(), Some("pv"));
    assert_eq!((spec.data_source, spec.data_source_ref), (None, None), "it is full");

    world.transfer["spec"]["target"] = json!({ "name": "renamed" });
    let made = world.with(|transfer, _| target_claim(transfer, &record).unwrap());
    assert_eq!(meta::namespace(&made.metadata), "vms");
    assert_eq!(meta::name(&made.metadata), "renamed");
    assert!(made.metadata.owner_references.is_some());
}

#[test]
fn words_move_the_condition_and_only_new_ones_do() {
    let transfer: ObjectTransfer = parsed(&World::of_claim().transfer);
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut seen = transfer.clone();
    let first = status(&seen, &Told::new(Phase::Pending, "No source"), at(1));
    seen.status = Some(first.clone());
    assert_eq!(status(&seen, &Told::new(Phase::Pending, "No source"), at(2)), first);
    assert!(!is_over(&seen));
    seen.status = Some(status(&seen, &Told::new(Phase::Complete, "Transfer complete"), at(3)));
    assert!(is_over(&seen));
    let condition = &seen.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), (COMPLETE, TRUE));
}
