//! A snapshot that pods copy where there is no populator: the storage makes a claim of it, beside it, pods copy that, and
//! then it goes.
//!
//! ```text
//! the target is bound ─► snapshot ready ─► a claim is made of it ─► bound, by a pod if need be ─► pods copy ─► it goes
//!                                           SnapshotClone            PrepClaim                     HostClone
//! ```
//!
//! The claim has a name that anybody can foresee who knows the DataVolume. So the name says nothing: what counts is a mark
//! that only the controller can make, and a claim without it is somebody else's.

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

use super::facts::SnapshotState;
use super::objects::{self, Of};
use super::origin::{Origin, OriginKind};
use super::phase::Phase;
use super::prep_pod::{self, Prep};
use super::target::{mode_of, owner_uid};
use super::trouble::complaints;
use crate::bound::Seen;
use crate::event::Event;
use crate::meta::{self, Installation, Pairs};
use crate::plan::Write;
use crate::{claim, classes, copy, worker};

/// How often something is looked at again that nobody tells of.
const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(15);

/// What the next step depends on.
pub struct RestoreFacts<'a> {
    /// The DataVolume.
    pub volume: &'a ObjectMeta,
    /// Its claim, which pods are to copy to.
    pub target: &'a PersistentVolumeClaim,
    /// The snapshot, as it is named.
    pub origin: &'a Origin,
    /// The same, if it is there.
    pub snapshot: Option<&'a SnapshotState>,
    /// What has the name of the claim that is made of it.
    pub claim: RestoredPvc<'a>,
    /// The controller's mark for a new claim of that name.
    pub mark: Option<&'a str>,
    /// Warnings about that PVC.
    pub pvc_warnings: &'a [Seen],
    /// Its class, or the one that it is to have: the first of the driver.
    pub class: Option<&'a StorageClass>,
    /// The smallest claim of that class.
    pub least: Option<ByteCount>,
    /// The pod that binds it.
    pub pod: Option<&'a Pod>,
    /// The cloner's image.
    pub image: &'a str,
    /// Where worker pods may run.
    pub placement: Option<&'a NodePlacement>,
    /// The settings in force.
    pub config: Option<&'a CdiConfig>,
    /// For the labels.
    pub installation: &'a Installation,
}

/// What has the name of the claim that a snapshot becomes.
#[derive(Clone, Copy)]
pub enum RestoredPvc<'a> {
    /// Nothing.
    Absent,
    /// The claim that was made for this very clone.
    Ours(&'a PersistentVolumeClaim),
    /// One that was made for the same DataVolume, of what it was cloned from before.
    Earlier(&'a PersistentVolumeClaim),
    /// Something else, which is neither read nor touched.
    Foreign,
}

/// The next step, and what people are told.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoreStep {
    /// How far it is. With [`Phase::HostClone`] the claim can be read.
    pub phase: Phase,
    pub write: Option<Write>,
    /// [`RestoreFacts::mark`] is needed for the PVC to create.
    pub needs_mark: bool,
    /// What it waits for, as a sentence goes on.
    pub waits_for: String,
    /// What is wrong.
    pub warning: Option<Event>,
    /// Nobody is going to tell that something has changed.
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

    fn stuck(phase: Phase, reason: &str, words: String) -> Self {
        let warning = Some(Event::warning(reason, words));
        Self { warning, look_again: Some(LATER), ..Self::waiting(phase, "") }
    }

    fn again(self, after: Duration) -> Self {
        Self { look_again: Some(after), ..self }
    }
}

/// Whether an object has the label and the name of the claim that was made of a snapshot, which anybody can give it: then
/// it is the UID of the DataVolume.
pub fn restored_for(claim: &ObjectMeta) -> Option<&str> {
    owner_uid(claim).filter(|uid| names::restored_pvc(uid) == meta::name(claim))
}

/// The UID in such a name, whatever has it.
pub fn restored_uid(name: &str) -> Option<&str> {
    let (uid, _) = name.split_once(names::restored_pvc("").as_str())?;
    (!uid.is_empty() && names::restored_pvc(uid) == name).then_some(uid)
}

/// Of which snapshot such a claim was made. Nobody can change that of a claim.
pub fn restored_of(claim: &PersistentVolumeClaim) -> Option<Origin> {
    let source = claim.spec.as_ref()?.data_source.as_ref()?;
    let origin = Origin::referred_to(meta::namespace(&claim.metadata), source)?;
    (origin.kind == OriginKind::Snapshot).then_some(origin)
}

/// Namespace and name of the DataVolume that such a claim, or the pod that binds it, was made for.
pub fn volume_of_restored(helper: &ObjectMeta) -> Option<(&str, &str)> {
    owner_uid(helper)?;
    meta::annotation(helper, state::OWNED_BY_DATA_VOLUME)?.split_once('/')
}

/// The pod that binds such a claim.
pub fn restored_pod_name(volume_uid: &str) -> String {
    format!("prep-{volume_uid}")
}

/// Whether it is that pod: it has the label, and mounts that claim.
pub fn is_restored_pod(pod: &Pod, volume_uid: &str) -> bool {
    let claim = names::restored_pvc(volume_uid);
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    owner_uid(&pod.metadata) == Some(volume_uid)
        && volumes.any(|volume| {
            let source = volume.persistent_volume_claim.as_ref();
            source.is_some_and(|source| source.claim_name == claim)
        })
}

/// The next step, until pods can read what the storage made of the snapshot.
pub fn restore(facts: &RestoreFacts) -> RestoreStep {
    match facts.claim {
        RestoredPvc::Foreign => {
            let name = names::restored_pvc(meta::uid(facts.volume));
            let namespace = &facts.origin.namespace;
            let words = format!(
                "the claim {namespace}/{name} is not the one that was made for this clone: it is left alone, and has to go"
            );
            RestoreStep::stuck(Phase::Pending, events::RESOURCE_EXISTS, words)
        }
        RestoredPvc::Absent => begin(facts),
        RestoredPvc::Ours(claim) if claim.metadata.deletion_timestamp.is_none() => {
            bind(facts, claim)
        }
        RestoredPvc::Ours(claim) | RestoredPvc::Earlier(claim) => {
            let waiting =
                RestoreStep::waiting(Phase::SnapshotClone, "an earlier claim of a snapshot to go");
            let waiting = waiting.again(SOON);
            match (facts.pod, &claim.metadata.deletion_timestamp) {
                // Nothing that is mounted goes.
                (Some(pod), _) => waiting.writing(Write::delete(pod)),
                // By its UID: another PVC may have the name by now.
                (None, None) => waiting.writing(Write::delete(claim)),
                (None, Some(_)) => waiting,
            }
        }
    }
}

fn begin(facts: &RestoreFacts) -> RestoreStep {
    let origin = facts.origin;
    let Some(snapshot) = facts.snapshot.filter(|snapshot| !snapshot.leaving) else {
        let words = format!("The source {} doesn't exist", origin.named());
        return RestoreStep::stuck(Phase::Pending, events::CLONE_WITHOUT_SOURCE, words);
    };
    if !snapshot.ready {
        let said = snapshot.error.as_deref().map(|said| format!("; it says: {said}"));
        let name = &snapshot.name;
        let waits_for = format!("snapshot {name} to be ready to use{}", said.unwrap_or_default());
        return RestoreStep::waiting(Phase::SnapshotClone, waits_for).again(LATER);
    }
    let invalid =
        |words| RestoreStep::stuck(Phase::Pending, events::CLONE_VALIDATION_FAILED, words);
    let is_of_files = copy::content_of(&facts.target.metadata) == ContentType::Archive.as_str();
    if is_of_files && snapshot.mode.is_some_and(|mode| mode != mode_of(facts.target)) {
        return invalid(copy::Mismatch::Mode.to_string());
    }
    match claim_of(facts, snapshot) {
        Some(claim) => {
            let waits_for = "the storage to make a claim of the snapshot";
            let step = RestoreStep::waiting(Phase::SnapshotClone, waits_for);
            // Without its mark, the PVC would be another client's for the next pass.
            let marked = facts.mark.map(|mark| Write::create(marked(claim, mark)));
            RestoreStep { needs_mark: marked.is_none(), ..step.writing(marked) }
        }
        None => {
            let name = &snapshot.name;
            invalid(format!("there is no storage class of the driver that took snapshot {name:?}"))
        }
    }
}

/// A claim that is bound can be read. Where the storage waits for a consumer, a pod is one for a moment.
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
    let said = complaints(facts.pvc_warnings).last().map(|said| format!("; it says: {said}"));
    let waits_for =
        format!("the storage to make a claim of the snapshot{}", said.unwrap_or_default());
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

/// As large as the snapshot says, and no smaller than its class makes them. It takes nothing from the target but what is in
/// there: that is on other storage, and belongs to other people. `None`: there is no class for it.
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
    objects::made_of(&mut spec, &Of::Snapshot(&snapshot.name));
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
            // No owner: it may be in another namespace, and what a DataVolume owns counts as what it fills.
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

fn pod_for(facts: &RestoreFacts, claim: &PersistentVolumeClaim) -> Pod {
    let (namespace, target) = (meta::namespace(&claim.metadata), &facts.target.metadata);
    prep_pod::make(Prep {
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
