//! Lists and watches that survive an object which does not decode.
//!
//! A list or watch of a type fails as a whole where one object does not decode, and a tenant may be able to store such an
//! object: the schema of a CRD accepts more than a Rust type reads, or the two differ in version. [`Decoded`] takes the place
//! of the type in an [`Api`](kube::Api), so that only that object is missing. Objects are read without their `managedFields`,
//! which no program of this project reads.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ObjectList;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::value::RawValue;

use crate::json_path;

/// A field or reason is cut here: both may hold text of a tenant, and go to logs and events.
const TEXT_LEN_MAX: usize = 200;

/// An object, or what is known of one that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Decoded<K>(pub Result<K, Box<UndecodableObject>>);

/// An object that the API server holds and whose Rust type does not read it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("cannot decode {field}: {reason}")]
pub struct UndecodableObject {
    /// Name, namespace, UID and resource version; nothing else, whatever the object has.
    pub metadata: ObjectMeta,
    /// Such as `status.conditions[0].status`.
    pub field: String,
    /// What is wrong with the field.
    pub reason: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Raw, as a value would be built twice for each object, and would fail for one that is nested too deeply.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let text = without_managed_fields(text.get());
        Ok(Self(
            serde_json::from_str(&text)
                .map_err(|error| Box::new(UndecodableObject::new(&text, &error))),
        ))
    }
}

/// The JSON of an object, with `null` in place of `metadata.managedFields`. Decoded, these would be a map for each field that
/// the object has, and take several times the memory of all its fields: most of a page of a list.
fn without_managed_fields(text: &str) -> Cow<'_, str> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow)]
        managed_fields: Option<&'a RawValue>,
    }
    #[derive(serde::Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    let head = serde_json::from_str::<Head<'_>>(text).ok();
    let fields = head.and_then(|head| head.metadata.managed_fields).map(RawValue::get);
    // A slice of `text`, so the difference of the addresses is its offset.
    let range = fields.and_then(|fields| {
        let start = fields.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        Some(start..start.checked_add(fields.len())?)
    });
    match range.and_then(|range| Some((text.get(..range.start)?, text.get(range.end..)?))) {
        Some((before, after)) => Cow::Owned([before, "null", after].concat()),
        None => Cow::Borrowed(text),
    }
}

impl UndecodableObject {
    fn new(text: &str, error: &serde_json::Error) -> Self {
        let field = json_path::path_of_error(text, error);
        // The position refers to a text that the reader of the message does not have.
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default();
        Self { metadata: identity(text), field: printable(&field), reason: printable(reason) }
    }
}

/// The parts of the metadata that identify an object.
fn identity(text: &str) -> ObjectMeta {
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
    }
    #[derive(serde::Deserialize)]
    struct Head {
        metadata: Identity,
    }
    let head = serde_json::from_str(text).map(|Head { metadata }| metadata);
    let Identity { name, namespace, uid, resource_version } = head.unwrap_or_default();
    ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() }
}

/// The beginning of a text, on one line.
fn printable(text: &str) -> String {
    let visible = |character: char| if character.is_control() { ' ' } else { character };
    text.chars().take(TEXT_LEN_MAX).map(visible).collect()
}

impl<K: Resource> Resource for Decoded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(undecodable) => &undecodable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(undecodable) => &mut undecodable.metadata,
        }
    }
}

/// The objects of a list that decode. The others are skipped and logged for debugging only: the controller, which watches
/// the kinds of tenants, reports them.
pub fn decodable<K>(list: ObjectList<Decoded<K>>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone,
{
    let skip = |undecodable: &UndecodableObject| {
        let namespace = undecodable.metadata.namespace.as_deref().unwrap_or_default();
        let name = undecodable.metadata.name.as_deref().unwrap_or_default();
        let kind = K::kind(&());
        tracing::debug!("skipping the {kind} {namespace}/{name} in a list: {undecodable}");
    };
    list.items.into_iter().filter_map(|item| item.0.map_err(|error| skip(&error)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::WatchEvent;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, phase: Value) -> Value {
        let metadata = json!({ "name": name, "namespace": "vms", "uid": "u", "resourceVersion": "7", "labels": {} });
        json!({ "metadata": metadata, "status": { "phase": phase } })
    }

    /// Nested so deeply that no JSON value can be built of it.
    fn deep() -> String {
        let text = pod("deep", json!("DEEP")).to_string();
        text.replace("\"DEEP\"", &format!("{}{}", "[".repeat(500), "]".repeat(500)))
    }

    fn list(items: &[String]) -> ObjectList<Decoded<Pod>> {
        let text = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
            items.join(",")
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn list_with_an_undecodable_object_keeps_the_others() {
        let items = [pod("a", json!("Running")), pod("bad", json!({})), pod("b", json!("Failed"))];
        let mut items = items.map(|item| item.to_string()).to_vec();
        items.insert(1, deep());
        let list = list(&items);
        let found: Vec<_> =
            list.items.iter().map(|item| item.meta().name.clone().unwrap()).collect();
        assert_eq!(found, ["a", "deep", "bad", "b"]);
        let reasons: Vec<_> = list.items.iter().filter_map(|item| item.0.as_ref().err()).collect();
        let messages: Vec<_> = reasons.iter().map(|error| error.to_string()).collect();
        assert_eq!(
            messages,
            [
                "cannot decode status.phase: invalid type: sequence, expected a string",
                "cannot decode status.phase: invalid type: map, expected a string",
            ]
        );
        let identity = &reasons[1].metadata;
        assert_eq!(
            (identity.uid.as_deref(), identity.resource_version.as_deref(), &identity.labels),
            (Some("u"), Some("7"), &None)
        );
        assert_eq!(decodable(list).len(), 2);
    }

    #[test]
    fn watch_event_of_an_undecodable_object_keeps_its_type() {
        let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, deep());
        let event: WatchEvent<Decoded<Pod>> = serde_json::from_str(&line).unwrap();
        let WatchEvent::Modified(object) = event else { panic!("another event") };
        assert_eq!(object.meta().name.as_deref(), Some("deep"));
        let line = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12"}}}"#;
        let event: WatchEvent<Decoded<Pod>> = serde_json::from_str(line).unwrap();
        assert!(matches!(event, WatchEvent::Bookmark(_)));
    }

    #[test]
    fn tenant_text_in_reasons_is_cut_and_stays_on_one_line() {
        let phase = json!({ "phase": [], "x": 1 });
        let mut object = pod("a", json!("Running"));
        object["status"] = json!({ "startTime": format!("a\nb\u{1b}[31m{}", "x".repeat(5000)), "conditions": [phase] });
        let read: Decoded<Pod> = serde_json::from_value(object).unwrap();
        let error = read.0.unwrap_err();
        assert!(error.reason.len() <= 4 * TEXT_LEN_MAX, "{error}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let managed =
            json!([{ "manager": "kubectl", "fieldsV1": { "f:metadata": { "f:labels": {} } } }]);
        for managed in [managed, json!([]), json!(null), json!("no list")] {
            let text = json!({
                "metadata": {
                    "annotations": { "managedFields": "\"managedFields\":[]" }, "labels": { "ä": "" },
                    "managedFields": managed, "name": "a", "uid": "u",
                },
                "spec": { "containers": [], "nodeName": "managedFields" },
            });
            let mut expected = text.clone();
            expected["metadata"].as_object_mut().unwrap().remove("managedFields");
            let read: Decoded<Pod> = serde_json::from_str(&text.to_string()).unwrap();
            let expected: Pod = serde_json::from_value(expected).unwrap();
            assert_eq!(read.0, Ok(expected), "{managed}");
        }
    }

    #[test]
    fn undecodable_field_after_managed_fields_is_named() {
        let text =
            r#"{"metadata":{"managedFields":[{"manager":"m"}],"name":"a"},"status":{"phase":5}}"#;
        let read: Decoded<Pod> = serde_json::from_str(text).unwrap();
        let error = read.0.unwrap_err();
        assert_eq!(
            (error.field.as_str(), error.metadata.name.as_deref()),
            ("status.phase", Some("a"))
        );
    }

    #[test]
    fn object_with_undecodable_metadata_has_no_name() {
        let object = json!({ "metadata": { "name": 5, "labels": 5 } });
        let read: Decoded<Pod> = serde_json::from_value(object).unwrap();
        assert_eq!(read.0.unwrap_err().metadata, ObjectMeta::default());
    }
}
