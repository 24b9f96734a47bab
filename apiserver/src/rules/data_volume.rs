//! Rules on DataVolumes.

use api::annotations::request;
use api::metadata::NAME_LENGTH_MAX;
use api::validate::CLUSTER_SCHEMES;
use api::{DataVolumeSpec, ObjectMeta, names, validate_spec};
use controller_core::meta::go_bool;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::Deserialize;

use super::same::same;
use crate::admission_result::AdmissionResult;
use crate::review::{Operation, Request};

/// A DataVolume as the client wrote it, in lenient types, so that errors can be reported.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: ObjectMeta,
    pub spec: DataVolumeSpec,
}

impl Volume {
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(String::as_str)
    }
}

#[derive(Clone, Debug, Default)]
pub struct DataVolumeFacts {
    /// The PVC of the DataVolume's name; looked up on creation.
    pub claim: Option<PersistentVolumeClaim>,
    /// `spec.featureGates` of the CDIConfig.
    pub gates: Vec<String>,
}

/// Whether a request needs [`DataVolumeFacts`], and about which PVC: namespace and name.
pub fn claim_in_question(request: &Request) -> Option<(String, String)> {
    if request.operation != Operation::Create {
        return None;
    }
    let volume: Volume = request.object().ok()?;
    let name = volume.metadata.name;
    // An invalid name is refused by its rule.
    api::metadata::is_object_name(&name).then(|| (request.namespace.clone(), name))
}

pub fn validate(request: &Request, facts: &DataVolumeFacts) -> AdmissionResult {
    if !request.is_about(super::GROUP, "datavolumes") {
        return AdmissionResult::Refused("expected a DataVolume".into());
    }
    // An object that was admitted once can always be labelled, finished and deleted.
    if request.operation == Operation::Update && request.has_same_spec() {
        return AdmissionResult::ALLOWED;
    }
    let volume: Volume = match request.object() {
        Ok(volume) => volume,
        Err(reason) => return AdmissionResult::Refused(reason),
    };
    if request.operation == Operation::Update {
        let old: Volume = match request.old_object() {
            Ok(old) => old,
            Err(reason) => return AdmissionResult::Refused(reason),
        };
        if is_changed(&old.spec, &volume.spec) {
            return AdmissionResult::duplicate("DataVolume.Spec", "Cannot update DataVolume Spec");
        }
    }
    if volume.metadata.name.len() > NAME_LENGTH_MAX {
        let message = format!("Name cannot be longer than {NAME_LENGTH_MAX} characters");
        return AdmissionResult::invalid("metadata.name", message);
    }
    if let Some(claim) = facts.claim.as_ref().filter(|claim| is_in_the_way(&volume, claim, facts)) {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Destination PVC {}/{name} already exists", request.namespace);
        return AdmissionResult::duplicate("DataVolume.Name", message);
    }
    validate_spec(&volume.spec, CLUSTER_SCHEMES)
        .map_or_else(AdmissionResult::from, |()| AdmissionResult::ALLOWED)
}

/// Checkpoints may be added during an import; nothing else changes.
fn is_changed(old: &DataVolumeSpec, new: &DataVolumeSpec) -> bool {
    let mut old = old.clone();
    let sources = new.source.as_ref();
    let takes_stages = sources.is_some_and(|all| all.vddk.is_some() || all.imageio.is_some());
    if takes_stages && !new.checkpoints.is_empty() {
        old.checkpoints.clone_from(&new.checkpoints);
        old.final_checkpoint = new.final_checkpoint;
    }
    !same(&old, new)
}

/// A PVC of another owner, which the DataVolume may not adopt.
fn is_in_the_way(volume: &Volume, claim: &PersistentVolumeClaim, facts: &DataVolumeFacts) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    if controller.is_some_and(|owner| owner.kind == "DataVolume") {
        return false;
    }
    !is_full(volume, claim, &facts.gates)
}

/// Whether the DataVolume adopts an existing PVC with its content: no other object controls it, and the
/// DataVolume's source is never read.
pub fn is_adopted(volume: &Volume, claim: &PersistentVolumeClaim, gates: &[String]) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    !owners.any(|owner| owner.controller == Some(true)) && is_full(volume, claim, gates)
}

/// Whether a PVC counts as populated for this DataVolume: by its own annotation, the DataVolume's, or the feature gate.
fn is_full(volume: &Volume, claim: &PersistentVolumeClaim, gates: &[String]) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let populated_for = annotations.and_then(|all| all.get(request::POPULATED_FOR));
    if populated_for == Some(&volume.metadata.name) {
        return true;
    }
    let stated = volume.annotation(request::ALLOW_CLAIM_ADOPTION).and_then(go_bool);
    stated.unwrap_or_else(|| gates.iter().any(|gate| gate == names::GATE_CLAIM_ADOPTION))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::ResourceName;

    fn request(operation: Operation, object: Value, old_object: Option<Value>) -> Request {
        let resource =
            ResourceName { group: "cdi.kubevirt.io".into(), resource: "datavolumes".into() };
        Request {
            operation,
            resource,
            namespace: "ns".into(),
            object: Some(object),
            old_object,
            ..Request::default()
        }
    }

    fn volume(spec: Value) -> Value {
        json!({ "metadata": { "name": "disk" }, "spec": spec })
    }

    fn blank() -> Value {
        json!({ "source": { "blank": {} }, "storage": { "resources": { "requests": { "storage": "1Gi" } } } })
    }

    fn outcome(result: &AdmissionResult) -> String {
        match result {
            AdmissionResult::Allowed { .. } => String::new(),
            AdmissionResult::Invalid(causes) => {
                causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
            }
            AdmissionResult::Refused(reason) => format!("400 {reason}"),
        }
    }

    fn create(object: Value, facts: &DataVolumeFacts) -> String {
        outcome(&validate(&request(Operation::Create, object, None), facts))
    }

    #[test]
    fn new_data_volume_is_checked_in_order_of_the_rules() {
        let facts = DataVolumeFacts::default();
        let long = json!({ "metadata": { "name": "x".repeat(254) }, "spec": {} });
        for (object, expected) in [
            (volume(blank()), ""),
            (json!({ "metadata": { "generateName": "a-" }, "spec": blank() }), ""),
            (long, "metadata.name: Name cannot be longer than 253 characters"),
            (volume(json!({})), "spec.PVC: Missing Data volume PVC"),
            (
                volume(json!({ "storage": {}, "source": { "http": {}, "registry": {} } })),
                "spec.Storage.resources.requests.size: Storage size is missing",
            ),
            (
                volume(json!({ "storage": 1 })),
                "400 cannot read object: invalid type: integer `1`, expected struct ClaimSpec",
            ),
        ] {
            assert_eq!(create(object.clone(), &facts), expected, "{object}");
        }
        let two = json!({ "source": { "http": { "url": "http://a/b" }, "registry": { "url": "docker://a/b" } },
                          "storage": { "resources": { "requests": { "storage": "1Gi" } } } });
        assert_eq!(
            create(volume(two), &facts),
            "spec.source: Multiple Data volume sources: spec.source.http, spec.source.registry"
        );
    }

    #[test]
    fn existing_pvc_is_adopted_or_refused() {
        let owner = |kind: &str| json!([{ "apiVersion": "v1", "kind": kind, "name": "x", "uid": "1", "controller": true }]);
        let refused = "DataVolume.Name: Destination PVC ns/disk already exists";
        let gate = names::GATE_CLAIM_ADOPTION;
        for (case, owners, claim_note, adoption, gates, expected) in [
            ("no owner", json!([]), None, None, vec![], refused),
            ("a DataVolume's", owner("DataVolume"), None, None, vec![], ""),
            ("another owner", owner("VirtualMachine"), None, None, vec![], refused),
            ("filled for it", json!([]), Some("disk"), None, vec![], ""),
            ("filled for another", json!([]), Some("other"), None, vec![], refused),
            ("adoption requested", json!([]), None, Some("true"), vec![], ""),
            ("adoption by the cluster", json!([]), None, None, vec![gate], ""),
            ("adoption refused", json!([]), None, Some("false"), vec![gate], refused),
            ("adoption unreadable", json!([]), None, Some("perhaps"), vec![], refused),
        ] {
            let mut object = volume(blank());
            if let Some(adoption) = adoption {
                object["metadata"]["annotations"] =
                    json!({ request::ALLOW_CLAIM_ADOPTION: adoption });
            }
            let mut claim = json!({ "metadata": { "name": "disk", "ownerReferences": owners } });
            if let Some(note) = claim_note {
                claim["metadata"]["annotations"] = json!({ request::POPULATED_FOR: note });
            }
            let facts = DataVolumeFacts {
                claim: Some(serde_json::from_value(claim).unwrap()),
                gates: gates.into_iter().map(str::to_owned).collect(),
            };
            assert_eq!(create(object, &facts), expected, "{case}");
        }
    }

    #[test]
    fn only_checkpoints_may_be_added() {
        let update = |old: Value, new: Value| {
            let request = request(Operation::Update, volume(new), Some(volume(old)));
            outcome(&validate(&request, &DataVolumeFacts::default()))
        };
        let vddk = |stages: Value, last: bool, url: &str| {
            json!({
                "source": { "vddk": { "url": url, "uuid": "a", "backingFile": "b", "thumbprint": "c", "secretRef": "d" } },
                "storage": { "resources": { "requests": { "storage": "1Gi" } } },
                "checkpoints": stages,
                "finalCheckpoint": last,
            })
        };
        let one = json!([{ "previous": "", "current": "a" }]);
        let two = json!([{ "previous": "", "current": "a" }, { "previous": "a", "current": "b" }]);
        let url = "https://host";
        let refused = "DataVolume.Spec: Cannot update DataVolume Spec";
        assert_eq!(update(vddk(one.clone(), false, url), vddk(two.clone(), true, url)), "");
        assert_eq!(update(vddk(one.clone(), false, url), vddk(json!([]), true, url)), refused);
        assert_eq!(
            update(vddk(one.clone(), false, url), vddk(two, true, "https://other")),
            refused
        );
        let mut http = blank();
        http["checkpoints"] = one;
        assert_eq!(update(blank(), http), refused);
        let mut larger = blank();
        larger["storage"]["resources"]["requests"]["storage"] = "2Gi".into();
        assert_eq!(update(blank(), larger.clone()), refused);
        larger["storage"]["resources"]["requests"]["storage"] = "1024Mi".into();
        assert_eq!(update(blank(), larger), "");
    }

    #[test]
    fn admitted_objects_can_always_be_finished() {
        let odd = json!({ "source": {} });
        let mut object = volume(odd.clone());
        object["metadata"]["finalizers"] = json!([]);
        let request = request(Operation::Update, object, Some(volume(odd)));
        assert_eq!(validate(&request, &DataVolumeFacts::default()), AdmissionResult::ALLOWED);
    }

    #[test]
    fn pvc_is_looked_up_only_on_creation() {
        let of = |operation, object| claim_in_question(&request(operation, object, None));
        let found = Some(("ns".to_owned(), "disk".to_owned()));
        assert_eq!(of(Operation::Create, volume(blank())), found);
        assert_eq!(of(Operation::Update, volume(blank())), None);
        assert_eq!(of(Operation::Create, json!({ "metadata": { "generateName": "a" } })), None);
        assert_eq!(of(Operation::Create, json!({ "metadata": { "name": "../x" } })), None);
        assert_eq!(of(Operation::Create, json!(7)), None);
    }
}
