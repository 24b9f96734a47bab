//! What is answered to a request for admission.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It goes on, changed or not.
    Allowed {
        /// JSON patch.
        patch: Vec<Patch>,
        /// Said to whoever asked.
        warning: Option<&'static str>,
    },
    /// It breaks a rule: 422, with the causes.
    Invalid(Vec<Cause>),
    /// It cannot be judged, or the state of the cluster forbids it: 400.
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
    /// Adds or replaces the member at `path`, a JSON pointer.
    pub fn add(path: impl Into<String>, value: Value) -> Self {
        Self { op: "add", path: path.into(), value: Some(value) }
    }

    /// Removes the member at `path`, which has to be there.
    pub fn remove(path: impl Into<String>) -> Self {
        Self { op: "remove", path: path.into(), value: None }
    }
}

/// A field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// For programs.
    pub kind: Kind,
    /// The field, spelt as clients know it.
    pub field: String,
    /// For people.
    pub message: String,
}

/// What kind of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is there already, or cannot change.
    Duplicate,
    /// Not so.
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

impl Verdict {
    /// As it is.
    pub const ALLOWED: Self = Self::Allowed { patch: Vec::new(), warning: None };

    /// One rule is broken.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::caused(Kind::Invalid, field, message)
    }

    /// Something is there already.
    pub fn duplicate(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::caused(Kind::Duplicate, field, message)
    }

    fn caused(kind: Kind, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Cause { kind, field: field.into(), message: message.into() }])
    }

    /// The `response` of a review.
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

/// The first rule that the types themselves check.
impl From<api::Invalid> for Verdict {
    fn from(api::Invalid { field, message }: api::Invalid) -> Self {
        Self::invalid(field, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_every_message_with_a_space_before_it() {
        let cause = |kind, field: &str, message: &str| Cause {
            kind,
            field: field.into(),
            message: message.into(),
        };
        let verdict = Verdict::Invalid(vec![
            cause(Kind::Duplicate, "DataVolume.Spec", "one"),
            cause(Kind::Invalid, "spec.PVC", "two"),
        ]);
        let response = verdict.response("1-2");
        assert_eq!(response["uid"], "1-2");
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["message"], " one two");
        assert_eq!(response["status"]["code"], 422);
        assert_eq!(
            response["status"]["details"]["causes"][0],
            json!({ "reason": "FieldValueDuplicate", "message": "one", "field": "DataVolume.Spec" })
        );
        let refused = Verdict::Refused("why".into()).response("1");
        assert_eq!(
            (&refused["status"]["code"], &refused["status"]["message"]),
            (&json!(400), &json!("why"))
        );
    }

    #[test]
    fn an_answer_says_no_more_than_it_has_to() {
        assert_eq!(Verdict::ALLOWED.response("1"), json!({ "uid": "1", "allowed": true }));
        let patch = vec![Patch::add("/metadata/annotations", json!({ "a": "b" }))];
        let response = Verdict::Allowed { patch, warning: Some("old") }.response("1");
        assert_eq!(response["patchType"], "JSONPatch");
        assert_eq!(response["warnings"], json!(["old"]));
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let expected = br#"[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]"#;
        assert_eq!(patch, expected);
    }
}
