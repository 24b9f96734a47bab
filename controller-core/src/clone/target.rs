//! The annotations and labels of the target of a clone.

use api::annotations::{request, state};
use api::labels::{self, finalizer};
use api::v1beta1::{ClaimVolumeMode, VolumeCloneSource};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::origin::OriginKind;
use super::phase::Phase;
use super::plan::{ClonePlan, Strategy};
use super::reason::Fallback;
use crate::meta::{self, Changes, Pairs};
use crate::progress;

/// Reason of the condition `Running` while the storage clones.
const POPULATOR_IS_RUNNING: &str = "Populator is running";
const PENDING: &str = "Clone Pending";
const COMPLETE: &str = "Clone Complete";

/// The decision in the annotations of a target. `None`: no decision yet. `snapshot_class`: the class for a snapshot, if
/// one still has to be taken.
pub fn noted_plan(
    target: &ObjectMeta,
    origin: OriginKind,
    snapshot_class: Option<&str>,
) -> Option<ClonePlan> {
    // A DataVolume's annotations are copied to its PVC, so the annotation alone is no decision.
    if !has_finalizer(target) {
        return None;
    }
    let strategy = Strategy::named(meta::annotation(target, state::CLONE_TYPE)?)?;
    let note = meta::annotation(target, state::CLONE_FALLBACK_REASON);
    let note = note.map(|text| Fallback::Noted { text: text.to_owned() });
    match (strategy, origin) {
        (Strategy::CsiClone, OriginKind::Claim) => Some(ClonePlan::CsiClone),
        (Strategy::Snapshot, OriginKind::Claim) => {
            Some(ClonePlan::Snapshot { class: snapshot_class?.to_owned() })
        }
        (Strategy::Snapshot, OriginKind::Snapshot) => Some(ClonePlan::Restore),
        (Strategy::Copy, OriginKind::Claim) => Some(ClonePlan::Copy { because: note }),
        (Strategy::Copy, OriginKind::Snapshot) => {
            Some(ClonePlan::RestoreAndCopy { because: note? })
        }
        (Strategy::CsiClone, OriginKind::Snapshot) => None,
    }
}

/// The strategy that a user requests in an annotation of a target without a decision. Unknown values are ignored.
pub fn requested(target: &ObjectMeta) -> Option<Strategy> {
    let is_undecided = !has_finalizer(target);
    meta::annotation(target, state::CLONE_TYPE).filter(|_| is_undecided).and_then(Strategy::named)
}

/// The priority class that a VolumeCloneSource requests. Ignored for a DataVolume of another namespace: controllers of
/// earlier versions wrote its priority class, which does not apply here.
pub fn chosen_priority_class(source: &VolumeCloneSource) -> Option<&str> {
    let is_for_another_namespace =
        meta::has_annotation(&source.metadata, state::OWNED_BY_DATA_VOLUME);
    let class = source.spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
    class.filter(|_| !is_for_another_namespace)
}

/// Whether a controller has started a clone to this PVC, and has to delete its objects.
pub fn has_finalizer(target: &ObjectMeta) -> bool {
    let mut all = target.finalizers.iter().flatten();
    all.any(|name| name == finalizer::CLONE_POPULATOR)
}

/// Writes the decision to annotations of the target.
pub fn decided(target: &ObjectMeta, plan: &ClonePlan) -> Changes {
    let mut changes = Changes::default();
    changes.set(target, state::CLONE_TYPE, plan.strategy().as_str());
    let because = plan.fallback().map(ToString::to_string);
    changes.put(target, state::CLONE_FALLBACK_REASON, because.as_deref());
    changes
}

/// Missing labels of the target of a clone.
pub fn target_labels(target: &PersistentVolumeClaim) -> Pairs {
    let mut pairs = Pairs::new();
    let mut add = |key: &str, value: &str| {
        if meta::label(&target.metadata, key).is_none() {
            pairs.insert(key.to_owned(), value.to_owned());
        }
    };
    add(labels::APP, labels::APP_VALUE);
    if !meta::is_block(target) {
        add(labels::FILLING_UP_ALERT, "disabled");
    }
    pairs
}

/// Progress of a clone.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    pub phase: Phase,
    /// What it waits for, for a message to users.
    pub waits_for: &'a str,
    /// The limit of running clones is reached, and this one waits.
    pub is_queued: bool,
    /// The PVC that is populated for the target.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// Progress of the pods that copy, in percent.
    pub measured: Option<f64>,
}

/// Writes the progress to annotations of the target.
pub fn progressed(target: &ObjectMeta, progress: &Progress) -> Changes {
    let mut changes = Changes::default();
    changes.set(target, state::CLONE_PHASE, progress.phase.as_str());
    changes.remove(target, state::CLONE_ERROR);
    let known = meta::annotation(target, state::POPULATOR_PROGRESS);
    let measured = progress.measured.map(progress::percent);
    let shown = match progress.phase {
        Phase::Succeeded => progress::ALL,
        _ => progress::while_running(measured.as_deref().or(known)),
    };
    changes.set(target, state::POPULATOR_PROGRESS, shown);
    let copied = |key| progress.claim.and_then(|claim| meta::annotation(&claim.metadata, key));
    for key in [state::PREALLOCATION, state::CLONE_OF, state::POD_RESTARTS] {
        if let Some(value) = copied(key) {
            changes.set(target, key, value);
        }
    }
    // The pod that writes ends before the one that reads, and no controller waits for the latter.
    let is_copy = meta::annotation(target, state::CLONE_TYPE) == Some(Strategy::Copy.as_str());
    if is_copy && progress.phase == Phase::Succeeded {
        changes.set(target, state::CLONE_OF, "true");
    }
    if is_of_data_volume(target) {
        run(&mut changes, target, progress);
    }
    changes
}

/// Writes an error that lasts until a client changes an object to annotations of the target.
pub fn stuck(target: &ObjectMeta, why: &str) -> Changes {
    let mut changes = Changes::default();
    changes.set(target, state::CLONE_PHASE, Phase::Error.as_str());
    changes.set(target, state::CLONE_ERROR, why);
    if is_of_data_volume(target) {
        changes.set_running(target, false, "Error", why);
    }
    changes
}

fn is_of_data_volume(target: &ObjectMeta) -> bool {
    meta::controller(target).is_some_and(|owner| owner.kind == "DataVolume")
}

/// Annotations of the pod that writes, and of the one that reads.
const OF_PODS: [&str; 6] = [
    state::RUNNING,
    state::RUNNING_MESSAGE,
    state::RUNNING_REASON,
    state::SOURCE_RUNNING,
    state::SOURCE_RUNNING_MESSAGE,
    state::SOURCE_RUNNING_REASON,
];

fn run(changes: &mut Changes, target: &ObjectMeta, progress: &Progress) {
    let of_copy = progress.claim.filter(|claim| {
        progress.phase == Phase::HostClone && meta::has_annotation(&claim.metadata, state::RUNNING)
    });
    if let Some(claim) = of_copy {
        for key in OF_PODS {
            changes.put(target, key, meta::annotation(&claim.metadata, key));
        }
        return;
    }
    for key in [state::SOURCE_RUNNING, state::SOURCE_RUNNING_MESSAGE, state::SOURCE_RUNNING_REASON]
    {
        changes.remove(target, key);
    }
    let waits_for = match progress.waits_for {
        "" => String::new(),
        text => format!("Waits for {text}"),
    };
    match progress.phase {
        Phase::Succeeded => changes.set_running(target, false, "Completed", COMPLETE),
        _ if progress.is_queued => {
            changes.set_running(target, false, api::conditions::reason::QUEUED, &waits_for);
        }
        Phase::Pending | Phase::HostClone => {
            let message = if waits_for.is_empty() { PENDING } else { &waits_for };
            changes.set_running(target, false, "Pending", message);
        }
        _ => changes.set_running(target, true, POPULATOR_IS_RUNNING, &waits_for),
    }
}

/// The volume mode of a PVC.
pub fn mode_of(claim: &PersistentVolumeClaim) -> ClaimVolumeMode {
    if meta::is_block(claim) { ClaimVolumeMode::Block } else { ClaimVolumeMode::Filesystem }
}

/// Annotations of an earlier clone, on a DataVolume that was restored from a backup. Only the controllers set what pods
/// copy, and how.
pub const NOT_COPIED: [&str; 10] = [
    request::CLONE_REQUEST,
    state::CLONE_SOURCE_SNAPSHOT,
    state::CLONE_ON_ONE_NODE,
    state::EXTENDED_CLONE_TOKEN,
    state::CLONE_TYPE,
    state::CLONE_FALLBACK_REASON,
    state::CLONE_PHASE,
    state::CLONE_ERROR,
    state::CLONE_OF,
    state::DATA_SOURCE_NAMESPACE,
];

/// The UID of the PVC that a temporary PVC, snapshot or pod was created for, from its label. A UID prevents that a
/// client refers to the PVC of another one.
pub fn owner_uid(helper: &ObjectMeta) -> Option<&str> {
    meta::label(helper, labels::OWNED_BY_UID).filter(|uid| !uid.is_empty())
}

/// Namespace and name of the PVC that a temporary PVC was created for, which is not proven without [`owner_uid`].
pub fn owner(helper: &ObjectMeta) -> Option<(&str, &str)> {
    owner_uid(helper)?;
    meta::annotation(helper, state::EVENTS_SOURCE)?.split_once('/')
}

/// Whether the pods of a clone are retained after they have ended.
pub fn is_retained(target: &ObjectMeta) -> bool {
    let is_copy = meta::annotation(target, state::CLONE_TYPE) == Some(Strategy::Copy.as_str());
    is_copy && meta::is_true(target, request::RETAIN_PODS)
}
