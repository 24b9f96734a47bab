//! Rules on ObjectTransfers, a deprecated kind.

use api::v1beta1::{TransferSource, TransferTarget};
use serde::{Deserialize, Serialize};

use super::same::same;
use crate::admission_result::AdmissionResult;
use crate::review::{Operation, Request};

const WARNING: &str =
    "ObjectTransfer is deprecated and will be removed in a future release of this API";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Transfer {
    spec: Spec,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    source: TransferSource,
    target: TransferTarget,
    parent_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A DataVolume.
    DataVolume,
    Claim,
}

/// The target of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

/// The object that must not exist when a transfer is created.
pub fn destination(request: &Request) -> Option<Destination> {
    if request.operation != Operation::Create {
        return None;
    }
    let Transfer { spec: Spec { source, target, .. } } = request.object().ok()?;
    let kind = kind(&source.kind)?;
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let namespace = non_empty(target.namespace).unwrap_or(source.namespace);
    Some(Destination { kind, namespace, name: non_empty(target.name).unwrap_or(source.name) })
}

fn kind(name: &str) -> Option<Kind> {
    match name {
        "DataVolume" => Some(Kind::DataVolume),
        "PersistentVolumeClaim" => Some(Kind::Claim),
        _ => None,
    }
}

/// `is_taken`: whether the [`destination`] exists.
pub fn validate(request: &Request, is_taken: bool) -> AdmissionResult {
    let refused = |reason: &str| AdmissionResult::Refused(reason.to_owned());
    if !request.is_about(super::GROUP, "objecttransfers") {
        return refused("expected an ObjectTransfer");
    }
    if request.operation == Operation::Update && request.has_same_spec() {
        return AdmissionResult::ALLOWED;
    }
    let transfer: Transfer = match request.object() {
        Ok(transfer) => transfer,
        Err(reason) => return AdmissionResult::Refused(reason),
    };
    if request.operation == Operation::Update {
        return match request.old_object::<Transfer>() {
            Ok(old) if same(&old.spec, &transfer.spec) => AdmissionResult::ALLOWED,
            Ok(_) => refused("ObjectTransfer spec is immutable"),
            Err(reason) => AdmissionResult::Refused(reason),
        };
    }
    let TransferTarget { namespace, name } = &transfer.spec.target;
    let is_given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    if !is_given(namespace) && !is_given(name) {
        return refused("Target namespace and/or target name must be supplied");
    }
    let source = &transfer.spec.source;
    if kind(&source.kind).is_none() {
        return AdmissionResult::Refused(format!("Unsupported kind {:?}", source.kind));
    }
    if is_taken {
        return refused("ObjectTransfer target already exists");
    }
    AdmissionResult::Allowed { patch: Vec::new(), warning: Some(WARNING) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::ResourceName;

    fn request(operation: Operation, new: Value, old: Option<Value>) -> Request {
        Request {
            operation,
            resource: ResourceName {
                group: "cdi.kubevirt.io".into(),
                resource: "objecttransfers".into(),
            },
            object: Some(json!({ "spec": new })),
            old_object: old.map(|spec| json!({ "spec": spec })),
            ..Request::default()
        }
    }

    fn spec(kind: &str, target: Value) -> Value {
        json!({ "source": { "kind": kind, "namespace": "a", "name": "b" }, "target": target })
    }

    #[test]
    fn transfer_needs_a_free_target() {
        let warned = AdmissionResult::Allowed { patch: Vec::new(), warning: Some(WARNING) };
        let refused = |reason: &str| AdmissionResult::Refused(reason.to_owned());
        for (kind, target, is_taken, expected) in [
            ("DataVolume", json!({ "namespace": "c" }), false, warned.clone()),
            ("PersistentVolumeClaim", json!({ "name": "c" }), false, warned),
            (
                "DataVolume",
                json!({}),
                false,
                refused("Target namespace and/or target name must be supplied"),
            ),
            (
                "DataVolume",
                json!({ "name": "" }),
                false,
                refused("Target namespace and/or target name must be supplied"),
            ),
            ("Pod", json!({ "name": "c" }), false, refused("Unsupported kind \"Pod\"")),
            (
                "DataVolume",
                json!({ "name": "c" }),
                true,
                refused("ObjectTransfer target already exists"),
            ),
        ] {
            let request = request(Operation::Create, spec(kind, target), None);
            assert_eq!(validate(&request, is_taken), expected);
        }
    }

    #[test]
    fn spec_is_immutable() {
        let (here, there) = (json!({ "name": "c" }), json!({ "name": "d" }));
        let old = || Some(spec("DataVolume", here.clone()));
        let changed = request(Operation::Update, spec("DataVolume", there), old());
        let refused = AdmissionResult::Refused("ObjectTransfer spec is immutable".into());
        assert_eq!(validate(&changed, false), refused);
        let unchanged = request(Operation::Update, spec("DataVolume", here.clone()), old());
        assert_eq!(validate(&unchanged, true), AdmissionResult::ALLOWED);
    }

    #[test]
    fn target_defaults_to_namespace_and_name_of_the_source() {
        let of = |target| {
            destination(&request(Operation::Create, spec("DataVolume", target), None)).unwrap()
        };
        let at = |namespace: &str, name: &str| Destination {
            kind: Kind::DataVolume,
            namespace: namespace.into(),
            name: name.into(),
        };
        assert_eq!(of(json!({ "namespace": "c" })), at("c", "b"));
        assert_eq!(of(json!({ "name": "c" })), at("a", "c"));
        assert_eq!(of(json!({ "name": "c", "namespace": "" })), at("a", "c"));
    }
}
