//! Comparison of an object in the cluster with the desired one.

use k8s_openapi::api::batch::v1::CronJob;
use serde_json::{Value, json};

/// Whether a CronJob has all desired values. Values that the API server added are ignored.
pub fn agrees(present: &CronJob, wanted: &CronJob) -> bool {
    holds(&json!(present.spec), &json!(wanted.spec))
}

fn holds(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| present.get(key).is_some_and(|present| holds(present, wanted))),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len()
                && present.iter().zip(wanted).all(|(present, wanted)| holds(present, wanted))
        }
        _ => present == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_the_api_server_adds_are_no_difference() {
        let wanted = json!({ "a": { "b": [{ "c": 1 }] }, "d": "e" });
        for (present, expected) in [
            (wanted.clone(), true),
            (json!({ "a": { "b": [{ "c": 1, "x": 0 }], "x": 0 }, "d": "e", "x": [] }), true),
            (json!({ "a": { "b": [{ "c": 2 }] }, "d": "e" }), false),
            (json!({ "a": { "b": [{ "c": 1 }, {}] }, "d": "e" }), false),
            (json!({ "a": { "b": [] }, "d": "e" }), false),
            (json!({ "a": { "b": [{ "c": 1 }] } }), false),
            (json!(null), false),
        ] {
            assert_eq!(holds(&present, &wanted), expected, "{present}");
        }
    }
}
