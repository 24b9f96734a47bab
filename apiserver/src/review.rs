//! A request for admission, as the API server of the cluster sends it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::verdict::Verdict;

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

/// What somebody wants to do.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Of this request.
    pub uid: String,
    /// The kind of object.
    pub kind: KindName,
    /// Which objects.
    pub resource: ResourceName,
    /// Empty when the cluster is to make one.
    pub name: String,
    /// Empty for what is in none.
    pub namespace: String,
    /// What is to be done.
    pub operation: Operation,
    /// Who wants it.
    pub user_info: User,
    /// As it would be.
    pub object: Option<Value>,
    /// As it is.
    pub old_object: Option<Value>,
}

/// Group, version and kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct KindName {
    /// Such as `cdi.kubevirt.io`.
    pub group: String,
    /// Such as `DataVolume`.
    pub kind: String,
}

/// Group, version and resource.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceName {
    /// Such as `cdi.kubevirt.io`.
    pub group: String,
    /// Such as `datavolumes`.
    pub resource: String,
}

/// What is to be done with an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// A new object.
    Create,
    /// Another content.
    Update,
    /// No object.
    Delete,
    /// Nothing that concerns us.
    #[default]
    #[serde(other)]
    Other,
}

/// Who wants something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct User {
    /// Name.
    pub username: String,
    /// What the cluster knows them by.
    pub uid: String,
    /// Groups.
    #[serde(deserialize_with = "or_default")]
    pub groups: Vec<String>,
    /// Whatever else whoever authenticated them says.
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

/// Why a body is no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON, or other JSON.
    #[error("the body is no AdmissionReview")]
    Malformed(#[source] serde_json::Error),
    /// Another kind, or nothing asked.
    #[error("the body is no AdmissionReview with a request")]
    NoRequest,
}

/// A request, and what its answer has to begin with.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub request: Request,
    api_version: String,
}

impl Asked {
    /// Reads the body of a call.
    ///
    /// # Errors
    /// When it asks nothing.
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

    /// The body of the answer.
    pub fn answer(&self, verdict: &Verdict) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": "AdmissionReview",
            "response": verdict.response(&self.request.uid),
        })
    }
}

impl Request {
    /// The object as it would be.
    ///
    /// # Errors
    /// In words, when it is not there or has fields of other types.
    pub fn object<T: DeserializeOwned>(&self) -> Result<T, String> {
        typed(self.object.as_ref(), "object")
    }

    /// The object as it is.
    ///
    /// # Errors
    /// In words, when it is not there or has fields of other types.
    pub fn old_object<T: DeserializeOwned>(&self) -> Result<T, String> {
        typed(self.old_object.as_ref(), "oldObject")
    }

    /// Whether this is about objects of one kind.
    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource
    }

    /// Whether `spec` is the same to the letter, before and after.
    pub fn has_same_spec(&self) -> bool {
        let spec =
            |object: &Option<Value>| object.as_ref().and_then(|object| object.get("spec").cloned());
        self.old_object.is_some() && spec(&self.object) == spec(&self.old_object)
    }

    /// Whether somebody has deleted the object, and it only waits for its finalizers.
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

/// A field that is null is as good as one that is not there. What is nested deeper than any object was refused with the
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
    fn both_versions_are_read_and_answered_in_kind() {
        for version in ["v1", "v1beta1"] {
            let text = body(
                version,
                r#","request":{"uid":"7","operation":"CREATE","userInfo":{"groups":null}}"#,
            );
            let asked = Asked::read(text.as_bytes()).unwrap();
            assert_eq!(asked.request.operation, Operation::Create);
            let answer = asked.answer(&Verdict::ALLOWED);
            assert_eq!(answer["apiVersion"], format!("admission.k8s.io/{version}"));
            assert_eq!(answer["response"], json!({ "uid": "7", "allowed": true }));
        }
    }

    #[test]
    fn whatever_else_is_no_review() {
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
            assert!(Asked::read(text.as_bytes()).is_err(), "{}", &text[..text.len().min(80)]);
        }
    }

    #[test]
    fn an_object_is_read_without_its_nulls() {
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
