//! The objects of a transfer, and its steps as text.

use super::*;

pub(super) fn parsed<K: DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).unwrap()
}

/// All that a step depends on, as JSON.
#[derive(Clone)]
pub(super) struct TransferObjects {
    pub(super) transfer: Value,
    pub(super) claim: Value,
    pub(super) volume: Value,
    pub(super) is_used: bool,
    pub(super) target_claim: Value,
    pub(super) is_reserved: bool,
    pub(super) data_volume: Value,
    pub(super) target_data_volume: Value,
    pub(super) child: Value,
    pub(super) is_noted: bool,
}

impl TransferObjects {
    /// A PVC with its volume, marked by the transfer that moves it from `vms` to `other`.
    pub(super) fn of_claim() -> Self {
        let mark = json!({ state::OBJECT_TRANSFER_NAME: "move", "kept": "yes" });
        Self {
            transfer: json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "ObjectTransfer",
                "metadata": {
                    "name": "move", "uid": "t", "finalizers": [finalizer::OBJECT_TRANSFER],
                },
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
    pub(super) fn of_data_volume() -> Self {
        let mut objects = Self::of_claim();
        objects.transfer["spec"]["source"]["kind"] = "DataVolume".into();
        objects.data_volume = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {
                "name": "disk", "namespace": "vms", "uid": "d",
                "annotations": { state::OBJECT_TRANSFER_NAME: "move" },
            },
            "spec": { "source": { "blank": {} } },
            "status": { "phase": SUCCEEDED },
        });
        objects.claim["metadata"]["annotations"] = json!({});
        objects.claim["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": "d",
            "controller": true,
        }]);
        objects
    }

    pub(super) fn with<R>(&self, inspect: impl FnOnce(&ObjectTransfer, &TransferFacts) -> R) -> R {
        fn present<K: DeserializeOwned>(value: &Value) -> Option<K> {
            (!value.is_null()).then(|| parsed(value))
        }
        let mut transfer: ObjectTransfer = parsed(&self.transfer);
        let mut facts = TransferFacts {
            record: None,
            claim: present(&self.claim),
            volume: present(&self.volume),
            is_used: self.is_used,
            target_claim: present(&self.target_claim),
            is_reserved: self.is_reserved,
            data_volume: present(&self.data_volume),
            target_data_volume: present(&self.target_data_volume),
            child: present(&self.child),
            is_target_accepted: false,
        };
        let original = match moved(&transfer.spec) {
            Some(Moved::DataVolume) => Self::of_data_volume(),
            _ => Self::of_claim(),
        };
        if self.is_noted {
            let record = original.record();
            transfer.status.get_or_insert_default().data = Some(record.to_data());
            facts.record = Record::from_status(&transfer);
            assert_eq!(facts.record, Some(record), "it is read as it was written");
        }
        inspect(&transfer, &facts)
    }

    pub(super) fn record(&self) -> Record {
        self.with(|transfer, facts| Record::from_facts(&transfer.spec, facts).unwrap())
    }

    pub(super) fn step(&self) -> String {
        self.with(|transfer, facts| described(&plan_transfer(transfer, facts, at(1))))
    }
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The one write of a step, or what it reports.
pub(super) fn described(step: &Decision<TargetDryRun>) -> String {
    let plan = match step {
        Decision::LookUp(target) => {
            let names = target.data_volume.iter().map(|volume| named(&volume.metadata));
            let names = names.chain(target.claim.iter().map(|claim| named(&claim.metadata)));
            return format!("try {}", names.collect::<Vec<_>>().join(", "));
        }
        Decision::Execute(plan) => plan,
    };
    let text = match (plan.writes.as_slice(), &plan.status) {
        ([write], None) => write_described(write),
        ([], Some(patch)) => {
            let message = patch.status["conditions"][0]["message"].as_str().unwrap();
            format!("{}: {message}", patch.status["phase"].as_str().unwrap())
        }
        other => panic!("a step is one write or a report: {other:?}"),
    };
    match plan.requeue {
        Requeue::Now => text,
        Requeue::After(delay) => {
            assert_eq!(delay, POLL);
            format!("{text} ...")
        }
        Requeue::OnChange => format!("{text}."),
    }
}

fn write_described(write: &Write) -> String {
    match write {
        Write::Create(Object::PersistentVolumeClaim(it)) => {
            format!("create PersistentVolumeClaim {}", named(&it.metadata))
        }
        Write::Create(Object::DataVolume(it)) => {
            format!("create DataVolume {}", named(&it.metadata))
        }
        Write::Create(Object::ObjectTransfer(it)) => {
            format!("create ObjectTransfer {}", named(&it.metadata))
        }
        Write::Patch { target, merge, guarded: true } => {
            format!("patch {:?} {}: {merge}", target.kind, target.key)
        }
        Write::Delete(target) => format!("delete {:?} {}", target.kind, target.key),
        Write::SetFinalizer { target, presence: Presence::Absent, .. } => {
            format!("release {:?} {}", target.kind, target.key)
        }
        other => panic!("no step has this write: {other:?}"),
    }
}

pub(super) fn named(metadata: &ObjectMeta) -> String {
    Key::new(meta::namespace(metadata), meta::name(metadata)).to_string()
}

/// The target as the transfer creates it.
pub(super) fn target_of(objects: &TransferObjects) -> Value {
    let record = objects.record();
    let created = objects.with(|transfer, _| target_claim(transfer, &record).unwrap());
    let mut created = json!(created);
    created["metadata"]["uid"] = "c2".into();
    created["status"] = json!({ "phase": "Pending" });
    created
}

pub(super) fn under_way() -> TransferObjects {
    TransferObjects { is_noted: true, ..TransferObjects::of_claim() }
}

pub(super) fn retained() -> TransferObjects {
    let mut objects = under_way();
    objects.volume["spec"]["persistentVolumeReclaimPolicy"] = RETAIN.into();
    objects
}

pub(super) fn without_source() -> TransferObjects {
    TransferObjects { claim: Value::Null, ..retained() }
}

pub(super) fn with_rebound_volume() -> TransferObjects {
    let mut objects = without_source();
    objects.volume["spec"]["claimRef"] = json!({ "namespace": "other", "name": "disk" });
    objects
}

pub(super) fn arrived() -> TransferObjects {
    let mut objects = with_rebound_volume();
    objects.target_claim = target_of(&TransferObjects::of_claim());
    objects.target_claim["status"]["phase"] = "Bound".into();
    objects.volume["spec"]["claimRef"]["uid"] = "c2".into();
    objects
}
