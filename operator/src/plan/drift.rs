//! What to write so that an object of the installation is as desired.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kinds::{self, ObjectId};
use crate::metadata::{self, CREATE_VERSION, LAST_APPLIED, UPDATE_VERSION};
use crate::plan::merge::merge;

/// The API server refuses objects whose annotations are larger than 256 KiB together.
const LAST_APPLIED_LEN_MAX: usize = 64 << 10;
/// Of all kinds, only this one outlives the CDI object: it is the object's own definition.
pub const OWN_CRD: &str = "cdis.cdi.kubevirt.io";

pub struct DriftFacts<'a> {
    pub id: &'a ObjectId,
    pub desired: &'a Value,
    /// `None`: it does not exist.
    pub current: Option<&'a Value>,
    /// The controller reference of new and adopted objects.
    pub owner: &'a Value,
    pub operator_version: &'a str,
    /// The CA bundle of the webhooks, in base64. `None`: not issued yet.
    pub ca_bundle: Option<&'a str>,
    /// What the API server returned for the last write of this process.
    pub accepted: Option<&'a AcceptedWrite>,
}

/// A write that the API server accepted and changed, for example to a canonical form. Repeating it would never end.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedWrite {
    /// What was sent.
    pub merged: Value,
    /// What came back.
    pub result: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ObjectStep {
    Keep,
    /// It is being deleted, and is created after that.
    AwaitDeletion,
    Create(Value),
    /// Guarded by the resource version that the object has.
    Replace(Value),
    /// An immutable field differs: deleted now, created by the next pass.
    Recreate,
}

pub fn object_step(facts: &DriftFacts) -> ObjectStep {
    let DriftFacts { id, current, owner, operator_version, accepted, .. } = facts;
    let mut desired = prepare(facts);
    let Some(current) = current else {
        metadata::set_label(&mut desired, CREATE_VERSION, operator_version);
        if id.name != OWN_CRD {
            metadata::adopt(&mut desired, owner);
        }
        return ObjectStep::Create(desired);
    };
    if metadata::is_terminating(current) {
        return ObjectStep::AwaitDeletion;
    }
    if is_immutable_changed(&desired, current) {
        return ObjectStep::Recreate;
    }
    let mut merged = if is_overwritten(id) {
        let last = metadata::annotation(current, LAST_APPLIED)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or(Value::Null);
        merge(&last, &desired, current)
    } else {
        merge_metadata(&desired, current)
    };
    if id.name != OWN_CRD {
        metadata::adopt(&mut merged, owner);
    }
    // Objects of plain manifests have none, and an upgrade deletes only what has one.
    if is_overwritten(id) && metadata::label(&merged, CREATE_VERSION).is_none() {
        metadata::set_label(&mut merged, CREATE_VERSION, operator_version);
    }
    if merged == **current {
        return ObjectStep::Keep;
    }
    metadata::set_label(&mut merged, UPDATE_VERSION, operator_version);
    let is_repeated = accepted.is_some_and(|accepted| {
        without_version(&accepted.merged) == without_version(&merged)
            && without_version(&accepted.result) == without_version(current)
    });
    if is_repeated { ObjectStep::Keep } else { ObjectStep::Replace(merged) }
}

/// The contents of ConfigMaps and Secrets belong to other writers.
fn is_overwritten(id: &ObjectId) -> bool {
    ![&kinds::CONFIG_MAP, &kinds::SECRET].contains(&id.kind)
}

/// Labels and annotations of the desired object are set, and all else stays.
fn merge_metadata(desired: &Value, current: &Value) -> Value {
    let mut merged = current.clone();
    for field in ["labels", "annotations"] {
        let desired = &desired["metadata"][field];
        if desired.is_object() {
            let found = &current["metadata"][field];
            merged["metadata"][field] = if found.is_object() {
                merge(&Value::Null, desired, found)
            } else {
                desired.clone()
            };
        }
    }
    merged
}

/// The desired object with what depends on the cluster, and with the annotation of what is applied.
fn prepare(facts: &DriftFacts) -> Value {
    let mut desired = facts.desired.clone();
    if let Some(fields) = desired.as_object_mut() {
        fields.remove("status");
    }
    if is_overwritten(facts.id) {
        let text = last_applied(facts.id, &desired).to_string();
        if text.len() <= LAST_APPLIED_LEN_MAX {
            metadata::set_annotation(&mut desired, LAST_APPLIED, &text);
        }
    }
    if [&kinds::VALIDATING_WEBHOOKS, &kinds::MUTATING_WEBHOOKS].contains(&facts.id.kind) {
        let found = facts.current.map_or(&Value::Null, |current| &current["webhooks"]);
        if let Some(webhooks) = desired["webhooks"].as_array_mut() {
            webhooks.iter_mut().for_each(|webhook| keep_webhook(webhook, found, facts.ca_bundle));
        }
    }
    if facts.id.kind == &kinds::API_SERVICE
        && let Some(bundle) = facts.ca_bundle
    {
        desired["spec"]["caBundle"] = bundle.into();
    }
    desired
}

/// The merge reads only the fields of maps. The schemas of a CRD lie in a list, `spec.versions`; without them the annotation
/// of the largest CRD fits next to the one that `kubectl apply` writes.
fn last_applied(id: &ObjectId, desired: &Value) -> Value {
    let mut last = desired.clone();
    if id.kind == &kinds::CRD
        && let Some(spec) = last["spec"].as_object_mut()
    {
        spec.remove("versions");
    }
    last
}

/// Cloud providers narrow `namespaceSelector`, and the CA bundle is not part of the manifest.
fn keep_webhook(webhook: &mut Value, found: &Value, ca_bundle: Option<&str>) {
    let found = found.as_array().into_iter().flatten().find(|one| one["name"] == webhook["name"]);
    if let Some(selector) = found.and_then(|found| found.get("namespaceSelector")) {
        webhook["namespaceSelector"] = selector.clone();
    }
    let found = found.and_then(|found| found["clientConfig"]["caBundle"].as_str());
    if let Some(bundle) = ca_bundle.or(found) {
        webhook["clientConfig"]["caBundle"] = bundle.into();
    }
}

fn is_immutable_changed(desired: &Value, current: &Value) -> bool {
    let differs = |pointer: &str| {
        let desired = desired.pointer(pointer);
        desired.is_some() && desired != current.pointer(pointer)
    };
    match desired["kind"].as_str() {
        Some("Deployment") => differs("/spec/selector/matchLabels"),
        Some("ClusterRoleBinding" | "RoleBinding") => differs("/roleRef"),
        _ => false,
    }
}

/// Without what each write of the API server changes.
fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["resourceVersion", "generation", "managedFields"] {
            metadata.remove(field);
        }
    }
    object
}

/// The paths at which two objects differ, such as `spec.template.spec.containers`. At most `limit` of them.
pub fn changed_fields(from: &Value, to: &Value, limit: usize) -> Vec<String> {
    fn collect(from: &Value, to: &Value, path: &str, limit: usize, found: &mut Vec<String>) {
        if from == to || found.len() >= limit {
            return;
        }
        let (Value::Object(from), Value::Object(to)) = (from, to) else {
            found.push(path.to_owned());
            return;
        };
        let fields: BTreeMap<_, _> = from.iter().chain(to.iter()).collect();
        for field in fields.into_keys() {
            let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            let value = |all: &serde_json::Map<String, Value>| {
                all.get(field).cloned().unwrap_or(Value::Null)
            };
            collect(&value(from), &value(to), &path, limit, found);
        }
    }
    let mut found = Vec::new();
    collect(from, to, "", limit, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner() -> Value {
        json!({ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "name": "cdi", "uid": "cr", "controller": true })
    }

    fn desired(api: &str, kind: &str, rest: Value) -> Value {
        let mut object = json!({
            "apiVersion": api, "kind": kind,
            "metadata": { "name": "a", "namespace": "cdi", "labels": { "cdi.kubevirt.io": "" } },
        });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    }

    fn step(desired: &Value, current: Option<&Value>) -> ObjectStep {
        let id = ObjectId::of_object(desired).unwrap();
        object_step(&DriftFacts {
            id: &id,
            desired,
            current,
            owner: &owner(),
            operator_version: "2",
            ca_bundle: Some("Y2E="),
            accepted: None,
        })
    }

    /// As the API server stores it.
    fn created(desired: &Value) -> Value {
        let ObjectStep::Create(mut object) = step(desired, None) else { panic!() };
        object["metadata"]["uid"] = "1".into();
        object["metadata"]["resourceVersion"] = "1".into();
        object
    }

    fn deployment(replicas: Option<i32>) -> Value {
        let template = json!({ "spec": { "containers": [{ "name": "a", "image": "one" }] } });
        let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
        let mut object = desired("apps/v1", "Deployment", json!({ "spec": spec }));
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = replicas.into();
        }
        object
    }

    #[test]
    fn created_object_is_owned_labelled_and_kept_by_the_next_pass() {
        let object = created(&deployment(None));
        assert_eq!(object["metadata"]["ownerReferences"], json!([owner()]));
        assert_eq!(metadata::label(&object, CREATE_VERSION), Some("2"));
        assert_eq!(metadata::label(&object, UPDATE_VERSION), None);
        let last: Value =
            serde_json::from_str(metadata::annotation(&object, LAST_APPLIED).unwrap()).unwrap();
        assert_eq!(last, deployment(None));
        assert_eq!(step(&deployment(None), Some(&object)), ObjectStep::Keep);
    }

    #[test]
    fn edits_are_repaired_and_foreign_fields_stay() {
        let mut object = created(&deployment(Some(2)));
        object["metadata"]["labels"]["mine"] = "x".into();
        object["metadata"]["annotations"]["mine"] = "x".into();
        object["spec"]["paused"] = true.into();
        object["spec"]["template"]["spec"]["containers"][0]["image"] = "evil".into();
        object["metadata"]["labels"].as_object_mut().unwrap().remove("cdi.kubevirt.io");
        // The number of replicas is not desired any more.
        let ObjectStep::Replace(repaired) = step(&deployment(None), Some(&object)) else {
            panic!()
        };
        assert_eq!(repaired["spec"]["template"]["spec"]["containers"][0]["image"], "one");
        assert_eq!(repaired["spec"]["paused"], true);
        assert_eq!(repaired["spec"].get("replicas"), None);
        for (label, value) in [("mine", "x"), ("cdi.kubevirt.io", ""), (UPDATE_VERSION, "2")] {
            assert_eq!(metadata::label(&repaired, label), Some(value));
        }
        assert_eq!(metadata::annotation(&repaired, "mine"), Some("x"));
        assert_eq!(repaired["metadata"]["resourceVersion"], "1");
        assert_eq!(step(&deployment(None), Some(&repaired)), ObjectStep::Keep);
    }

    #[test]
    fn objects_without_a_controller_are_adopted() {
        let mut object = created(&deployment(None));
        object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        object["metadata"]["labels"].as_object_mut().unwrap().remove(CREATE_VERSION);
        let ObjectStep::Replace(adopted) = step(&deployment(None), Some(&object)) else { panic!() };
        assert_eq!(adopted["metadata"]["ownerReferences"], json!([owner()]));
        assert_eq!(metadata::label(&adopted, CREATE_VERSION), Some("2"));
        let mut object = created(&deployment(None));
        object["metadata"]["ownerReferences"] = json!([{ "uid": "other", "controller": true }]);
        assert_eq!(step(&deployment(None), Some(&object)), ObjectStep::Keep);
    }

    #[test]
    fn own_definition_is_never_owned() {
        let mut crd =
            desired("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({ "spec": {} }));
        crd["metadata"]["name"] = OWN_CRD.into();
        assert_eq!(created(&crd)["metadata"].get("ownerReferences"), None);
    }

    #[test]
    fn last_applied_annotation_of_a_crd_has_no_schemas() {
        let versions = json!([{ "name": "v1beta1", "schema": { "openAPIV3Schema": "x".repeat(LAST_APPLIED_LEN_MAX) } }]);
        let spec = json!({ "spec": { "group": "cdi.kubevirt.io", "preserveUnknownFields": false, "versions": versions } });
        let crd = desired("apiextensions.k8s.io/v1", "CustomResourceDefinition", spec);
        let object = created(&crd);
        let last = metadata::annotation(&object, LAST_APPLIED).unwrap();
        assert!(last.contains("preserveUnknownFields") && !last.contains("v1beta1"), "{last}");
        // What the next version of the operator changes is replaced, and what it drops is removed.
        let mut next = crd.clone();
        next["spec"]["versions"][0]["schema"] = json!({});
        next["spec"].as_object_mut().unwrap().remove("preserveUnknownFields");
        let ObjectStep::Replace(replaced) = step(&next, Some(&object)) else { panic!() };
        assert_eq!(replaced["spec"], next["spec"]);
    }

    #[test]
    fn immutable_fields_lead_to_a_new_object() {
        let mut object = created(&deployment(None));
        object["spec"]["selector"]["matchLabels"] = json!({ "other": "" });
        assert_eq!(step(&deployment(None), Some(&object)), ObjectStep::Recreate);
        object["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
        assert_eq!(step(&deployment(None), Some(&object)), ObjectStep::AwaitDeletion);

        let role = json!({ "kind": "Role", "name": "a" });
        let binding =
            desired("rbac.authorization.k8s.io/v1", "RoleBinding", json!({ "roleRef": role }));
        let mut object = created(&binding);
        object["roleRef"]["name"] = "b".into();
        assert_eq!(step(&binding, Some(&object)), ObjectStep::Recreate);
    }

    #[test]
    fn contents_of_config_maps_and_secrets_stay() {
        for kind in ["ConfigMap", "Secret"] {
            let wanted = desired("v1", kind, json!({ "data": { "a": "new" } }));
            let mut object = created(&wanted);
            assert_eq!(metadata::annotation(&object, LAST_APPLIED), None);
            object["data"] = json!({ "b": "foreign" });
            assert_eq!(step(&wanted, Some(&object)), ObjectStep::Keep);
            object["metadata"]["labels"] = json!({ "mine": "" });
            let ObjectStep::Replace(labelled) = step(&wanted, Some(&object)) else { panic!() };
            assert_eq!(labelled["data"], json!({ "b": "foreign" }));
            assert_eq!(metadata::label(&labelled, "mine"), Some(""));
            assert_eq!(metadata::label(&labelled, "cdi.kubevirt.io"), Some(""));
        }
    }

    #[test]
    fn webhooks_keep_their_namespace_selector_and_follow_the_bundle() {
        let hook = json!([{ "name": "a", "clientConfig": { "service": { "name": "cdi-api" } } }]);
        let wanted = desired(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({ "webhooks": hook }),
        );
        let mut object = created(&wanted);
        assert_eq!(object["webhooks"][0]["clientConfig"]["caBundle"], "Y2E=");
        object["webhooks"][0]["namespaceSelector"] = json!({ "matchLabels": { "a": "b" } });
        object["webhooks"][0]["timeoutSeconds"] = 10.into();
        assert_eq!(step(&wanted, Some(&object)), ObjectStep::Keep);
        object["webhooks"][0]["clientConfig"]["caBundle"] = "b2xk".into();
        let ObjectStep::Replace(renewed) = step(&wanted, Some(&object)) else { panic!() };
        assert_eq!(renewed["webhooks"][0]["clientConfig"]["caBundle"], "Y2E=");
        assert_eq!(
            renewed["webhooks"][0]["namespaceSelector"],
            json!({ "matchLabels": { "a": "b" } })
        );
    }

    #[test]
    fn write_that_the_api_server_normalizes_is_not_repeated() {
        let wanted = desired("v1", "Service", json!({ "spec": { "name": "A" } }));
        let mut object = created(&wanted);
        object["spec"]["name"] = "a".into();
        let ObjectStep::Replace(merged) = step(&wanted, Some(&object)) else { panic!() };
        let accepted = AcceptedWrite { merged, result: object.clone() };
        let id = ObjectId::of_object(&wanted).unwrap();
        let mut facts = DriftFacts {
            id: &id,
            desired: &wanted,
            current: Some(&object),
            owner: &owner(),
            operator_version: "2",
            ca_bundle: None,
            accepted: Some(&accepted),
        };
        assert_eq!(object_step(&facts), ObjectStep::Keep);
        let mut edited = object.clone();
        edited["spec"]["name"] = "b".into();
        facts.current = Some(&edited);
        assert!(matches!(object_step(&facts), ObjectStep::Replace(_)));
    }

    #[test]
    fn changed_fields_are_listed_by_path() {
        let from = json!({ "a": { "b": 1, "c": [1] }, "d": 1 });
        let to = json!({ "a": { "b": 2, "c": [2] }, "e": 1 });
        assert_eq!(changed_fields(&from, &to, 10), ["a.b", "a.c", "d", "e"]);
        assert_eq!(changed_fields(&from, &to, 2), ["a.b", "a.c"]);
        assert!(changed_fields(&from, &from, 2).is_empty());
    }
}
