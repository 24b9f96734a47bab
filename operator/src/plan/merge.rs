//! Three-way merge of an object: what was applied last, what is desired, what is in the cluster.
//!
//! ```text
//! field in       last  desired  current   result
//!                  -      x        *      desired, merged with current where both are objects
//!                  x      -        x      removed
//!                  -      -        x      current: of another writer, or a default of the API server
//! ```
//!
//! Lists are replaced as a whole, as in a JSON merge patch, unless they differ from the desired ones only in values that the
//! API server fills in.

use serde_json::{Map, Value};

/// `current` with the changes that make it as desired. Equal to `current` if there is nothing to change.
pub fn merge(last: &Value, desired: &Value, current: &Value) -> Value {
    match (desired, current) {
        (Value::Object(desired), Value::Object(current)) => {
            Value::Object(merge_fields(last, desired, current))
        }
        (Value::Array(_), Value::Array(_)) if is_defaulted(desired, current, "") => current.clone(),
        _ if is_equal_scalar(desired, current) => current.clone(),
        _ => desired.clone(),
    }
}

fn merge_fields(
    last: &Value,
    desired: &Map<String, Value>,
    current: &Map<String, Value>,
) -> Map<String, Value> {
    let is_removed = |field: &String| last.get(field).is_some() && !desired.contains_key(field);
    let mut merged: Map<_, _> = current
        .iter()
        .filter(|(field, _)| !is_removed(field))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    for (field, desired) in desired {
        let before = last.get(field).unwrap_or(&Value::Null);
        match current.get(field) {
            Some(current) => {
                let value = if is_quantities(field) && is_defaulted(desired, current, field) {
                    current.clone()
                } else {
                    merge(before, desired, current)
                };
                merged.insert(field.clone(), value);
            }
            // The API server drops these.
            None if is_dropped(field, desired) => {}
            None => {
                merged.insert(field.clone(), desired.clone());
            }
        }
    }
    merged
}

/// Whether `current` is `desired` as the API server returns it: with its defaults, without what is empty. `field` is the
/// name of the field that holds both.
fn is_defaulted(desired: &Value, current: &Value, field: &str) -> bool {
    match (desired, current) {
        (Value::Object(desired), Value::Object(current)) => {
            let is_kept = desired.iter().all(|(name, desired)| match current.get(name) {
                Some(current) if is_quantities(field) => is_same_quantity(desired, current),
                Some(current) => is_defaulted(desired, current, name),
                None => is_dropped(name, desired),
            });
            is_kept
                && current
                    .iter()
                    .filter(|(name, _)| !desired.contains_key(*name))
                    .all(|(name, value)| is_default(name, value, desired))
        }
        (Value::Array(desired), Value::Array(current)) => {
            desired.len() == current.len()
                && desired
                    .iter()
                    .zip(current)
                    .all(|(desired, current)| is_defaulted(desired, current, field))
        }
        _ => is_equal_scalar(desired, current),
    }
}

/// Numbers are compared by value: the API server writes `1.0` as `1`.
fn is_equal_scalar(desired: &Value, current: &Value) -> bool {
    match (desired, current) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        _ => desired == current,
    }
}

/// Values that mean the same as an absent field.
fn is_dropped(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => {
            all.is_empty()
                && matches!(
                    field,
                    "annotations"
                        | "data"
                        | "labels"
                        | "limits"
                        | "matchLabels"
                        | "nodeSelector"
                        | "requests"
                        | "stringData"
                )
        }
        // `omitempty` of Go.
        Value::Bool(value) => {
            !value && matches!(field, "tty" | "stdin" | "hostNetwork" | "hostPID")
        }
        Value::Number(number) => number.as_i64() == Some(0) && field == "priority",
        Value::String(text) => text.is_empty() && matches!(field, "value" | "status"),
    }
}

/// What API servers fill in, in lists of the kinds that are installed.
fn is_default(field: &str, value: &Value, siblings: &Map<String, Value>) -> bool {
    let is = |defaults: &[&str]| value.as_str().is_some_and(|text| defaults.contains(&text));
    let is_empty = || value.as_object().is_some_and(Map::is_empty);
    let is_number = |number: i64| value.as_i64() == Some(number);
    match field {
        "terminationMessagePath" => is(&["/dev/termination-log"]),
        "terminationMessagePolicy" => is(&["File"]),
        "imagePullPolicy" => is(&["Always", "IfNotPresent"]),
        "resources" | "namespaceSelector" | "objectSelector" => is_empty(),
        "protocol" => is(&["TCP"]),
        "scheme" => is(&["HTTP"]),
        "apiVersion" => is(&["v1"]),
        "timeoutSeconds" => is_number(1) || is_number(10),
        "successThreshold" => is_number(1),
        "periodSeconds" => is_number(10),
        "failureThreshold" => is_number(3),
        "defaultMode" => is_number(0o644),
        "expirationSeconds" => is_number(3600),
        "targetPort" => siblings.get("port").is_some_and(|port| port == value),
        "port" => is_number(443) && siblings.contains_key("namespace"),
        "nodePort" => value.is_number(),
        "matchPolicy" => is(&["Equivalent"]),
        "failurePolicy" => is(&["Fail"]),
        "reinvocationPolicy" => is(&["Never"]),
        "scope" => is(&["*"]),
        "optional" | "readOnly" | "deprecated" => value == &Value::Bool(false),
        "divisor" => is(&["0"]),
        "type" => is(&[""]),
        "operator" => is(&["Equal"]),
        _ => false,
    }
}

fn is_quantities(field: &str) -> bool {
    matches!(field, "limits" | "requests" | "hard")
}

fn is_same_quantity(desired: &Value, current: &Value) -> bool {
    match (parse_quantity(desired), parse_quantity(current)) {
        (Some(desired), Some(current)) => desired == current,
        _ => desired == current,
    }
}

/// Thousandths. `None` for what is none, or has another suffix.
fn parse_quantity(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let digits_end = text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, suffix) = text.split_at(digits_end.unwrap_or(text.len()));
    let factor: i128 = match suffix {
        "" => 1000,
        "m" => 1,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || number.len() > 18 || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut thousandths = whole.checked_mul(factor)?;
    if !fraction.is_empty() {
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = fraction.parse::<i128>().ok()?.checked_mul(factor)?;
        // A finer value than a thousandth is compared as text.
        if part % scale != 0 {
            return None;
        }
        thousandths = thousandths.checked_add(part / scale)?;
    }
    Some(thousandths)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_decision_table() {
        let null = Value::Null;
        for (case, last, desired, current, expected) in [
            ("equal", null.clone(), json!({ "a": 1 }), json!({ "a": 1 }), json!({ "a": 1 })),
            ("changed", json!({ "a": 1 }), json!({ "a": 1 }), json!({ "a": 2 }), json!({ "a": 1 })),
            ("missing", json!({ "a": 1 }), json!({ "a": 1 }), json!({}), json!({ "a": 1 })),
            ("foreign", json!({}), json!({}), json!({ "b": 1 }), json!({ "b": 1 })),
            (
                "desired no more",
                json!({ "a": 1 }),
                json!({}),
                json!({ "a": 2, "b": 1 }),
                json!({ "b": 1 }),
            ),
            (
                "desired no more, nested",
                json!({ "m": { "a": 1, "b": 1 } }),
                json!({ "m": { "a": 1 } }),
                json!({ "m": { "a": 1, "b": 1, "c": 1 } }),
                json!({ "m": { "a": 1, "c": 1 } }),
            ),
            (
                "other type",
                null.clone(),
                json!({ "a": [1] }),
                json!({ "a": { "b": 1 } }),
                json!({ "a": [1] }),
            ),
            ("empty list is dropped", null.clone(), json!({ "a": [] }), json!({}), json!({})),
            (
                "emptied list",
                null.clone(),
                json!({ "a": [] }),
                json!({ "a": [1] }),
                json!({ "a": [] }),
            ),
            ("number", null.clone(), json!({ "a": 1.0 }), json!({ "a": 1 }), json!({ "a": 1 })),
            (
                "last is text",
                json!("{"),
                json!({ "a": 1 }),
                json!({ "b": 1 }),
                json!({ "a": 1, "b": 1 }),
            ),
            (
                "quantities",
                null.clone(),
                json!({ "limits": { "cpu": "0.1", "memory": "1024Mi" } }),
                json!({ "limits": { "cpu": "100m", "memory": "1Gi" } }),
                json!({ "limits": { "cpu": "100m", "memory": "1Gi" } }),
            ),
        ] {
            assert_eq!(merge(&last, &desired, &current), expected, "{case}");
        }
    }

    #[test]
    fn lists_with_defaults_stay_and_other_lists_are_replaced() {
        let container = json!([{ "name": "a", "ports": [{ "containerPort": 1 }], "env": [] }]);
        let defaulted = json!([{
            "name": "a", "ports": [{ "containerPort": 1, "protocol": "TCP" }], "resources": {},
            "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "Always",
        }]);
        assert_eq!(merge(&Value::Null, &container, &defaulted), defaulted);
        let edits: [fn(&mut Value); 6] = [
            |list| list[0]["command"] = json!(["sh"]),
            |list| list[0]["name"] = "b".into(),
            |list| list[0]["ports"] = json!([]),
            |list| list[0]["ports"][0]["protocol"] = "UDP".into(),
            |list| list[0]["imagePullPolicy"] = "Never".into(),
            |list| list.as_array_mut().unwrap().push(json!({ "name": "sidecar" })),
        ];
        for edit in edits {
            let mut edited = defaulted.clone();
            edit(&mut edited);
            assert_eq!(merge(&Value::Null, &container, &edited), container, "{edited}");
        }
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (one, other, expected) in [
            (json!("100m"), json!("0.1"), true),
            (json!(1), json!("1000m"), true),
            (json!("1Gi"), json!("1024Mi"), true),
            (json!("1G"), json!("1Gi"), false),
            (json!("1.5Gi"), json!("1536Mi"), true),
            (json!("1e3"), json!("1000"), false),
            (json!("1e3"), json!("1e3"), true),
            (json!("."), json!("0"), false),
            (json!("1.1.1"), json!("1"), false),
            (json!(""), json!("0"), false),
            (json!("99999999999999999999"), json!("1"), false),
            (json!("0.0001"), json!("0"), false),
        ] {
            assert_eq!(is_same_quantity(&one, &other), expected, "{one} {other}");
        }
    }
}
