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

/// Everything that the next step depends on, as it is at the beginning.
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

fn leaving() -> Option<Value> {
    let mut claim = ours("Bound");
    claim.as_mut().unwrap()["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    claim
}

fn at(phase: &str) -> Option<Value> {
    Some(json!({ "metadata": { "name": "prep-1" }, "status": { "phase": phase } }))
}

/// Phase, what is done, and what is wrong.
fn said(step: &RestoreStep) -> String {
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
fn a_snapshot_becomes_a_claim_that_can_be_read_table() {
    type Change = fn(&mut Case);
    let table: [(&str, Change, &str); 17] = [
        ("ready", |_| (), "SnapshotClone: claim"),
        ("gone", |c| c.snapshot = None, "Pending: CloneWithoutSource"),
        ("going", |c| c.snapshot.as_mut().unwrap().leaving = true, "Pending: CloneWithoutSource"),
        ("not ready", |c| c.snapshot.as_mut().unwrap().ready = false, "SnapshotClone: "),
        ("no class", |c| c.has_class = false, "Pending: CloneValidationFailed"),
        ("made", |c| c.ours = ours("Pending"), "SnapshotClone: "),
        ("brand new", |c| c.ours = ours(""), "SnapshotClone: "),
        ("bound", |c| c.ours = ours("Bound"), "HostClone: "),
        (
            "bound, and the snapshot is gone",
            |c| (c.ours, c.snapshot) = (ours("Bound"), None),
            "HostClone: ",
        ),
        (
            "waits",
            |c| (c.ours, c.binding) = (ours("Pending"), "WaitForFirstConsumer"),
            "PrepClaim: pod",
        ),
        (
            "is bound by a pod",
            |c| (c.ours, c.pod) = (ours("Pending"), at("Running")),
            "PrepClaim: ",
        ),
        (
            "whose pod is done",
            |c| (c.ours, c.pod) = (ours("Bound"), at("Running")),
            "PrepClaim: no pod",
        ),
        (
            "whose pod came to nothing",
            |c| (c.ours, c.pod) = (ours("Pending"), at("Failed")),
            "PrepClaim: no pod",
        ),
        ("somebody else's", |c| c.foreign = true, "Pending: ErrResourceExists"),
        ("on its way out", |c| c.ours = leaving(), "SnapshotClone: "),
        (
            "on its way out, and held",
            |c| (c.ours, c.pod) = (leaving(), at("Running")),
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
        assert_eq!(said(&step), expected, "{case}");
        assert!(step.warning.is_some() == step.waits_for.is_empty(), "{case}: {step:?}");
        // Nobody tells of what is somebody else's, or of a snapshot.
        let polls = step.warning.is_some() || case.contains("not ready") || case.contains("going");
        assert!(!polls || step.look_again.is_some(), "{case}");
    }
}

fn made(case: Case) -> PersistentVolumeClaim {
    match case.step().write {
        Some(Write::Create(Object::PersistentVolumeClaim(claim))) => *claim,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_claim_is_as_large_as_the_snapshot_and_of_its_mode() {
    let size = |restore_size: Option<u64>, least: Option<u64>| {
        let mut case = Case::new();
        case.snapshot.as_mut().unwrap().restore_size = restore_size.map(ByteCount::new);
        case.least = least.map(ByteCount::new);
        meta::requested(&made(case)).unwrap().0.clone()
    };
    assert_eq!(size(Some(1 << 30), None), "1Gi");
    assert_eq!(size(Some(0), None), "2Gi", "the target's, where nobody knows");
    assert_eq!(size(None, None), "2Gi");
    assert_eq!(size(Some(1 << 30), Some(4 << 30)), "4Gi", "no smaller than the storage makes them");
    assert_eq!(size(Some(1 << 30), Some(1 << 20)), "1Gi");

    for (mode, expected) in [(Some(ClaimVolumeMode::Block), "Block"), (None, "Filesystem")] {
        let mut case = Case::new();
        case.snapshot.as_mut().unwrap().mode = mode;
        let spec = made(case).spec.unwrap();
        assert_eq!(spec.volume_mode.as_deref(), Some(expected));
    }
}

#[test]
fn files_become_no_device() {
    for (content, is_refused) in [("kubevirt", false), ("archive", true)] {
        let mut case = Case::new();
        case.target["metadata"]["annotations"] = json!({ request::CONTENT_TYPE: content });
        assert_eq!(case.step().warning.is_some(), is_refused, "{content}");
    }
}

#[test]
fn the_claim_says_whose_it_is_and_takes_nothing_from_the_target() {
    let mut case = Case::new();
    case.target["metadata"]["labels"] = json!({ "team": "blue" });
    case.target["metadata"]["annotations"] = json!({
        "volume.kubernetes.io/storage-provisioner": "of-the-target",
        request::SELECTED_NODE: "node", request::CLONE_REQUEST: "images/x",
    });
    let claim = made(case);
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
fn a_name_or_a_label_alone_is_not_enough() {
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
