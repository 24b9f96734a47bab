//! AdmissionReview requests of the cluster's API server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::admission_result::AdmissionResult;

/// `AdmissionReview`, in version v1 or v1beta1, which are the same here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// An admission request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    pub uid: String,
    pub kind: KindName,
    pub resource: ResourceName,
    /// Empty if the API server generates it.
    pub name: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub operation: Operation,
    pub user_info: User,
    /// The new object.
    pub object: Option<Value>,
    /// The existing object.
    pub old_object: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct KindName {
    /// Such as `cdi.kubevirt.io`.
    pub group: String,
    /// Such as `DataVolume`.
    pub kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceName {
    /// Such as `cdi.kubevirt.io`.
    pub group: String,
    /// Such as `datavolumes`.
    pub resource: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// Not reviewed, such as CONNECT.
    #[default]
    #[serde(other)]
    Other,
}

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct User {
    pub username: String,
    pub uid: String,
    #[serde(deserialize_with = "or_default")]
    pub groups: Vec<String>,
    /// Further attributes of the authenticator.
    #[serde(deserialize_with = "or_default")]
    pub extra: BTreeMap<String, Vec<String>>,
}

fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Why a body is not an AdmissionReview.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("cannot parse the body as an AdmissionReview")]
    Malformed(#[source] serde_json::Error),
    #[error("the body is not an AdmissionReview with a request")]
    NoRequest,
}

/// A request, and the API version of its response.
#[derive(Debug)]
pub struct AdmissionCall {
    pub request: Request,
    api_version: String,
}

impl AdmissionCall {
    /// Parses the body of a call.
    ///
    /// # Errors
    /// When it is not an AdmissionReview with a request.
    pub fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let review: Review = serde_json::from_slice(body).map_err(ReviewError::Malformed)?;
        let is_review = review.kind == "AdmissionReview"
            && ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"]
                .contains(&review.api_version.as_str());
        match review.request {
            Some(request) if is_review && !request.uid.is_empty() => {
                Ok(Self { request, api_version: review.api_version })
            }
            _ => Err(ReviewError::NoRequest),
        }
    }

    pub fn response_body(&self, result: &AdmissionResult) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": "AdmissionReview",
            "response": result.response(&self.request.uid),
        })
    }
}

impl Request {
    /// The new object.
    ///
    /// # Errors
    /// A message, when the object is missing or has fields of other types.
    pub fn object<T: DeserializeOwned>(&self) -> Result<T, String> {
        typed(self.object.as_ref(), "object")
    }

    /// The existing object.
    ///
    /// # Errors
    /// A message, when the object is missing or has fields of other types.
    pub fn old_object<T: DeserializeOwned>(&self) -> Result<T, String> {
        typed(self.old_object.as_ref(), "oldObject")
    }

    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource
    }

    /// Whether `spec` is unchanged, byte for byte.
    pub fn has_same_spec(&self) -> bool {
        let spec =
            |object: &Option<Value>| object.as_ref().and_then(|object| object.get("spec").cloned());
        self.old_object.is_some() && spec(&self.object) == spec(&self.old_object)
    }

    /// Whether the object is terminating.
    pub fn is_deleting(&self) -> bool {
        let stamp = self.object.as_ref().and_then(|o| o.pointer("/metadata/deletionTimestamp"));
        stamp.is_some_and(|stamp| !stamp.is_null())
    }
}

fn typed<T: DeserializeOwned>(object: Option<&Value>, what: &str) -> Result<T, String> {
    let Some(object) = object.filter(|object| !object.is_null()) else {
        return Err(format!("the request has no {what}"));
    };
    let mut object = object.clone();
    without_nulls(&mut object);
    serde_json::from_value(object).map_err(|error| format!("cannot read {what}: {error}"))
}

/// Removes null fields, which count as absent. The recursion is bounded: the JSON parser refuses deeply nested
/// text.
pub fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(version: &str, rest: &str) -> String {
        format!(r#"{{"apiVersion":"admission.k8s.io/{version}","kind":"AdmissionReview"{rest}}}"#)
    }

    #[test]
    fn both_api_versions_are_parsed_and_returned() {
        for version in ["v1", "v1beta1"] {
            let text = body(
                version,
                r#","request":{"uid":"7","operation":"CREATE","userInfo":{"groups":null}}"#,
            );
            let call = AdmissionCall::read(text.as_bytes()).unwrap();
            assert_eq!(call.request.operation, Operation::Create);
            let answer = call.response_body(&AdmissionResult::ALLOWED);
            assert_eq!(answer["apiVersion"], format!("admission.k8s.io/{version}"));
            assert_eq!(answer["response"], json!({ "uid": "7", "allowed": true }));
        }
    }

    #[test]
    fn other_bodies_are_refused() {
        let deep = body("v1", &format!(r#","request":{{"object":{}"#, "[".repeat(100_000)));
        for text in [
            "",
            "{}",
            "[]",
            "null",
            &body("v2", r#","request":{}"#),
            &body("v1", ""),
            &body("v1", r#","request":{}"#),
            &deep,
        ] {
            assert!(
                AdmissionCall::read(text.as_bytes()).is_err(),
                "{}",
                &text[..text.len().min(80)]
            );
        }
    }

    #[test]
    fn null_fields_count_as_absent() {
        let request = Request {
            object: Some(json!({ "metadata": { "name": "a", "labels": null }, "spec": {} })),
            ..Request::default()
        };
        #[derive(Deserialize)]
        struct Named {
            metadata: api::ObjectMeta,
        }
        assert_eq!(request.object::<Named>().unwrap().metadata.name, "a");
        assert_eq!(request.old_object::<Named>().err().unwrap(), "the request has no oldObject");
        assert!(!request.has_same_spec() && !request.is_deleting());
    }
}
