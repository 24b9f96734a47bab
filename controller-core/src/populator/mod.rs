//! Fills a PVC from a source: a worker fills a prime PVC, and its volume is then rebound to the PVC.
//!
//! ```text
//! PVC ──── dataSourceRef ──► source        prime PVC "prime-<uid>", owned by the PVC
//!   │                                        │ worker fills it
//!   │ ◄── annotations, progress, events ──── │
//!   │ ◄── volume (claimRef moves) ────────── │ pod phase Succeeded
//!   ▼                                        ▼
//! Bound                                    Lost, deleted
//! ```

mod prime;
mod source;
mod writes;

use api::{ClaimPhase, PodPhase};
use std::time::Duration;

use api::annotations::{import, request, state};
use api::v1beta1::{CdiConfig, VolumeImportSourceSpec, VolumeUploadSourceSpec};
use api::{events, labels, names};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, TypedObjectReference};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::event::Event;
use crate::meta::{self, Changes, Installation, Pairs};
use crate::volume::PersistentVolume;
use crate::{claim, forklift, progress};

pub use source::{SourceObject, source_object};
pub use writes::populator_writes;

/// What a PVC is filled from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source<'a> {
    /// A VolumeImportSource.
    Import(&'a VolumeImportSourceSpec),
    /// A VolumeUploadSource.
    Upload(&'a VolumeUploadSourceSpec),
    /// One of forklift's kinds. The prime PVC has no annotations of it.
    Forklift,
}

impl Source<'_> {
    /// The kind that the target refers to.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Import(_) => "VolumeImportSource",
            Self::Upload(_) => "VolumeUploadSource",
            Self::Forklift => forklift::POPULATOR,
        }
    }
}

/// What the plan of a populator depends on.
pub struct Facts<'a> {
    /// The PVC that is to be filled.
    pub target: &'a PersistentVolumeClaim,
    /// What it refers to. `None`: it does not exist.
    pub source: Option<Source<'a>>,
    /// The class that the PVC names. `None`: it does not exist.
    pub class: Option<&'a StorageClass>,
    /// The PVC that the worker fills.
    pub prime: Option<&'a PersistentVolumeClaim>,
    /// The volume of the prime PVC.
    pub volume: Option<&'a PersistentVolume>,
    /// The progress of the worker, in percent.
    pub measured: Option<f64>,
    /// The effective settings.
    pub config: Option<&'a CdiConfig>,
    /// For the labels.
    pub installation: &'a Installation,
}

/// Why a PVC cannot be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The PVC requests a volume without a class.
    #[error("claim has emptystring storageclass, will not work")]
    EmptyClass,
    /// The class may have been deleted.
    #[error("storage class {name:?} not found")]
    NoClass {
        /// The class that the PVC names.
        name: String,
    },
    /// Volumes of such a provisioner cannot be moved.
    #[error("claims of the in-tree provisioner {provisioner:?} cannot be filled by a populator")]
    InTree {
        /// Of the class.
        provisioner: String,
    },
}

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum PopulatorPlan {
    /// The PVC refers to no source of these controllers.
    Ignore,
    /// Another client has to act first; a watch reports the change.
    Wait,
    /// Create the prime PVC.
    Create {
        prime: Box<PersistentVolumeClaim>,
        /// On the target.
        created: Event,
    },
    /// Copy the state of the prime PVC to the target.
    Follow(PrimeProgress),
}

/// What follows from the state of the prime PVC. The order matters: a client that sees that the content is complete
/// also sees the labels that came with it, and a client that sees the volume sees both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrimeProgress {
    /// Labels to add to the target.
    pub labels: Pairs,
    /// Annotations of the target.
    pub annotations: Changes,
    /// The new `claimRef` of the volume.
    pub rebind: Option<ObjectReference>,
    /// The prime PVC is no longer needed.
    pub delete_prime: bool,
    /// On the target.
    pub events: Vec<Event>,
    /// When to read the progress again, which no watch reports.
    pub look_again: Option<Duration>,
}

/// Annotations that the target has exactly as the prime PVC.
const MIRRORED: [&str; 16] = [
    state::SOURCE_VIRTUAL_SIZE,
    state::SOURCE_CAPACITY,
    state::POD_PHASE,
    state::POD_READY,
    state::POD_RESTARTS,
    state::PREALLOCATION_REQUESTED,
    state::PREALLOCATION,
    state::CHECKPOINT_CURRENT,
    state::CHECKPOINT_DONE,
    state::RUNNING,
    state::RUNNING_MESSAGE,
    state::RUNNING_REASON,
    state::POD_SCHEDULABLE,
    import::FATAL_ERROR,
    state::VDDK_HOST,
    state::VDDK_VERSION,
];

/// What to do for a PVC that refers to a source of these controllers.
///
/// # Errors
/// [`Error`], if the PVC can never be filled as it is.
pub fn plan(facts: &Facts) -> Result<PopulatorPlan, Error> {
    let target = facts.target;
    let metadata = &target.metadata;
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    let Some(reference) = reference else { return Ok(PopulatorPlan::Ignore) };
    if metadata.deletion_timestamp.is_some() || !is_meant(reference, metadata) {
        return Ok(PopulatorPlan::Ignore);
    }
    if let Some(prime) = facts.prime {
        // The source may be gone: the prime PVC has all that is needed.
        return Ok(PopulatorPlan::Follow(follow(facts, prime)));
    }
    let is_bound = meta::claim_phase(target) == ClaimPhase::Bound;
    if is_bound && !meta::has_annotation(metadata, state::PRIME) {
        return Ok(PopulatorPlan::Ignore);
    }
    if is_bound || meta::worker_phase(metadata) == PodPhase::Succeeded {
        return Ok(PopulatorPlan::Follow(finished(facts)));
    }
    let Some(source) = facts.source else { return Ok(PopulatorPlan::Wait) };
    if let Source::Import(spec) = source
        && spec.target_claim.as_deref().is_some_and(|name| name != meta::name(metadata))
    {
        return Ok(PopulatorPlan::Ignore);
    }
    if !is_placed(facts)? {
        return Ok(PopulatorPlan::Wait);
    }
    let prime = prime::object(facts, source);
    let message = format!("PVC Prime {} created successfully", meta::name(&prime.metadata));
    let created = Event::normal(events::PRIME_CREATED, message);
    Ok(PopulatorPlan::Create { prime: Box::new(prime), created })
}

/// Whether a reference is to a group of these controllers, and to the namespace of its PVC.
fn is_meant(reference: &TypedObjectReference, target: &ObjectMeta) -> bool {
    let namespace = reference.namespace.as_deref();
    match reference.api_group.as_deref() {
        Some(names::GROUP) => namespace.is_none(),
        // These may name the namespace of the PVC.
        Some(names::FORKLIFT_GROUP) => {
            namespace.is_none_or(|name| name.is_empty() || name == meta::namespace(target))
        }
        _ => false,
    }
}

/// Whether the storage class exists, and a node is chosen if the class waits for it.
fn is_placed(facts: &Facts) -> Result<bool, Error> {
    let target = facts.target;
    let name = target.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let name = match name {
        None => return Ok(false),
        Some("") => return Err(Error::EmptyClass),
        Some(name) => name,
    };
    let class = facts.class.ok_or_else(|| Error::NoClass { name: name.to_owned() })?;
    let moved = meta::has_annotation(&target.metadata, state::MIGRATED_TO);
    if class.provisioner.starts_with("kubernetes.io/") && !moved {
        return Err(Error::InTree { provisioner: class.provisioner.clone() });
    }
    Ok(!claim::waits_for_consumer(target, Some(class)))
}

fn follow(facts: &Facts, prime: &PersistentVolumeClaim) -> PrimeProgress {
    let target = &facts.target.metadata;
    let noted = |key| meta::annotation(&prime.metadata, key);
    let is_upload = is_upload(facts);
    let pod_phase = noted(state::POD_PHASE).unwrap_or_default();
    let is_paused =
        noted(state::CHECKPOINT_CURRENT).is_some() && noted(state::CHECKPOINT_DONE) != Some("true");
    let is_filled = pod_phase == "Succeeded" && !is_paused;
    let mut follow = PrimeProgress::default();

    let is_changed =
        |key| noted(key).is_some_and(|value| meta::annotation(target, key) != Some(value));
    let has_changes = MIRRORED.into_iter().any(is_changed);
    if !is_upload && !meta::has_annotation(target, state::PRIME) && !has_changes {
        // The name of the prime PVC is written with its first report. Clients that upload look for it at once.
        return follow;
    }
    for key in MIRRORED {
        follow.annotations.put(target, key, noted(key));
    }
    let annotations = &mut follow.annotations;
    if is_filled && is_upload {
        // Clients take a PVC with this annotation for one that still waits for an upload.
        annotations.remove(target, state::PRIME);
    } else {
        annotations.set(target, state::PRIME, meta::name(&prime.metadata));
    }
    let measured = facts.measured.map(progress::percent);
    let known = meta::annotation(target, state::POPULATOR_PROGRESS);
    let is_ready = !is_upload || noted(state::POD_READY) == Some("true");
    let shown = if is_filled {
        progress::ALL
    } else {
        // A server that was lost has lost the data that it had received.
        progress::while_running(measured.as_deref().or(known.filter(|_| is_ready)))
    };
    annotations.set(target, state::POPULATOR_PROGRESS, shown);

    let before = meta::annotation(target, state::POD_PHASE).unwrap_or_default();
    if pod_phase != before {
        follow.events.extend(phase_event(facts, is_upload, pod_phase, is_paused));
    }
    follow.look_again = (pod_phase == "Running").then(|| {
        if is_upload { progress::upload_poll(facts.measured, known) } else { progress::POLL }
    });
    if !is_filled {
        return follow;
    }
    follow.labels = offered_labels(facts.target, prime);
    let is_retained = meta::is_true(target, request::RETAIN_PODS);
    match meta::claim_phase(facts.target) {
        ClaimPhase::Bound => {
            follow.delete_prime = meta::claim_phase(prime) == ClaimPhase::Lost && !is_retained;
            if is_retained && meta::claim_phase(prime) == ClaimPhase::Lost && before != pod_phase {
                let message = format!("PVC Prime {} retained", meta::name(&prime.metadata));
                follow.events.push(Event::warning(events::PRIME_RETAINED, message));
            }
        }
        _ => follow.rebind = rebind(facts.target, prime, facts.volume),
    }
    follow
}

/// The prime PVC has been deleted, since the target has its volume.
fn finished(facts: &Facts) -> PrimeProgress {
    let mut follow = PrimeProgress::default();
    if is_upload(facts) {
        follow.annotations.remove(&facts.target.metadata, state::PRIME);
    }
    follow
}

fn is_upload(facts: &Facts) -> bool {
    let reference = facts.target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    reference.is_some_and(|reference| reference.kind == "VolumeUploadSource")
}

fn phase_event(facts: &Facts, is_upload: bool, pod_phase: &str, is_paused: bool) -> Option<Event> {
    let name = meta::name(&facts.target.metadata);
    let failed = |reason, what| Some(Event::warning(reason, format!("{what} into {name} failed")));
    let done = |reason, what| Some(Event::normal(reason, format!("{what} into {name} succeeded")));
    match (pod_phase, is_upload) {
        ("Failed", true) => failed(events::UPLOAD_FAILED, "upload"),
        ("Failed", false) => failed(events::POPULATOR_IMPORT_FAILED, "import"),
        ("Succeeded", true) => done(events::UPLOAD_SUCCEEDED, "upload"),
        ("Succeeded", false) if is_paused => {
            let message = format!("Multistage import into PVC {name} is paused");
            Some(Event::normal(events::IMPORT_PAUSED, message))
        }
        ("Succeeded", false) => done(events::POPULATOR_IMPORT_SUCCEEDED, "import"),
        _ => None,
    }
}

/// Labels that came with the content. The target's own stay.
fn offered_labels(target: &PersistentVolumeClaim, prime: &PersistentVolumeClaim) -> Pairs {
    let offered = prime.metadata.labels.iter().flatten();
    offered
        .filter(|(key, _)| labels::is_copied(key) && meta::label(&target.metadata, key).is_none())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The new `claimRef` of the volume. `None`: it has that already, or it is not the volume of the prime PVC.
fn rebind(
    target: &PersistentVolumeClaim,
    prime: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
) -> Option<ObjectReference> {
    let owner = volume?.spec.as_ref()?.claim_ref.as_ref()?;
    // Never the volume of another PVC, whatever its name.
    if owner.uid.as_deref() != Some(meta::uid(&prime.metadata)) {
        return None;
    }
    Some(ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        name: target.metadata.name.clone(),
        namespace: target.metadata.namespace.clone(),
        uid: target.metadata.uid.clone(),
        resource_version: target.metadata.resource_version.clone(),
        ..ObjectReference::default()
    })
}

#[cfg(test)]
mod tests;
