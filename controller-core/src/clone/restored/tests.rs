use api::v1beta1::ClaimVolumeMode;
use serde_json::{Value, json};

use super::*;
use crate::object::{Object, ObjectKind};

const NAME: &str = "1-host-assisted-source-pvc";

fn claim(value: Value) -> PersistentVolumeClaim {
    serde_json::from_value(value).unwrap()
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

/// Inputs of a step, initially those of the first one.
struct Case {
    snapshot: Option<SnapshotState>,
    ours: Option<Value>,
    earlier: bool,
    foreign: bool,
    pod: Option<Value>,
    binding: &'static str,
    target: Value,
    least: Option<ByteCount>,
    has_class: bool,
    mark: Option<&'static str>,
}

fn ready() -> SnapshotState {
    SnapshotState {
        name: "golden".into(),
        namespace: "images".into(),
        taken: true,
        ready: true,
        restore_size: Some(ByteCount::new(1 << 30)),
        mode: Some(ClaimVolumeMode::Block),
        ..SnapshotState::default()
    }
}

impl Case {
    fn new() -> Self {
        Self {
            snapshot: Some(ready()),
            ours: None,
            earlier: false,
            foreign: false,
            pod: None,
            binding: "Immediate",
            target: json!({
                "metadata": { "name": "disk", "namespace": "vms", "uid": "2" },
                "spec": { "resources": { "requests": { "storage": "2Gi" } } },
                "status": { "phase": "Bound" },
            }),
            least: None,
            has_class: true,
            mark: Some("signed"),
        }
    }

    fn step(self) -> RestoreStep {
        let volume: ObjectMeta =
            serde_json::from_value(json!({ "name": "disk", "namespace": "vms", "uid": "1" }))
                .unwrap();
        let class: StorageClass = serde_json::from_value(json!({
            "metadata": { "name": "fast" }, "provisioner": "p", "volumeBindingMode": self.binding,
        }))
        .unwrap();
        let origin = Origin {
            kind: OriginKind::Snapshot,
            namespace: "images".into(),
            name: "golden".into(),
        };
        let (target, ours) = (claim(self.target), self.ours.map(claim));
        let pod = self.pod.map(pod);
        restore(&RestoreFacts {
            volume: &volume,
            target: &target,
            origin: &origin,
            snapshot: self.snapshot.as_ref(),
            claim: match &ours {
                Some(claim) if self.earlier => RestoredPvc::Earlier(claim),
                Some(claim) => RestoredPvc::Ours(claim),
                None if self.foreign => RestoredPvc::Foreign,
                None => RestoredPvc::Absent,
            },
            mark: self.mark,
            pvc_warnings: &[],
            class: Some(&class).filter(|_| self.has_class),
            least: self.least,
            pod: pod.as_ref(),
            image: "cloner",
            placement: None,
            config: None,
            installation: &Installation::default(),
        })
    }
}

fn ours(phase: &str) -> Option<Value> {
    Some(json!({
        "metadata": { "name": NAME, "namespace": "images" }, "status": { "phase": phase },
    }))
}

fn terminating() -> Option<Value> {
    let mut claim = ours("Bound");
    claim.as_mut().unwrap()["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    claim
}

fn at(phase: &str) -> Option<Value> {
    Some(json!({ "metadata": { "name": "prep-1" }, "status": { "phase": phase } }))
}

/// Phase, action and warning of a step.
fn summary(step: &RestoreStep) -> String {
    let action = match &step.write {
        None => "",
        Some(Write::Create(Object::PersistentVolumeClaim(_))) => "claim",
        Some(Write::Create(Object::Pod(_))) => "pod",
        Some(Write::Delete(target)) if target.kind == ObjectKind::Pod => "no pod",
        Some(Write::Delete(_)) => "no claim",
        Some(other) => panic!("{other:?}"),
    };
    let warning = step.warning.as_ref().map(|event| event.reason.clone()).unwrap_or_default();
    format!("{}: {action}{warning}", step.phase.as_str())
}

#[test]
fn restore_step_decision_table() {
    type Change = fn(&mut Case);
    let table: [(&str, Change, &str); 17] = [
        ("ready", |_| (), "SnapshotClone: claim"),
        ("gone", |c| c.snapshot = None, "Pending: CloneWithoutSource"),
        (
            "terminating",
            |c| c.snapshot.as_mut().unwrap().is_terminating = true,
            "Pending: CloneWithoutSource",
        ),
        ("not ready", |c| c.snapshot.as_mut().unwrap().ready = false, "SnapshotClone: "),
        ("no class", |c| c.has_class = false, "Pending: CloneValidationFailed"),
        ("pending", |c| c.ours = ours("Pending"), "SnapshotClone: "),
        ("without a phase", |c| c.ours = ours(""), "SnapshotClone: "),
        ("bound", |c| c.ours = ours("Bound"), "HostClone: "),
        (
            "bound, and the snapshot is gone",
            |c| (c.ours, c.snapshot) = (ours("Bound"), None),
            "HostClone: ",
        ),
        (
            "waits for a consumer",
            |c| (c.ours, c.binding) = (ours("Pending"), "WaitForFirstConsumer"),
            "PrepClaim: pod",
        ),
        (
            "pending, with a pod",
            |c| (c.ours, c.pod) = (ours("Pending"), at("Running")),
            "PrepClaim: ",
        ),
        (
            "bound, with a pod",
            |c| (c.ours, c.pod) = (ours("Bound"), at("Running")),
            "PrepClaim: no pod",
        ),
        (
            "pending, with a failed pod",
            |c| (c.ours, c.pod) = (ours("Pending"), at("Failed")),
            "PrepClaim: no pod",
        ),
        ("foreign", |c| c.foreign = true, "Pending: ErrResourceExists"),
        ("terminating PVC", |c| c.ours = terminating(), "SnapshotClone: "),
        (
            "terminating PVC, mounted by a pod",
            |c| (c.ours, c.pod) = (terminating(), at("Running")),
            "SnapshotClone: no pod",
        ),
        (
            "of an earlier snapshot",
            |c| (c.ours, c.earlier) = (ours("Bound"), true),
            "SnapshotClone: no claim",
        ),
    ];
    for (case, change, expected) in table {
        let mut facts = Case::new();
        change(&mut facts);
        let step = facts.step();
        assert_eq!(summary(&step), expected, "{case}");
        assert!(step.warning.is_some() == step.waits_for.is_empty(), "{case}: {step:?}");
        // No watch event reports changes of foreign PVCs and of snapshots.
        let polls = step.warning.is_some() || case.contains("not ready") || case == "terminating";
        assert!(!polls || step.look_again.is_some(), "{case}");
    }
}

fn created(case: Case) -> PersistentVolumeClaim {
    match case.step().write {
        Some(Write::Create(Object::PersistentVolumeClaim(claim))) => *claim,
        other => panic!("{other:?}"),
    }
}

#[test]
fn restored_pvc_has_the_size_and_mode_of_the_snapshot() {
    let size = |restore_size: Option<u64>, least: Option<u64>| {
        let mut case = Case::new();
        case.snapshot.as_mut().unwrap().restore_size = restore_size.map(ByteCount::new);
        case.least = least.map(ByteCount::new);
        meta::requested(&created(case)).unwrap().0.clone()
    };
    assert_eq!(size(Some(1 << 30), None), "1Gi");
    assert_eq!(
        size(Some(0), None),
        "2Gi",
        "the size of the target if that of the snapshot is unknown"
    );
    assert_eq!(size(None, None), "2Gi");
    assert_eq!(
        size(Some(1 << 30), Some(4 << 30)),
        "4Gi",
        "at least the smallest size of the class"
    );
    assert_eq!(size(Some(1 << 30), Some(1 << 20)), "1Gi");

    for (mode, expected) in [(Some(ClaimVolumeMode::Block), "Block"), (None, "Filesystem")] {
        let mut case = Case::new();
        case.snapshot.as_mut().unwrap().mode = mode;
        let spec = created(case).spec.unwrap();
        assert_eq!(spec.volume_mode.as_deref(), Some(expected));
    }
}

#[test]
fn archive_is_not_restored_to_another_volume_mode() {
    for (content, is_refused) in [("kubevirt", false), ("archive", true)] {
        let mut case = Case::new();
        case.target["metadata"]["annotations"] = json!({ request::CONTENT_TYPE: content });
        assert_eq!(case.step().warning.is_some(), is_refused, "{content}");
    }
}

#[test]
fn restored_pvc_names_its_data_volume_and_copies_nothing_from_the_target() {
    let mut case = Case::new();
    case.target["metadata"]["labels"] = json!({ "team": "blue" });
    case.target["metadata"]["annotations"] = json!({
        "volume.kubernetes.io/storage-provisioner": "of-the-target",
        request::SELECTED_NODE: "node", request::CLONE_REQUEST: "images/x",
    });
    let claim = created(case);
    assert_eq!(restored_for(&claim.metadata), Some("1"));
    assert_eq!(volume_of_restored(&claim.metadata), Some(("vms", "disk")));
    assert_eq!(restored_of(&claim).unwrap().to_string(), "snapshot images/golden");
    assert_eq!(claim.metadata.owner_references, None);
    let annotations: Vec<_> =
        claim.metadata.annotations.iter().flatten().map(|(k, _)| &**k).collect();
    assert_eq!(
        annotations,
        [
            state::OWNED_BY_DATA_VOLUME,
            state::OWNER_UID,
            request::CONTENT_TYPE,
            state::EXTENDED_CLONE_TOKEN
        ]
    );
    assert!(meta::label(&claim.metadata, "team").is_none());
}

#[test]
fn restored_pvc_is_recognized_by_name_and_label_together() {
    let named = |name: &str, uid: &str| -> ObjectMeta {
        let labels = json!({ labels::OWNED_BY_UID: uid });
        serde_json::from_value(json!({ "name": name, "labels": labels })).unwrap()
    };
    assert_eq!(restored_for(&named(NAME, "1")), Some("1"));
    assert_eq!(restored_for(&named(NAME, "2")), None);
    assert_eq!(restored_for(&named(NAME, "")), None);
    assert_eq!(restored_for(&named("disk", "1")), None);
    for (name, expected) in
        [(NAME, Some("1")), ("-host-assisted-source-pvc", None), ("1", None), ("1-host", None)]
    {
        assert_eq!(restored_uid(name), expected, "{name}");
    }
    let mounts = |claim: &str, uid: &str| {
        pod(json!({
            "metadata": { "name": "prep-1", "labels": { labels::OWNED_BY_UID: uid } },
            "spec": {
                "containers": [],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }],
            },
        }))
    };
    assert!(is_restored_pod(&mounts(NAME, "1"), "1"));
    assert!(!is_restored_pod(&mounts(NAME, "2"), "1"));
    assert!(!is_restored_pod(&mounts("tmp-pvc-1", "1"), "1"), "of another kind of clone");
}

#[test]
fn claim_of_a_snapshot_is_not_created_without_its_mark() {
    let step = Case { mark: None, ..Case::new() }.step();
    assert_eq!((step.write, step.needs_mark), (None, true));
    assert!(!Case::new().step().needs_mark);
}
