//! Compares specs semantically.

use serde::Serialize;
use serde_json::Value;

/// Fields that Go clients write even if empty.
const MAY_BE_EMPTY: [&str; 6] =
    ["resources", "requests", "limits", "matchLabels", "metadata", "status"];

/// Whether `a` and `b` are equal. Go clients omit or write empty fields, depending on the type, which is no difference.
/// Quantities are compared by amount.
pub fn same<T: Serialize>(a: &T, b: &T) -> bool {
    canonical(a) == canonical(b)
}

fn canonical<T: Serialize>(spec: &T) -> Value {
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(strip);
            fields.retain(|name, field| match field {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::Bool(yes) => *yes || name != "finalCheckpoint",
                Value::Object(members) => {
                    !members.is_empty() || !MAY_BE_EMPTY.contains(&name.as_str())
                }
                Value::Number(_) => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use api::DataVolumeSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_fields_and_quantity_notation_do_not_matter() {
        let check = |a: Value, b: Value, expected: bool| {
            let read = |v: &Value| serde_json::from_value::<DataVolumeSpec>(v.clone()).unwrap();
            assert_eq!(same(&read(&a), &read(&b)), expected, "{a} {b}");
        };
        let of_size =
            |size: &str| json!({ "storage": { "resources": { "requests": { "storage": size } } } });
        check(json!({ "storage": {} }), json!({ "storage": { "resources": {} } }), true);
        check(json!({ "contentType": "" }), json!({}), true);
        check(json!({ "finalCheckpoint": false, "checkpoints": [] }), json!({}), true);
        check(of_size("1Gi"), of_size("1024Mi"), true);
        check(of_size("1Gi"), of_size("1G"), false);
        check(json!({ "source": { "blank": {} } }), json!({ "source": { "upload": {} } }), false);
        check(json!({ "source": { "blank": {} } }), json!({ "source": {} }), false);
        check(json!({ "preallocation": false }), json!({}), false);
        check(json!({ "storage": {} }), json!({ "pvc": {} }), false);
        check(json!({ "storage": {} }), json!({}), false);
    }
}
