//! Which DataVolume a PVC belongs to.

use api::ClaimPhase;
use api::annotations::{request, state};
use api::events;
use api::names;
use api::v1beta1::{CdiConfigSpec, DataVolume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use crate::config;
use crate::event::Event;
use crate::meta;
use crate::operation::{Operation, PopulationMode};
use crate::plan::Write;

/// The relation of a DataVolume to the PVC of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The DataVolume owns the PVC.
    Ours,
    /// The PVC has no controller and is filled: it becomes the DataVolume's.
    Adopt,
    /// The PVC belongs to another owner or is terminating. The DataVolume waits, and an event reports it.
    Refused(Event),
}

/// The relation of a DataVolume to the PVC of its name.
pub fn decide_ownership(
    volume: &DataVolume,
    claim: &PersistentVolumeClaim,
    config: &CdiConfigSpec,
) -> Ownership {
    let name = meta::name(&claim.metadata);
    if claim.metadata.deletion_timestamp.is_some() {
        let message = format!("Resource \"{name}\" marked for deletion");
        return Ownership::Refused(Event::warning(events::RESOURCE_MARKED_FOR_DELETION, message));
    }
    let owner = meta::controller(&claim.metadata);
    if owner.is_some_and(|owner| owner.uid == meta::uid(&volume.metadata)) {
        return Ownership::Ours;
    }
    if owner.is_some_and(|owner| is_of_predecessor(volume, owner)) {
        let message = format!("Resource \"{name}\" of an earlier DataVolume is being deleted");
        return Ownership::Refused(Event::normal(events::RESOURCE_MARKED_FOR_DELETION, message));
    }
    // A PVC has one controller: one that another object controls cannot be adopted.
    if owner.is_none() && !requires_work(volume, Some(claim), config) {
        return Ownership::Adopt;
    }
    let message = format!("Resource \"{name}\" already exists and is not managed by DataVolume");
    Ownership::Refused(Event::warning(events::RESOURCE_EXISTS, message))
}

/// Whether the owner is a DataVolume that had the same name. It does not exist any more, so its PVC is deleted too; or that has
/// happened already, and the watch of PVCs has not reported it yet.
fn is_of_predecessor(volume: &DataVolume, owner: &OwnerReference) -> bool {
    owner.kind == "DataVolume"
        && owner.api_version == api::data_volume::API_VERSION
        && owner.name == meta::name(&volume.metadata)
}

/// Whether the PVC still has to be filled, according to its annotations. One that does not exist has to be.
pub fn requires_work(
    volume: &DataVolume,
    claim: Option<&PersistentVolumeClaim>,
    config: &CdiConfigSpec,
) -> bool {
    claim.is_none_or(|claim| !is_populated_for(volume, claim) && !may_adopt(volume, claim, config))
}

/// Whether the PVC has all of its content. A populator binds a PVC only when it is complete; one that a worker fills in
/// place is complete when its pod has succeeded. PVCs of the legacy mode without a record of a worker are complete
/// unless they were created for this very DataVolume: then their worker has not started.
pub fn is_complete(
    volume: &DataVolume,
    claim: &PersistentVolumeClaim,
    (operation, population): (&Operation, PopulationMode),
    config: &CdiConfigSpec,
) -> bool {
    if !requires_work(volume, Some(claim), config) {
        return true;
    }
    let is_bound = meta::claim_phase(claim) == ClaimPhase::Bound;
    if population == PopulationMode::Populator || *operation == Operation::External {
        return is_bound;
    }
    match meta::annotation(&claim.metadata, state::POD_PHASE).filter(|phase| !phase.is_empty()) {
        Some(pod_phase) => is_bound && pod_phase == "Succeeded",
        None => is_bound && !is_created_for(volume, claim),
    }
}

fn is_created_for(volume: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    let created_for = meta::annotation(&claim.metadata, state::CREATED_FOR_DATA_VOLUME);
    created_for.is_some() && created_for == volume.metadata.uid.as_deref()
}

/// Whether an annotation declares that the PVC has the content of this DataVolume.
pub fn is_populated_for(volume: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    let populated = meta::annotation(&claim.metadata, request::POPULATED_FOR);
    populated.is_some() && populated == volume.metadata.name.as_deref()
}

/// Whether the DataVolume adopts an existing PVC: as its annotation states, else the feature gate. Never one that was
/// created for it: that still has to be filled.
pub fn may_adopt(
    volume: &DataVolume,
    claim: &PersistentVolumeClaim,
    config: &CdiConfigSpec,
) -> bool {
    if is_created_for(volume, claim) {
        return false;
    }
    let requested = meta::annotation(&volume.metadata, request::ALLOW_CLAIM_ADOPTION);
    let allowed = requested.and_then(meta::go_bool);
    allowed.unwrap_or_else(|| config::has_gate(config, names::GATE_CLAIM_ADOPTION))
}

/// Removes an owner from a PVC. Guarded: the list is replaced as a whole. `None` where it does not own the PVC.
pub fn without_owner(claim: &PersistentVolumeClaim, owner_uid: &str) -> Option<Write> {
    let mut owners = claim.metadata.owner_references.clone().unwrap_or_default();
    let before = owners.len();
    owners.retain(|owner| owner.uid != owner_uid);
    let merge = || json!({ "metadata": { "ownerReferences": owners } });
    (owners.len() < before).then(|| Write::guarded_patch(claim, merge()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(annotations: Value) -> DataVolume {
        serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": "disk", "uid": "dv-uid", "annotations": annotations },
            "spec": {},
        }))
        .unwrap()
    }

    fn claim(owner: Option<&str>, annotations: Value, deleting: bool) -> PersistentVolumeClaim {
        let owners = owner.map(|uid| {
            json!([{ "apiVersion": "v", "kind": "K", "name": "o", "uid": uid, "controller": true }])
        });
        serde_json::from_value(json!({ "metadata": {
            "name": "disk", "annotations": annotations, "ownerReferences": owners,
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z"),
        } }))
        .unwrap()
    }

    #[test]
    fn ownership_decision_table() {
        let none = json!({});
        let adopt = json!({ request::ALLOW_CLAIM_ADOPTION: "true" });
        let not = json!({ request::ALLOW_CLAIM_ADOPTION: "false" });
        let populated = json!({ request::POPULATED_FOR: "disk" });
        let other = json!({ request::POPULATED_FOR: "other" });
        let made = json!({ state::CREATED_FOR_DATA_VOLUME: "dv-uid" });
        let gate = CdiConfigSpec {
            feature_gates: Some(vec![names::GATE_CLAIM_ADOPTION.into()]),
            ..CdiConfigSpec::default()
        };
        let closed = CdiConfigSpec::default();
        let ours = Some("dv-uid");
        // Annotations of the DataVolume, controller and annotations of the PVC, whether it is terminating, the gate,
        // the result.
        let table: [(&Value, Option<&str>, &Value, bool, &CdiConfigSpec, &str); 13] = [
            (&none, ours, &made, false, &closed, "ours"),
            (&none, ours, &made, true, &closed, "ErrResourceMarkedForDeletion"),
            (&none, None, &none, false, &closed, "ErrResourceExists"),
            (&none, None, &populated, false, &closed, "adopt"),
            (&none, None, &other, false, &closed, "ErrResourceExists"),
            (&adopt, None, &none, false, &closed, "adopt"),
            (&none, None, &none, false, &gate, "adopt"),
            (&not, None, &none, false, &gate, "ErrResourceExists"),
            (&adopt, None, &made, false, &gate, "ErrResourceExists"),
            (&not, None, &populated, false, &closed, "adopt"),
            (&adopt, Some("other-uid"), &none, false, &gate, "ErrResourceExists"),
            (&none, Some("other-uid"), &populated, false, &closed, "ErrResourceExists"),
            (&adopt, None, &none, true, &gate, "ErrResourceMarkedForDeletion"),
        ];
        for (requested, owner, annotations, deleting, config, expected) in table {
            let volume = volume(requested.clone());
            let found =
                decide_ownership(&volume, &claim(owner, annotations.clone(), deleting), config);
            let name = match &found {
                Ownership::Ours => "ours",
                Ownership::Adopt => "adopt",
                Ownership::Refused(event) => event.reason.as_str(),
            };
            assert_eq!(name, expected, "{requested} {owner:?} {annotations} {deleting}");
        }
    }

    #[test]
    fn complete_pvc_decision_table() {
        let config = CdiConfigSpec::default();
        let worker = |phase: &str| json!({ state::POD_PHASE: phase });
        let made = json!({ state::CREATED_FOR_DATA_VOLUME: "dv-uid" });
        let populated = json!({ request::POPULATED_FOR: "disk" });
        let (import, external) = (Operation::Upload, Operation::External);
        let (legacy, populator) = (PopulationMode::Legacy, PopulationMode::Populator);
        for (case, operation, population, phase, annotations, expected) in [
            ("populated", &import, populator, "Pending", populated.clone(), true),
            ("populated, in place", &import, legacy, "Bound", populated, true),
            ("not bound", &import, populator, "Pending", made.clone(), false),
            ("not bound, done", &import, populator, "Pending", worker("Succeeded"), false),
            ("rebound", &import, populator, "Bound", worker("Succeeded"), true),
            ("rebound, no records", &import, populator, "Bound", json!({}), true),
            ("brand new", &import, legacy, "", made.clone(), false),
            ("nothing has begun", &import, legacy, "Bound", made.clone(), false),
            ("being filled", &import, legacy, "Bound", worker("Running"), false),
            ("filled", &import, legacy, "Bound", worker("Succeeded"), true),
            ("restored, no records", &import, legacy, "Bound", json!({}), true),
            ("by another controller", &external, legacy, "Bound", made.clone(), true),
            ("by another controller, not yet", &external, legacy, "Pending", made, false),
        ] {
            let mut claim = claim(Some("dv-uid"), annotations, false);
            claim.status = serde_json::from_value(json!({ "phase": phase })).unwrap();
            let found = is_complete(&volume(json!({})), &claim, (operation, population), &config);
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn pvc_of_an_earlier_data_volume_is_waited_for_without_a_warning() {
        let mut owner = meta::owned_by(
            api::data_volume::API_VERSION,
            "DataVolume",
            &volume(json!({})).metadata,
        );
        owner.uid = "earlier-uid".into();
        let mut claim = claim(None, json!({ request::POPULATED_FOR: "disk" }), false);
        let decide = |claim: &PersistentVolumeClaim| {
            decide_ownership(&volume(json!({})), claim, &CdiConfigSpec::default())
        };
        claim.metadata.owner_references = Some(vec![owner.clone()]);
        let message = "Resource \"disk\" of an earlier DataVolume is being deleted";
        let waits = Event::normal("ErrResourceMarkedForDeletion", message);
        assert_eq!(decide(&claim), Ownership::Refused(waits));
        owner.name = "other".into();
        claim.metadata.owner_references = Some(vec![owner]);
        let Ownership::Refused(event) = decide(&claim) else { panic!("it has an owner") };
        assert_eq!(event.reason, "ErrResourceExists");
    }

    #[test]
    fn refusal_names_the_pvc() {
        let refused = decide_ownership(
            &volume(json!({})),
            &claim(None, json!({}), false),
            &CdiConfigSpec::default(),
        );
        let Ownership::Refused(event) = refused else { panic!("{refused:?}") };
        assert_eq!(
            event.message,
            "Resource \"disk\" already exists and is not managed by DataVolume"
        );
    }
}
