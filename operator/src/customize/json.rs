//! JSON patches (RFC 6902), with two allowances of upstream CDI: a removal of what does not exist changes nothing, and an
//! addition creates the objects and lists above it.

use json_patch::jsonptr::{Pointer, Token};
use json_patch::{Patch, PatchOperation};
use serde_json::{Map, Value};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// The result is larger than the limit.
    Size,
    Failed(String),
}

/// On an error `object` is changed in part.
pub(super) fn apply(object: &mut Value, patch: &Patch, size_max: usize) -> Result<(), Error> {
    for operation in &patch.0 {
        match operation {
            PatchOperation::Remove(remove) if remove.path.resolve(object).is_err() => continue,
            PatchOperation::Add(add) => create_parents(object, &add.path)?,
            _ => {}
        }
        json_patch::patch(object, std::slice::from_ref(operation))
            .map_err(|error| Error::Failed(error.to_string()))?;
        // Other operations make it no larger than the patch.
        if matches!(operation, PatchOperation::Copy(_)) && object.to_string().len() > size_max {
            return Err(Error::Size);
        }
    }
    Ok(())
}

/// Creates the missing objects and lists on the path to the parent of `path`.
fn create_parents(object: &mut Value, path: &Pointer) -> Result<(), Error> {
    let tokens: Vec<Token<'_>> = path.tokens().collect();
    let mut at = object;
    for pair in tokens.windows(2) {
        let [token, next] = pair else { break };
        let name = token.decoded();
        let empty = || match next.decoded().as_ref() {
            "-" | "0" => Value::Array(Vec::new()),
            _ => Value::Object(Map::new()),
        };
        at = match at {
            Value::Object(fields) => {
                let child = fields.entry(name.into_owned()).or_insert(Value::Null);
                if child.is_null() {
                    *child = empty();
                }
                child
            }
            Value::Array(items) => {
                if name == "-" || name.parse() == Ok(items.len()) {
                    items.push(empty());
                }
                let index =
                    if name == "-" { items.len().checked_sub(1) } else { name.parse().ok() };
                let child = index.and_then(|index| items.get_mut(index));
                child.ok_or_else(|| Error::Failed(format!("{path} is beyond the end of a list")))?
            }
            _ => return Err(Error::Failed(format!("{path} is below a value without members"))),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(object: Value, patch: Value) -> Result<Value, Error> {
        let mut object = object;
        apply(&mut object, &serde_json::from_value(patch).unwrap(), 1000).map(|()| object)
    }

    #[test]
    fn missing_paths_are_tolerated_or_created() {
        let table = [
            (
                "remove",
                json!({ "a": 1 }),
                json!([{ "op": "remove", "path": "/b/c" }]),
                json!({ "a": 1 }),
            ),
            (
                "remove an item",
                json!({ "a": [1] }),
                json!([{ "op": "remove", "path": "/a/5" }]),
                json!({ "a": [1] }),
            ),
            (
                "add below nothing",
                json!({}),
                json!([{ "op": "add", "path": "/a/b/c", "value": 1 }]),
                json!({ "a": { "b": { "c": 1 } } }),
            ),
            (
                "add to no list",
                json!({}),
                json!([{ "op": "add", "path": "/a/-", "value": 1 }]),
                json!({ "a": [1] }),
            ),
            (
                "add to the first item of no list",
                json!({}),
                json!([{ "op": "add", "path": "/a/0/b", "value": 1 }]),
                json!({ "a": [{ "b": 1 }] }),
            ),
            (
                "add in place of null",
                json!({ "a": null }),
                json!([{ "op": "add", "path": "/a/b", "value": 1 }]),
                json!({ "a": { "b": 1 } }),
            ),
            (
                "escaped names",
                json!({}),
                json!([{ "op": "add", "path": "/m/a.b~1c", "value": "x" }]),
                json!({ "m": { "a.b/c": "x" } }),
            ),
            (
                "operations in their order",
                json!({ "a": [1, 2] }),
                json!([
                    { "op": "test", "path": "/a/0", "value": 1 },
                    { "op": "remove", "path": "/a/0" },
                    { "op": "replace", "path": "/a/0", "value": 3 },
                    { "op": "move", "from": "/a", "path": "/b" },
                    { "op": "copy", "from": "/b", "path": "/c" },
                ]),
                json!({ "b": [3], "c": [3] }),
            ),
        ];
        for (case, object, patch, expected) in table {
            assert_eq!(patched(object, patch), Ok(expected), "{case}");
        }
    }

    #[test]
    fn what_cannot_be_applied_is_an_error() {
        for (object, patch) in [
            (json!({ "a": 1 }), json!([{ "op": "test", "path": "/a", "value": 2 }])),
            (json!({ "a": 1 }), json!([{ "op": "replace", "path": "/b", "value": 2 }])),
            (json!({ "a": 1 }), json!([{ "op": "add", "path": "/a/b", "value": 2 }])),
            (json!({ "a": [1] }), json!([{ "op": "add", "path": "/a/7", "value": 2 }])),
            (json!({ "a": [1] }), json!([{ "op": "add", "path": "/a/7/b", "value": 2 }])),
            (json!({ "a": 1 }), json!([{ "op": "move", "from": "/x", "path": "/b" }])),
        ] {
            let patched = patched(object, patch.clone());
            assert!(matches!(patched, Err(Error::Failed(_))), "{patch}: {patched:?}");
        }
    }

    #[test]
    fn copies_are_bounded() {
        let copy = json!({ "op": "copy", "from": "", "path": "/a" });
        let patch = Value::Array(vec![copy; 100]);
        assert_eq!(patched(json!({ "text": "0123456789" }), patch), Err(Error::Size));
    }
}
