//! A copy of a snapshot without a populator: the storage restores it to a temporary PVC in its namespace, pods copy
//! that, and then it is deleted.
//!
//! ```text
//! target bound ─► snapshot ready ─► restored to a PVC ─► bound, by a pod if needed ─► pods copy ─► PVC deleted
//!                                   SnapshotClone        PrepClaim                    HostClone
//! ```
//!
//! The name of the PVC is predictable for users who know the DataVolume, so it proves nothing: the PVC has a token that
//! only the controller can sign. A PVC without it belongs to another client.

use api::ClaimPhase;
use std::time::Duration;

use api::annotations::{request, state};
use api::labels::{self, component};
use api::v1beta1::{CdiConfig, ContentType, NodePlacement};
use api::{events, names};
use contract::ByteCount;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::driver_failure::warning_messages;
use super::facts::SnapshotState;
use super::objects::{self, Of};
use super::origin::{Origin, OriginKind};
use super::phase::Phase;
use super::prep_pod::{self, Prep};
use super::target::{mode_of, owner_uid};
use crate::bound::ObservedEvent;
use crate::event::Event;
use crate::meta::{self, Installation, Pairs};
use crate::plan::Write;
use crate::{claim, classes, copy, worker};

/// How often objects are polled whose changes cause no watch event here.
const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(15);

/// Inputs of the next step.
pub struct RestoreFacts<'a> {
    pub volume: &'a ObjectMeta,
    /// Its PVC, which pods will copy to.
    pub target: &'a PersistentVolumeClaim,
    /// Names the snapshot.
    pub origin: &'a Origin,
    /// The snapshot, if it exists.
    pub snapshot: Option<&'a SnapshotState>,
    /// The object with the name of the restored PVC.
    pub claim: RestoredPvc<'a>,
    /// The controller's signed mark for a new PVC of that name.
    pub mark: Option<&'a str>,
    /// Warnings about that PVC.
    pub pvc_warnings: &'a [ObservedEvent],
    /// The storage class of the restored PVC: the first of the driver.
    pub class: Option<&'a StorageClass>,
    /// The smallest size of a PVC of that class.
    pub least: Option<ByteCount>,
    /// The pod that binds it.
    pub pod: Option<&'a Pod>,
    /// The cloner's image.
    pub image: &'a str,
    /// Where worker pods may run.
    pub placement: Option<&'a NodePlacement>,
    /// The effective configuration.
    pub config: Option<&'a CdiConfig>,
    /// For the labels.
    pub installation: &'a Installation,
}

/// The object with the name of the PVC that a snapshot is restored to.
#[derive(Clone, Copy)]
pub enum RestoredPvc<'a> {
    Absent,
    /// The PVC that was created for this clone.
    Ours(&'a PersistentVolumeClaim),
    /// A PVC for the same DataVolume, restored from an earlier source.
    Earlier(&'a PersistentVolumeClaim),
    /// A PVC of another client, which is neither read nor changed.
    Foreign,
}

/// The next step, and its reports to users.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoreStep {
    /// With [`Phase::HostClone`] the restored PVC can be read.
    pub phase: Phase,
    pub write: Option<Write>,
    /// [`RestoreFacts::mark`] is needed for the PVC to create.
    pub needs_mark: bool,
    /// What it waits for, as the rest of a sentence that begins with "Waits for".
    pub waits_for: String,
    pub warning: Option<Event>,
    /// Set if no watch event reports the awaited change.
    pub look_again: Option<Duration>,
}

impl RestoreStep {
    fn waiting(phase: Phase, waits_for: impl Into<String>) -> Self {
        Self {
            phase,
            write: None,
            needs_mark: false,
            waits_for: waits_for.into(),
            warning: None,
            look_again: None,
        }
    }

    fn writing(self, write: Option<Write>) -> Self {
        Self { write, ..self }
    }

    fn stuck(phase: Phase, reason: &str, message: String) -> Self {
        let warning = Some(Event::warning(reason, message));
        Self { warning, look_again: Some(LATER), ..Self::waiting(phase, "") }
    }

    fn again(self, after: Duration) -> Self {
        Self { look_again: Some(after), ..self }
    }
}

/// The UID of the DataVolume, if an object has the label and the name of a restored PVC. Any user of the namespace can
/// create such an object.
pub fn restored_for(claim: &ObjectMeta) -> Option<&str> {
    owner_uid(claim).filter(|uid| names::restored_pvc(uid) == meta::name(claim))
}

/// The UID in such a name.
pub fn restored_uid(name: &str) -> Option<&str> {
    let (uid, _) = name.split_once(names::restored_pvc("").as_str())?;
    (!uid.is_empty() && names::restored_pvc(uid) == name).then_some(uid)
}

/// The snapshot that such a PVC was restored from. This field of a PVC is immutable.
pub fn restored_of(claim: &PersistentVolumeClaim) -> Option<Origin> {
    let source = claim.spec.as_ref()?.data_source.as_ref()?;
    let origin = Origin::referred_to(meta::namespace(&claim.metadata), source)?;
    (origin.kind == OriginKind::Snapshot).then_some(origin)
}

/// Namespace and name of the DataVolume that such a PVC, or the pod that binds it, was created for.
pub fn volume_of_restored(helper: &ObjectMeta) -> Option<(&str, &str)> {
    owner_uid(helper)?;
    meta::annotation(helper, state::OWNED_BY_DATA_VOLUME)?.split_once('/')
}

/// Name of the pod that binds such a PVC.
pub fn restored_pod_name(volume_uid: &str) -> String {
    format!("prep-{volume_uid}")
}

/// Whether it is that pod: it has the label, and mounts that PVC.
pub fn is_restored_pod(pod: &Pod, volume_uid: &str) -> bool {
    let claim = names::restored_pvc(volume_uid);
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    owner_uid(&pod.metadata) == Some(volume_uid)
        && volumes.any(|volume| {
            let source = volume.persistent_volume_claim.as_ref();
            source.is_some_and(|source| source.claim_name == claim)
        })
}

/// The next step, until pods can read the restored PVC.
pub fn restore(facts: &RestoreFacts) -> RestoreStep {
    match facts.claim {
        RestoredPvc::Foreign => {
            let name = names::restored_pvc(meta::uid(facts.volume));
            let namespace = &facts.origin.namespace;
            let message = format!(
                "PVC {namespace}/{name} was not created for this clone and is left unchanged: delete it to continue"
            );
            RestoreStep::stuck(Phase::Pending, events::RESOURCE_EXISTS, message)
        }
        RestoredPvc::Absent => restore_snapshot(facts),
        RestoredPvc::Ours(claim) if claim.metadata.deletion_timestamp.is_none() => {
            bind(facts, claim)
        }
        RestoredPvc::Ours(claim) | RestoredPvc::Earlier(claim) => {
            let waiting =
                RestoreStep::waiting(Phase::SnapshotClone, "an earlier claim of a snapshot to go");
            let waiting = waiting.again(SOON);
            match (facts.pod, &claim.metadata.deletion_timestamp) {
                // A mounted PVC is not deleted.
                (Some(pod), _) => waiting.writing(Write::delete(pod)),
                // By its UID: another PVC may have the name by now.
                (None, None) => waiting.writing(Write::delete(claim)),
                (None, Some(_)) => waiting,
            }
        }
    }
}

fn restore_snapshot(facts: &RestoreFacts) -> RestoreStep {
    let origin = facts.origin;
    let Some(snapshot) = facts.snapshot.filter(|snapshot| !snapshot.is_terminating) else {
        let message = format!("The source {} doesn't exist", origin.named());
        return RestoreStep::stuck(Phase::Pending, events::CLONE_WITHOUT_SOURCE, message);
    };
    if !snapshot.ready {
        let error = snapshot.error.as_deref().map(|error| format!("; it reports: {error}"));
        let name = &snapshot.name;
        let waits_for = format!("snapshot {name} to be ready to use{}", error.unwrap_or_default());
        return RestoreStep::waiting(Phase::SnapshotClone, waits_for).again(LATER);
    }
    let invalid =
        |message| RestoreStep::stuck(Phase::Pending, events::CLONE_VALIDATION_FAILED, message);
    let is_of_files = copy::content_of(&facts.target.metadata) == ContentType::Archive.as_str();
    if is_of_files && snapshot.mode.is_some_and(|mode| mode != mode_of(facts.target)) {
        return invalid(copy::Mismatch::Mode.to_string());
    }
    match claim_of(facts, snapshot) {
        Some(claim) => {
            let waits_for = "the storage to make a claim of the snapshot";
            let step = RestoreStep::waiting(Phase::SnapshotClone, waits_for);
            // Without its mark, the next reconcile would take the PVC for another client's.
            let marked = facts.mark.map(|mark| Write::create(marked(claim, mark)));
            RestoreStep { needs_mark: marked.is_none(), ..step.writing(marked) }
        }
        None => {
            let name = &snapshot.name;
            invalid(format!("there is no storage class of the driver that took snapshot {name:?}"))
        }
    }
}

/// A bound PVC can be read. If the storage waits for a consumer, a pod mounts the PVC until it is bound.
fn bind(facts: &RestoreFacts, claim: &PersistentVolumeClaim) -> RestoreStep {
    let is_bound = meta::claim_phase(claim) == ClaimPhase::Bound;
    let waits = facts.class.is_some_and(classes::waits_for_consumer);
    let preparing =
        || RestoreStep::waiting(Phase::PrepClaim, "the storage to bind the claim of the snapshot");
    if let Some(pod) = facts.pod {
        let phase = meta::pod_phase(pod);
        if pod.metadata.deletion_timestamp.is_some() {
            return preparing().again(SOON);
        }
        return if is_bound || phase.has_ended() {
            preparing().writing(Write::delete(pod)).again(SOON)
        } else {
            preparing().again(LATER)
        };
    }
    if is_bound {
        return RestoreStep::waiting(Phase::HostClone, "pods to copy the volume");
    }
    if waits {
        let pod = Write::create(pod_for(facts, claim));
        return preparing().writing(Some(pod)).again(LATER);
    }
    let warning = warning_messages(facts.pvc_warnings).last();
    let warning = warning.map(|message| format!("; it reports: {message}"));
    let waits_for =
        format!("the storage to make a claim of the snapshot{}", warning.unwrap_or_default());
    RestoreStep::waiting(Phase::SnapshotClone, waits_for)
}

fn marked(mut claim: PersistentVolumeClaim, mark: &str) -> PersistentVolumeClaim {
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(state::EXTENDED_CLONE_TOKEN.into(), mark.into());
    claim
}

fn marks(facts: &RestoreFacts) -> Pairs {
    let mut pairs = facts.installation.labels();
    pairs.insert(labels::OWNED_BY_UID.into(), meta::uid(facts.volume).into());
    pairs
}

fn notes(facts: &RestoreFacts) -> Pairs {
    let volume = format!("{}/{}", meta::namespace(facts.volume), meta::name(facts.volume));
    Pairs::from([
        (state::OWNED_BY_DATA_VOLUME.into(), volume),
        (state::OWNER_UID.into(), meta::uid(facts.volume).into()),
    ])
}

/// The PVC to create, with the size of the snapshot and at least the smallest size of its class. It copies only the
/// content type from the target, which has other storage and other owners. `None`: there is no class for it.
fn claim_of(facts: &RestoreFacts, snapshot: &SnapshotState) -> Option<PersistentVolumeClaim> {
    let wanted = || meta::requested(facts.target).and_then(meta::bytes);
    let size = snapshot.restore_size.filter(|size| size.get() > 0).or_else(wanted);
    let mode = snapshot.mode.unwrap_or(mode_of(facts.target));
    let mut spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".into()]),
        resources: size.max(facts.least).map(claim::request_of),
        storage_class_name: facts.class?.metadata.name.clone(),
        volume_mode: Some(mode.as_str().to_owned()),
        ..PersistentVolumeClaimSpec::default()
    };
    objects::set_data_source(&mut spec, &Of::Snapshot(&snapshot.name));
    let mut all_labels = marks(facts);
    all_labels.insert(labels::COMPONENT.into(), component::RESTORED.into());
    all_labels.insert(labels::EXCLUDE_FROM_BACKUP.into(), "true".into());
    let mut annotations = notes(facts);
    let content = copy::content_of(&facts.target.metadata);
    annotations.insert(request::CONTENT_TYPE.into(), content.into());
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(names::restored_pvc(meta::uid(facts.volume))),
            namespace: Some(snapshot.namespace.clone()),
            labels: Some(all_labels),
            annotations: Some(annotations),
            // No owner: it may be in another namespace, and a PVC that a DataVolume owns counts as its target.
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

fn pod_for(facts: &RestoreFacts, claim: &PersistentVolumeClaim) -> Pod {
    let (namespace, target) = (meta::namespace(&claim.metadata), &facts.target.metadata);
    prep_pod::build_prep_pod(Prep {
        name: restored_pod_name(meta::uid(facts.volume)),
        marks: marks(facts),
        notes: notes(facts),
        claim,
        passed_on: worker::passed_on_in(namespace, target, None),
        image: facts.image,
        placement: facts.placement,
        priority_class: worker::priority_class_in(namespace, target),
        config: facts.config,
    })
}

mod cleanup;

pub use cleanup::{RestoredCleanupFacts, needs_restored, plan_restored_cleanup};

#[cfg(test)]
mod tests;
