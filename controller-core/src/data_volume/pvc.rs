//! The PVC of a DataVolume: created, adopted, annotated, or left alone.

use std::ops::ControlFlow;

use api::annotations::request;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::facts::{DataVolumeFacts, Decision, Failure, Lookup};
use super::plan::{Planned, looked_up, write_now};
use super::{PvcBlocker, clone_pvc, external, labels, static_volume};
use crate::operation::{Operation, PopulationMode};
use crate::ownership::{self, Ownership};
use crate::plan::{Plan, Requeue, Write};
use crate::populator::{SourceObject, source_object};
use crate::{bound, claim, clone, components, meta};

/// What the status reports of the PVC, besides what the PVC reports itself.
#[derive(Clone, Debug)]
pub(super) enum PvcState {
    /// It is there, or must not be created.
    Settled,
    WaitsForStaticVolume,
    Blocked {
        blocker: PvcBlocker,
        failure: Option<Failure>,
    },
    /// Nothing in the cluster populates it.
    Unpopulated(PvcBlocker),
}

impl PvcState {
    /// A watch reports when the blocker is gone.
    pub(super) fn blocked(blocker: PvcBlocker) -> Self {
        Self::Blocked { blocker, failure: None }
    }

    pub(super) fn blocker(&self) -> Option<&PvcBlocker> {
        match self {
            Self::Settled | Self::WaitsForStaticVolume => None,
            Self::Blocked { blocker, .. } | Self::Unpopulated(blocker) => Some(blocker),
        }
    }
}

/// The controller in whose name events about the DataVolume are recorded.
pub(super) fn component(facts: &DataVolumeFacts) -> &'static str {
    match facts.operation {
        Operation::Upload => components::DATA_VOLUME_UPLOAD,
        Operation::External => components::DATA_VOLUME_EXTERNAL,
        Operation::Clone => clone::component(facts.clone.origin.as_ref()),
        Operation::Import(_) | Operation::Undecided => components::DATA_VOLUME_IMPORT,
    }
}

/// Brings the PVC of the DataVolume's name one write further; each write ends the planning.
pub(super) fn plan_pvc(facts: &DataVolumeFacts, population: PopulationMode) -> Planned<PvcState> {
    if facts.is_clone() {
        // Labels of the source come before the PVC, which copies them from the DataVolume.
        write_now(labels::metadata_write(facts, population)?)?;
    }
    if static_volume::plan_static_volume(facts, population)? {
        return ControlFlow::Continue(PvcState::WaitsForStaticVolume);
    }
    let Some(claim) = facts.claim.as_deref() else {
        if meta::has_annotation(&facts.volume.metadata, request::PRE_POPULATED) {
            return ControlFlow::Continue(PvcState::Settled);
        }
        return plan_creation(facts, population);
    };
    match ownership::decide_ownership(&facts.volume, claim, &facts.config) {
        Ownership::Ours => {}
        Ownership::Adopt => write_now([adoption(facts, claim)])?,
        // A watch reports when the PVC changes.
        Ownership::Refused(event) => {
            let blocker = PvcBlocker::foreign_claim(event);
            return ControlFlow::Continue(PvcState::blocked(blocker));
        }
    }
    plan_annotations(facts, population, claim)?;
    let blocker = match facts.operation {
        Operation::External if !is_complete(facts, population, claim) => {
            external::blocker_of(facts, claim)
        }
        _ => None,
    };
    ControlFlow::Continue(blocker.map_or(PvcState::Settled, PvcState::Unpopulated))
}

fn is_complete(
    facts: &DataVolumeFacts,
    population: PopulationMode,
    claim: &PersistentVolumeClaim,
) -> bool {
    let operation = (&facts.operation, population);
    ownership::is_complete(&facts.volume, claim, operation, &facts.config)
}

fn adoption(facts: &DataVolumeFacts, claim: &PersistentVolumeClaim) -> Write {
    let owner = &facts.volume.metadata;
    let owner = meta::owned_by(api::data_volume::API_VERSION, "DataVolume", owner);
    let mut owners = claim.metadata.owner_references.clone().unwrap_or_default();
    owners.push(owner);
    // Guarded, because the list is replaced as a whole.
    Write::guarded_patch(claim, json!({ "metadata": { "ownerReferences": owners } }))
}

/// Creates the PVC, and before it what it refers to.
fn plan_creation(facts: &DataVolumeFacts, population: PopulationMode) -> Planned<PvcState> {
    let mut object = match rendered(facts, population)? {
        Ok(object) => object,
        Err(error) => {
            // Retried, unless a watch reports what may correct it.
            let failure = (!error.waits_for_storage()).then(|| Failure::InvalidPvc(error.clone()));
            let blocker = PvcBlocker::invalid(&error);
            return ControlFlow::Continue(PvcState::Blocked { blocker, failure });
        }
    };
    let mut plan = Plan {
        requeue: Requeue::Now,
        // The watch has not reported a PVC of this name that was there. When it does, it wakes this controller.
        requeue_if_exists: Some(Requeue::OnChange),
        ..Plan::default()
    };
    // The sources first: who sees the PVC finds what it refers to.
    if facts.is_clone() {
        match clone_pvc::prepare(facts, population, &mut object)? {
            Ok(writes) => plan.writes.extend(writes),
            Err(event) => {
                let blocker = PvcBlocker::of_source(event);
                return ControlFlow::Continue(PvcState::blocked(blocker));
            }
        }
        if population == PopulationMode::Legacy {
            plan.record(component(facts), &object, [clone::no_populator()]);
        }
    } else if population == PopulationMode::Populator {
        plan.writes.extend(source_object(&facts.volume, &facts.operation).map(
            |source| match source {
                SourceObject::Import(source) => Write::create(*source),
                SourceObject::Upload(source) => Write::create(*source),
            },
        ));
    }
    plan.writes.push(Write::create(object));
    ControlFlow::Break(Decision::Execute(plan))
}

/// The PVC that the DataVolume describes.
pub(super) fn rendered(
    facts: &DataVolumeFacts,
    population: PopulationMode,
) -> Planned<Result<PersistentVolumeClaim, claim::Error>> {
    let settings = looked_up(facts.lookups.pvc_settings.as_ref(), || Lookup::PvcSettings)?;
    let of_claim = claim::Facts {
        volume: &facts.volume,
        classes: &facts.classes,
        profiles: &settings.profiles,
        volumes: &settings.volumes,
        config: settings.config.as_deref(),
        installation: &settings.installation,
    };
    ControlFlow::Continue(claim::object(&of_claim, &facts.operation, population))
}

/// What the DataVolume writes to a PVC of its own, and to the source of that.
fn plan_annotations(
    facts: &DataVolumeFacts,
    population: PopulationMode,
    claim: &PersistentVolumeClaim,
) -> Planned<()> {
    let mut writes = Vec::new();
    // A populator annotates its PVC itself, with more.
    if population == PopulationMode::Legacy || facts.operation == Operation::External {
        let changes = bound::annotations(claim, facts.prime.as_deref(), &facts.pvc_warnings);
        writes.extend(Write::annotations(claim, &changes));
    }
    writes.extend(added_checkpoints(facts, population));
    if facts.is_clone() && !is_complete(facts, population, claim) {
        match token_of_claim(facts, claim)? {
            Ok(write) => writes.extend(write),
            Err(failure) => {
                let plan = Plan::writes(writes);
                return ControlFlow::Break(Decision::ExecuteAndFail(plan, failure));
            }
        }
    }
    writes.extend(populated_for(facts, population, claim));
    write_now(writes)
}

/// Checkpoints that were added to the DataVolume, for the source that its PVC is filled from.
fn added_checkpoints(facts: &DataVolumeFacts, population: PopulationMode) -> Option<Write> {
    let is_in_stages = facts.volume.spec.checkpoints.is_some();
    let source = facts.import_source.as_ref().filter(|_| is_in_stages)?;
    if population != PopulationMode::Populator {
        return None;
    }
    let Some(SourceObject::Import(wanted)) = source_object(&facts.volume, &facts.operation) else {
        return None;
    };
    let (present, wanted) = (&source.spec, &wanted.spec);
    let is_same = (&present.checkpoints, present.final_checkpoint)
        == (&wanted.checkpoints, wanted.final_checkpoint);
    let merge = || {
        json!({ "spec": {
            "checkpoints": wanted.checkpoints, "finalCheckpoint": wanted.final_checkpoint,
        } })
    };
    (!is_same).then(|| Write::patch(source.as_ref(), merge()))
}

/// A token for a PVC that is not complete, bound to its UID, so that no other PVC of its name can use it. A complete PVC that
/// was moved, restored or adopted needs no permission to read what it was once cloned from.
fn token_of_claim(
    facts: &DataVolumeFacts,
    claim: &PersistentVolumeClaim,
) -> Planned<Result<Option<Write>, Failure>> {
    let namespace = meta::namespace(&facts.volume.metadata);
    let origin = facts.clone.origin.as_ref().filter(|origin| origin.namespace != namespace);
    let Some(origin) = origin.filter(|_| !clone_pvc::has_extended_token(&claim.metadata)) else {
        return ControlFlow::Continue(Ok(None));
    };
    if let Err(refusal) = clone_pvc::permission(facts, origin)? {
        return ControlFlow::Continue(Err(Failure::CloneNotAllowed(refusal.clone())));
    }
    let write = clone_pvc::extended_token(facts, origin, claim)?;
    ControlFlow::Continue(Ok(Some(write)))
}

/// A DataVolume that has succeeded and names its PVC as populated records that on the PVC too, for clients that restore both.
fn populated_for(
    facts: &DataVolumeFacts,
    population: PopulationMode,
    claim: &PersistentVolumeClaim,
) -> Option<Write> {
    let value = meta::annotation(&facts.volume.metadata, request::POPULATED_FOR)?;
    let phase = facts.volume.status.as_ref()?.phase.as_deref();
    let is_missing = !meta::has_annotation(&claim.metadata, request::POPULATED_FOR);
    if phase != Some("Succeeded") || !is_missing || !is_complete(facts, population, claim) {
        return None;
    }
    let mut changes = meta::Changes::default();
    changes.set(&claim.metadata, request::POPULATED_FOR, value);
    Write::annotations(claim, &changes)
}
