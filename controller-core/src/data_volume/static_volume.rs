//! PersistentVolumes that a user has reserved for a DataVolume, as restores do: the PVC is bound to one of them, and nothing
//! is imported.
//!
//! ```text
//! annotation checkStaticVolume ─► a volume is reserved ─► PVC that lists it ─► bound to it ─► populated
//!                                └─ none ─► the DataVolume's own source
//! ```

use std::ops::ControlFlow;

use api::ClaimPhase;
use api::annotations::{request, state};
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::facts::{DataVolumeFacts, Decision, Failure, Lookup};
use super::plan::{Planned, looked_up, write_now};
use super::pvc;
use crate::meta::{self, Changes};
use crate::operation::PopulationMode;
use crate::plan::{Plan, Requeue, Write};
use crate::volume::PersistentVolume;
use crate::{claim, clone, ownership};

/// What follows for the PVC of a DataVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StaticVolume {
    /// Nothing: the PVC is populated in another way, or has been bound before.
    Ignore,
    /// The PVC is not bound yet.
    Wait,
    /// It is bound to a reserved volume: these annotations mark it as populated.
    Populated(Changes),
    /// It is bound to another volume, and has to be deleted.
    Unexpected { volume: String },
}

/// Whether the DataVolume waits for a static volume. Creates the PVC for it, and annotates the PVC once it is bound to it.
pub(super) fn plan_static_volume(
    facts: &DataVolumeFacts,
    population: PopulationMode,
) -> Planned<bool> {
    if !meta::has_annotation(&facts.volume.metadata, request::CHECK_STATIC_VOLUME) {
        return ControlFlow::Continue(false);
    }
    let Some(claim) = facts.claim.as_deref() else {
        return plan_creation(facts, population);
    };
    match static_volume(&facts.volume, claim, population) {
        StaticVolume::Ignore => ControlFlow::Continue(false),
        StaticVolume::Wait => ControlFlow::Continue(true),
        StaticVolume::Populated(changes) => {
            write_now(Write::annotations(claim, &changes))?;
            ControlFlow::Continue(false)
        }
        StaticVolume::Unexpected { volume } => {
            let plan = Plan::writes(Write::delete(claim));
            let failure = Failure::UnexpectedVolume { volume };
            ControlFlow::Break(Decision::ExecuteAndFail(plan, failure))
        }
    }
}

fn plan_creation(facts: &DataVolumeFacts, population: PopulationMode) -> Planned<bool> {
    let volumes = looked_up(facts.lookups.reserved_volumes.as_ref(), || Lookup::ReservedVolumes)?;
    if volumes.is_empty() {
        return ControlFlow::Continue(false);
    }
    let Ok(claim) = pvc::rendered(facts, population)? else {
        return ControlFlow::Continue(false);
    };
    let claim = claim_for(claim, volumes.iter().map(AsRef::as_ref));
    ControlFlow::Break(Decision::Execute(Plan {
        requeue: Requeue::Now,
        requeue_if_exists: Some(Requeue::OnChange),
        ..Plan::writes([Write::create(claim)])
    }))
}

/// Whether `volume` is reserved for the DataVolume with this metadata, and free.
pub fn is_reserved_for(volume: &PersistentVolume, data_volume: &ObjectMeta) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    phase == Some("Available")
        && owner.is_some_and(|owner| {
            owner.namespace.as_deref() == Some(meta::namespace(data_volume))
                && owner.name.as_deref() == Some(meta::name(data_volume))
        })
}

/// A plain PVC for the reserved volumes: what it gets is full already, whether its source is still there or not.
fn claim_for<'a>(
    mut claim: PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume> + Clone,
) -> PersistentVolumeClaim {
    let mut names: Vec<_> = volumes.clone().map(|volume| meta::name(&volume.metadata)).collect();
    names.sort_unstable();
    let is_sized = meta::is_sized(&claim);
    let spec = claim.spec.get_or_insert_default();
    spec.data_source = None;
    spec.data_source_ref = None;
    if !is_sized {
        // The size of a clone is that of its source, which is not looked at here.
        let capacities = volumes.filter_map(|volume| volume.capacity());
        spec.resources = capacities.min().map(claim::request_of);
    }
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| {
        !key.starts_with("cdi.kubevirt.io/storage.import.")
            && !clone::NOT_COPIED.contains(&key.as_str())
    });
    annotations.insert(state::PERSISTENT_VOLUME_LIST.into(), json!(names).to_string());
    annotations.remove(request::UPLOAD_TARGET);
    claim
}

/// What follows for the PVC of a DataVolume that requests a static volume.
fn static_volume(
    data_volume: &DataVolume,
    claim: &PersistentVolumeClaim,
    population: PopulationMode,
) -> StaticVolume {
    let name = meta::name(&data_volume.metadata);
    let mut changes = Changes::default();
    changes.set(&claim.metadata, request::POPULATED_FOR, name);
    let Some(listed) = meta::annotation(&claim.metadata, state::PERSISTENT_VOLUME_LIST) else {
        return if is_bound_unlisted(data_volume, claim, population) {
            StaticVolume::Populated(changes)
        } else {
            StaticVolume::Ignore
        };
    };
    if meta::claim_phase(claim) != ClaimPhase::Bound {
        return StaticVolume::Wait;
    }
    let listed: Vec<String> = serde_json::from_str(listed).unwrap_or_default();
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    if !listed.contains(&volume) {
        return StaticVolume::Unexpected { volume };
    }
    changes.remove(&claim.metadata, state::PERSISTENT_VOLUME_LIST);
    StaticVolume::Populated(changes)
}

/// Whether the PVC was bound to a volume that was reserved after the PVC was created. A populator binds its PVC only at the
/// end, so a bound PVC for which none has begun has another client's volume.
fn is_bound_unlisted(
    data_volume: &DataVolume,
    claim: &PersistentVolumeClaim,
    population: PopulationMode,
) -> bool {
    let metadata = &claim.metadata;
    let has_begun = clone::has_finalizer(metadata)
        || [state::PRIME, state::POD_PHASE].iter().any(|key| meta::has_annotation(metadata, key))
        || meta::annotation(metadata, state::CLONE_PHASE) == Some("Succeeded");
    let is_ours = meta::controller(metadata)
        .is_some_and(|owner| owner.uid == meta::uid(&data_volume.metadata));
    population == PopulationMode::Populator
        && is_ours
        && meta::claim_phase(claim) == ClaimPhase::Bound
        && !has_begun
        && !ownership::is_populated_for(data_volume, claim)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn claim(phase: &str, volume: &str, annotations: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {
                "name": "disk", "namespace": "vms", "annotations": annotations,
                "ownerReferences": [{ "apiVersion": "v", "kind": "DataVolume", "name": "disk",
                                      "uid": "1", "controller": true }],
            },
            "spec": { "volumeName": volume }, "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn static_volume_decision_table() {
        let data_volume: DataVolume = serde_json::from_value(json!({
            "apiVersion": "v", "kind": "k", "spec": {},
            "metadata": { "name": "disk", "namespace": "vms", "uid": "1" },
        }))
        .unwrap();
        let listed = || json!({ state::PERSISTENT_VOLUME_LIST: r#"["pv-1"]"# });
        let begun = json!({ state::PRIME: "prime-2" });
        let populator = PopulationMode::Populator;
        for (case, claim, population, expected) in [
            ("listed, pending", claim("Pending", "", listed()), populator, "wait"),
            ("listed, bound", claim("Bound", "pv-1", listed()), populator, "populated 2"),
            ("listed, bound to another", claim("Bound", "pv-2", listed()), populator, "not pv-2"),
            ("unlisted, pending", claim("Pending", "", json!({})), populator, "ignore"),
            ("unlisted, bound", claim("Bound", "pv-1", json!({})), populator, "populated 1"),
            ("populator has begun", claim("Bound", "pv-1", begun), populator, "ignore"),
            ("legacy", claim("Bound", "pv-1", json!({})), PopulationMode::Legacy, "ignore"),
        ] {
            let found = match static_volume(&data_volume, &claim, population) {
                StaticVolume::Ignore => "ignore".to_owned(),
                StaticVolume::Wait => "wait".to_owned(),
                StaticVolume::Populated(changes) => format!("populated {}", changes.0.len()),
                StaticVolume::Unexpected { volume } => format!("not {volume}"),
            };
            assert_eq!(found, expected, "{case}");
        }
    }
}
