//! The objects that are created for a clone in the namespace of the source, and deleted with it.

use api::annotations::{request, state};
use api::labels;
use api::v1beta1::ContentType;
use contract::ByteCount;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
    TypedObjectReference,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::facts::{Facts, Source};
use crate::meta::{self, Pairs};
use crate::own_keys::without_own;
use crate::snapshot::{VolumeSnapshot, VolumeSnapshotOrigin, VolumeSnapshotSpec};
use crate::{claim, worker};

/// Group and version of snapshots.
const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// This project's annotations that a temporary PVC gets from the target. All others are instructions to or status of
/// this project's controllers: the owner of the target must not give instructions in the namespace of the source.
const COPIED: [&str; 6] = [
    request::BIND_IMMEDIATE,
    request::RETAIN_PODS,
    request::CONTENT_TYPE,
    request::PERMISSIVE_CLONE,
    request::PRIORITY_CLASS,
    state::PREALLOCATION_REQUESTED,
];
/// A VolumeSnapshot to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub namespace: String,
    pub name: String,
    pub labels: Pairs,
    pub class: String,
    /// The PVC that it is taken of.
    pub claim: String,
}

impl Snapshot {
    pub fn into_object(self) -> VolumeSnapshot {
        VolumeSnapshot {
            metadata: ObjectMeta {
                name: Some(self.name),
                namespace: Some(self.namespace),
                labels: Some(self.labels),
                ..ObjectMeta::default()
            },
            spec: VolumeSnapshotSpec {
                source: VolumeSnapshotOrigin {
                    persistent_volume_claim_name: Some(self.claim),
                    volume_snapshot_content_name: None,
                },
                volume_snapshot_class_name: Some(self.class),
            },
            status: None,
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "apiVersion": format!("{SNAPSHOT_GROUP}/v1"),
            "kind": "VolumeSnapshot",
            "metadata": { "name": self.name, "namespace": self.namespace, "labels": self.labels },
            "spec": {
                "volumeSnapshotClassName": self.class,
                "source": { "persistentVolumeClaimName": self.claim },
            },
        })
    }
}

/// Labels by which all objects of the clone are found.
pub(super) fn marks(facts: &Facts) -> Pairs {
    let mut pairs = facts.installation.labels();
    pairs.insert(labels::OWNED_BY_UID.into(), meta::uid(&facts.target.metadata).into());
    pairs
}

/// The snapshot of a PVC.
pub(super) fn snapshot(facts: &Facts, class: &str, of: &str) -> Snapshot {
    Snapshot {
        namespace: facts.source.namespace().to_owned(),
        name: facts.names().snapshot,
        labels: marks(facts),
        class: class.to_owned(),
        claim: of.to_owned(),
    }
}

/// The data source of a PVC.
pub(super) enum Of<'a> {
    Claim(&'a str),
    Snapshot(&'a str),
}

/// The PVC that the storage populates, and whose volume is rebound to the target.
pub(super) fn claim_of(facts: &Facts, of: &Of, size: Option<ByteCount>) -> PersistentVolumeClaim {
    let mut spec = claim::same_storage(facts.target);
    if let Some(size) = size {
        spec.resources = Some(claim::request_of(size));
    }
    set_data_source(&mut spec, of);
    temporary(facts, facts.names().claim, Pairs::new(), spec)
}

/// The PVC that pods copy `source` to.
pub(super) fn claim_to_copy_to(facts: &Facts, source: &str) -> PersistentVolumeClaim {
    let target = &facts.target.metadata;
    let mut annotations = Pairs::from([
        (request::CLONE_REQUEST.into(), format!("{}/{source}", facts.source.namespace())),
        (state::PREALLOCATION_REQUESTED.into(), facts.preallocation.to_string()),
        (state::OWNER_UID.into(), meta::uid(target).to_owned()),
        (state::POD_RESTARTS.into(), "0".into()),
        // Both PVCs are in one namespace, so that one pod may mount both.
        (state::CLONE_ON_ONE_NODE.into(), "true".into()),
        (request::BIND_IMMEDIATE.into(), String::new()),
    ]);
    if meta::annotation(target, request::CONTENT_TYPE).is_none() {
        annotations.insert(request::CONTENT_TYPE.into(), ContentType::Kubevirt.as_str().into());
    }
    if let Some(class) = facts.priority_class {
        annotations.insert(request::PRIORITY_CLASS.into(), class.into());
    }
    let spec = claim::same_storage(facts.target);
    temporary(facts, facts.names().claim, annotations, spec)
}

/// The PVC that is restored from a snapshot, to be copied. `None`: there is no class for it.
pub(super) fn source_claim(facts: &Facts) -> Option<PersistentVolumeClaim> {
    let Source::Snapshot(snapshot) = facts.source else { return None };
    let mode = snapshot.mode.map(|mode| mode.as_str().to_owned());
    let of_target = facts.target.spec.as_ref().and_then(|spec| spec.volume_mode.clone());
    let size = snapshot.restore_size.filter(|size| size.get() > 0).or(facts.wanted());
    let mut spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".into()]),
        resources: size.map(claim::request_of),
        storage_class_name: facts.restore_class?.metadata.name.clone(),
        volume_mode: mode.or(of_target),
        ..PersistentVolumeClaimSpec::default()
    };
    set_data_source(&mut spec, &Of::Snapshot(&snapshot.name));
    let mut claim = temporary(facts, facts.names().source_claim, Pairs::new(), spec);
    // The node of the target's consumer does not matter for this PVC.
    claim.metadata.annotations.get_or_insert_default().remove(request::SELECTED_NODE);
    Some(claim)
}

pub(super) fn set_data_source(spec: &mut PersistentVolumeClaimSpec, of: &Of) {
    let (group, kind, name) = match of {
        Of::Claim(name) => (None, "PersistentVolumeClaim", name),
        Of::Snapshot(name) => (Some(SNAPSHOT_GROUP.to_owned()), "VolumeSnapshot", name),
    };
    let (kind, name) = (kind.to_owned(), (*name).to_owned());
    spec.data_source = Some(TypedLocalObjectReference {
        api_group: group.clone(),
        kind: kind.clone(),
        name: name.clone(),
    });
    spec.data_source_ref =
        Some(TypedObjectReference { api_group: group, kind, name, namespace: None });
}

/// The annotations or labels that a temporary PVC gets from the target: those of other projects, and of this project's
/// own those in `ours`.
fn inherited(of_target: Option<&Pairs>, ours: &[&str]) -> Pairs {
    without_own(of_target.cloned().unwrap_or_default(), ours)
}

/// Annotations for networks and service mesh of the pods of the clone, which run in the namespace of the source.
pub(super) fn passed_on(facts: &Facts) -> Pairs {
    let source = match &facts.source {
        Source::Claim { claim, .. } => Some(&claim.metadata),
        Source::Snapshot(_) => None,
    };
    worker::passed_on_in(facts.source.namespace(), &facts.target.metadata, source)
}

/// A PVC in the namespace of the source with the annotations and labels from the target and the labels of the clone.
fn temporary(
    facts: &Facts,
    name: String,
    more: Pairs,
    spec: PersistentVolumeClaimSpec,
) -> PersistentVolumeClaim {
    let target = &facts.target.metadata;
    let mut all_labels = inherited(target.labels.as_ref(), &[]);
    all_labels.extend(marks(facts));
    all_labels.insert(labels::EXCLUDE_FROM_BACKUP.into(), "true".into());
    let mut annotations = inherited(target.annotations.as_ref(), &COPIED);
    let of_target = format!("{}/{}", meta::namespace(target), meta::name(target));
    annotations.insert(state::POPULATOR_KIND.into(), "VolumeCloneSource".into());
    annotations.insert(state::EVENTS_SOURCE_KIND.into(), "PersistentVolumeClaim".into());
    annotations.insert(state::EVENTS_SOURCE.into(), of_target);
    if meta::namespace(target) != facts.source.namespace() {
        annotations.retain(|key, _| {
            key != request::PRIORITY_CLASS && !worker::PASSED_ON.contains(&key.as_str())
        });
        // The pods that populate this PVC get them from here.
        annotations.extend(passed_on(facts));
    }
    annotations.extend(more);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(facts.source.namespace().to_owned()),
            labels: Some(all_labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_keys::tests::known;

    #[test]
    fn only_listed_cdi_annotations_and_labels_are_copied_to_a_temporary_pvc() {
        let with = |mut keys: Vec<&str>, more: &[&'static str]| -> Pairs {
            keys.extend(more);
            keys.into_iter().map(|key| (key.to_owned(), "x".to_owned())).collect()
        };
        let annotations = known(include_str!("../../../api/src/annotations.rs"));
        assert!(annotations.len() > 90 && annotations.contains(&state::UPLOAD_POD_NAME));
        let more = [
            "cdi.kubevirt.io/storage.import.extraHeaders.0",
            "cdi.kubevirt.io/new",
            "forklift.cdi.kubevirt.io/new",
            "example.com/tier",
        ];
        let kept = inherited(Some(&with(annotations, &more)), &COPIED);
        // Annotations for networks and service mesh, the selected node, and those of other projects.
        let foreign = [
            request::SELECTED_NODE,
            request::MULTUS_NETWORKS,
            request::MULTUS_DEFAULT_NETWORK,
            request::ISTIO_INJECT,
            request::LINKERD_INJECT,
            "example.com/tier",
        ];
        for key in foreign.iter().chain(&COPIED) {
            assert!(kept.contains_key(*key), "{key}");
        }
        for key in kept.keys() {
            let is_ours = key.to_lowercase().contains("cdi.kube") || key.starts_with("k8s.io/");
            assert!(!is_ours || COPIED.contains(&key.as_str()), "{key}");
        }

        let labels = known(include_str!("../../../api/src/labels.rs"));
        assert!(labels.contains(&labels::DATA_IMPORT_CRON));
        let kept = inherited(Some(&with(labels, &["team"])), &[]);
        assert!(kept.contains_key(labels::DEFAULT_PREFERENCE) && kept.contains_key("team"));
        assert!(kept.keys().all(|key| !key.contains("cdi.kubevirt.io")), "{kept:?}");
    }
}
