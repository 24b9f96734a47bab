//! Reads and changes the metadata of objects that are kept as JSON, so that unknown fields survive an update.

use serde_json::{Map, Value, json};

use crate::kinds;

pub const LAST_APPLIED: &str = "operator.cdi.kubevirt.io/lastAppliedConfiguration";
pub const CREATE_VERSION: &str = "operator.cdi.kubevirt.io/createVersion";
pub const UPDATE_VERSION: &str = "operator.cdi.kubevirt.io/updateVersion";

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The owner reference with `controller: true`.
pub fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

pub fn is_controlled_by(object: &Value, owner_uid: &str) -> bool {
    controller(object).is_some_and(|owner| owner["uid"] == owner_uid)
}

/// A controller's reference to an object of this API version and kind.
pub fn controller_reference(api_version: &str, kind: &str, owner: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The CDI object as the controller of what it installs.
pub fn installation_reference(installation: &Value) -> Value {
    controller_reference(&kinds::CDI.api_version(), kinds::CDI.kind, installation)
}

pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == finalizer))
}

pub fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        let finalizers = &mut object["metadata"]["finalizers"];
        match finalizers.as_array_mut() {
            Some(all) => all.push(finalizer.into()),
            None => *finalizers = json!([finalizer]),
        }
    }
}

pub fn remove_finalizer(object: &mut Value, finalizer: &str) {
    if let Some(all) = object["metadata"]["finalizers"].as_array_mut() {
        all.retain(|one| one != finalizer);
    }
}

pub fn set_label(object: &mut Value, key: &str, value: &str) {
    metadata_map(object, "labels").insert(key.to_owned(), value.into());
}

pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    metadata_map(object, "annotations").insert(key.to_owned(), value.into());
}

/// Appends `owner` unless the object has a controller, which then keeps it.
pub fn adopt(object: &mut Value, owner: &Value) {
    if controller(object).is_some() {
        return;
    }
    let owners = &mut object["metadata"]["ownerReferences"];
    match owners.as_array_mut() {
        // A reference without `controller` to the same object would be a duplicate, which API servers reject.
        Some(all) => {
            all.retain(|one| one["uid"] != owner["uid"]);
            all.push(owner.clone());
        }
        None => *owners = json!([owner]),
    }
}

fn metadata_map<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let map = &mut object["metadata"][field];
    if !map.is_object() {
        *map = json!({});
    }
    map.as_object_mut().expect("it was just made an object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adoption_keeps_another_controller_and_replaces_a_plain_reference() {
        let owner = json!({ "uid": "cr", "controller": true });
        let owners = |owners: Value| {
            let mut object = json!({ "metadata": { "ownerReferences": owners } });
            adopt(&mut object, &owner);
            object["metadata"]["ownerReferences"].clone()
        };
        assert_eq!(owners(Value::Null), json!([owner]));
        assert_eq!(owners(json!([{ "uid": "a" }])), json!([{ "uid": "a" }, owner]));
        assert_eq!(owners(json!([{ "uid": "cr" }])), json!([owner]));
        let other = json!([{ "uid": "a", "controller": true }]);
        assert_eq!(owners(other.clone()), other);
    }

    #[test]
    fn finalizers_are_added_once_and_others_stay() {
        let mut object = json!({ "metadata": { "finalizers": ["a"] } });
        add_finalizer(&mut object, "b");
        add_finalizer(&mut object, "b");
        assert_eq!(object["metadata"]["finalizers"], json!(["a", "b"]));
        remove_finalizer(&mut object, "b");
        assert_eq!(object["metadata"]["finalizers"], json!(["a"]));
        let mut bare = json!({ "metadata": {} });
        remove_finalizer(&mut bare, "b");
        add_finalizer(&mut bare, "b");
        assert!(has_finalizer(&bare, "b") && !has_finalizer(&bare, "a"));
    }
}
