//! The result of an admission request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionResult {
    /// Allowed, possibly patched.
    Allowed {
        patch: Vec<Patch>,
        /// A warning for the client.
        warning: Option<&'static str>,
    },
    /// Violates a rule: 422 with causes.
    Invalid(Vec<Cause>),
    /// Cannot be reviewed, or the state of the cluster forbids it: 400.
    Refused(String),
}

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Patch {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

impl Patch {
    /// Adds or replaces the member at the JSON pointer `path`.
    pub fn add(path: impl Into<String>, value: Value) -> Self {
        Self { op: "add", path: path.into(), value: Some(value) }
    }

    /// Removes the member at `path`, which has to exist.
    pub fn remove(path: impl Into<String>) -> Self {
        Self { op: "remove", path: path.into(), value: None }
    }
}

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub kind: Kind,
    /// Spelt as in upstream CDI.
    pub field: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exists already, or is immutable.
    Duplicate,
    Invalid,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
        }
    }
}

impl AdmissionResult {
    /// Allowed unchanged.
    pub const ALLOWED: Self = Self::Allowed { patch: Vec::new(), warning: None };

    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::caused(Kind::Invalid, field, message)
    }

    pub fn duplicate(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::caused(Kind::Duplicate, field, message)
    }

    fn caused(kind: Kind, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Cause { kind, field: field.into(), message: message.into() }])
    }

    /// The `response` of an AdmissionReview.
    pub fn response(&self, uid: &str) -> Value {
        match self {
            Self::Allowed { patch, warning } => {
                let mut response = json!({ "uid": uid, "allowed": true });
                if !patch.is_empty() {
                    let patch = serde_json::to_vec(patch).expect("a patch is JSON");
                    response["patch"] = STANDARD.encode(patch).into();
                    response["patchType"] = "JSONPatch".into();
                }
                if let Some(warning) = warning {
                    response["warnings"] = json!([warning]);
                }
                response
            }
            Self::Invalid(causes) => {
                let message: String =
                    causes.iter().map(|cause| format!(" {}", cause.message)).collect();
                let causes: Vec<_> = causes
                    .iter()
                    .map(|Cause { kind, field, message }| {
                        json!({ "reason": kind.as_str(), "message": message, "field": field })
                    })
                    .collect();
                let status = json!({
                    "status": "Failure",
                    "message": message,
                    "reason": "Invalid",
                    "code": 422,
                    "details": { "causes": causes },
                });
                json!({ "uid": uid, "allowed": false, "status": status })
            }
            Self::Refused(message) => {
                let status = json!({
                    "status": "Failure",
                    "message": message,
                    "reason": "BadRequest",
                    "code": 400,
                });
                json!({ "uid": uid, "allowed": false, "status": status })
            }
        }
    }
}

impl From<api::Invalid> for AdmissionResult {
    fn from(api::Invalid { field, message }: api::Invalid) -> Self {
        Self::invalid(field, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_joins_messages_as_upstream_cdi_does() {
        let cause = |kind, field: &str, message: &str| Cause {
            kind,
            field: field.into(),
            message: message.into(),
        };
        let result = AdmissionResult::Invalid(vec![
            cause(Kind::Duplicate, "DataVolume.Spec", "one"),
            cause(Kind::Invalid, "spec.PVC", "two"),
        ]);
        let response = result.response("1-2");
        assert_eq!(response["uid"], "1-2");
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["message"], " one two");
        assert_eq!(response["status"]["code"], 422);
        assert_eq!(
            response["status"]["details"]["causes"][0],
            json!({ "reason": "FieldValueDuplicate", "message": "one", "field": "DataVolume.Spec" })
        );
        let refused = AdmissionResult::Refused("why".into()).response("1");
        assert_eq!(
            (&refused["status"]["code"], &refused["status"]["message"]),
            (&json!(400), &json!("why"))
        );
    }

    #[test]
    fn response_omits_empty_fields() {
        assert_eq!(AdmissionResult::ALLOWED.response("1"), json!({ "uid": "1", "allowed": true }));
        let patch = vec![Patch::add("/metadata/annotations", json!({ "a": "b" }))];
        let response = AdmissionResult::Allowed { patch, warning: Some("old") }.response("1");
        assert_eq!(response["patchType"], "JSONPatch");
        assert_eq!(response["warnings"], json!(["old"]));
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let expected = br#"[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]"#;
        assert_eq!(patch, expected);
    }
}
