//! Strategic merge patches, as Kubernetes defines them: objects are merged member by member, lists of objects by the value of
//! one member. Directives: `$patch: delete | replace`, `$retainKeys`, `$deleteFromPrimitiveList/LIST`,
//! `$setElementOrder/LIST`.
//!
//! The results are those of `kubectl patch --local --type=strategic`, order included: the order of containers and variables has a
//! meaning, and another one restarts the pods.

use serde_json::{Map, Value};

use super::list_keys::{ListStrategy, list_strategy};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("unknown directive {PATCH}: {got} at {path:?}")]
    Directive { path: String, got: String },
    #[error("an item of {path:?} has no {key}, by which the list is merged")]
    Key { path: String, key: &'static str },
    #[error("{path:?} is not a list")]
    NoList { path: String },
    #[error("{path:?} has members besides those of {RETAIN_KEYS}")]
    RetainKeys { path: String },
}

/// What the directive of a patched object demands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

/// On an error `object` is changed in part.
pub(super) fn merge(object: &mut Value, patch: &Value) -> Result<(), Error> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let Some(patch) = patch.as_object() else { return Ok(()) };
    merge_value(object, patch, PatchPath { kind: &kind, path: "" })
}

/// Where in which kind of object: `spec/template/spec/containers/*`.
#[derive(Clone, Copy)]
struct PatchPath<'a> {
    kind: &'a str,
    path: &'a str,
}

impl PatchPath<'_> {
    fn child(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

fn directive(patch: &Map<String, Value>, at: PatchPath<'_>) -> Result<Directive, Error> {
    match patch.get(PATCH) {
        None => Ok(Directive::Merge),
        Some(value) => match value.as_str() {
            Some("replace") => Ok(Directive::Replace),
            Some("delete") => Ok(Directive::Delete),
            _ => Err(Error::Directive { path: at.path.to_owned(), got: value.to_string() }),
        },
    }
}

/// Merges an object of the patch into `target`, which need not be an object yet.
fn merge_value(
    target: &mut Value,
    patch: &Map<String, Value>,
    at: PatchPath<'_>,
) -> Result<(), Error> {
    if directive(patch, at)? != Directive::Merge || !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return Ok(()) };
    if directive(patch, at)? == Directive::Delete {
        return Ok(());
    }
    retain_keys(fields, patch, at)?;
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_VALUES) {
            delete_values(fields, list, value, at)?;
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        let path = at.child(name);
        let at = PatchPath { path: &path, ..at };
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(patch) => {
                let child = fields.entry(name.clone()).or_insert(Value::Null);
                merge_value(child, patch, at)?;
            }
            Value::Array(items) => {
                let order = patch.get(&format!("{ELEMENT_ORDER}{name}")).and_then(Value::as_array);
                let child = fields.entry(name.clone()).or_insert(Value::Null);
                merge_list(child, items, order.unwrap_or(items), at)?;
            }
            simple => {
                fields.insert(name.clone(), simple.clone());
            }
        }
    }
    for (directive, order) in patch {
        let Some(name) = directive.strip_prefix(ELEMENT_ORDER) else { continue };
        if let (Some(order), None, Some(child)) =
            (order.as_array(), patch.get(name), fields.get_mut(name))
            && child.is_array()
        {
            let path = at.child(name);
            merge_list(child, &[], order, PatchPath { path: &path, ..at })?;
        }
    }
    Ok(())
}

fn is_directive(name: &str) -> bool {
    [PATCH, RETAIN_KEYS].contains(&name)
        || name.starts_with(ELEMENT_ORDER)
        || name.starts_with(DELETE_VALUES)
}

/// Removes the members that a union must not have besides those of the patch.
fn retain_keys(
    fields: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    at: PatchPath<'_>,
) -> Result<(), Error> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let failed = || Error::RetainKeys { path: at.path.to_owned() };
    let retained = retained.as_array().ok_or_else(failed)?;
    let is_retained = |name: &str| retained.iter().any(|key| key == name);
    if patch.keys().any(|name| !is_directive(name) && !is_retained(name)) {
        return Err(failed());
    }
    fields.retain(|name, _| is_retained(name));
    Ok(())
}

fn delete_values(
    fields: &mut Map<String, Value>,
    list: &str,
    values: &Value,
    at: PatchPath<'_>,
) -> Result<(), Error> {
    let no_list = || Error::NoList { path: at.child(list) };
    let values = values.as_array().ok_or_else(no_list)?;
    match fields.get_mut(list) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(items)) => {
            items.retain(|item| !values.contains(item));
            Ok(())
        }
        Some(_) => Err(no_list()),
    }
}

/// `order`: items, or their keys, in the order that they shall have.
fn merge_list(
    target: &mut Value,
    items: &[Value],
    order: &[Value],
    at: PatchPath<'_>,
) -> Result<(), Error> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(present) = target else { return Ok(()) };
    match list_strategy(at.kind, at.path) {
        // Without items the list is only to be ordered, which an atomic list is not.
        ListStrategy::Atomic if items.is_empty() && !order.is_empty() => {}
        ListStrategy::Atomic => *present = items.to_vec(),
        ListStrategy::Set => {
            let before = present.clone();
            for item in items {
                if !present.contains(item) {
                    present.push(item.clone());
                }
            }
            sort_items(present, order, &before, |item| item);
        }
        ListStrategy::Keyed(key) => {
            let replaces = items.iter().any(|item| item[PATCH] == "replace");
            if replaces {
                present.clear();
            }
            let before = present.clone();
            for item in items.iter().filter(|item| item[PATCH] != "replace") {
                merge_item(present, item, key, at)?;
            }
            sort_items(present, order, &before, |item| &item[key]);
        }
    }
    Ok(())
}

/// Items of `order` come in that order. Between them are the others, each where it was `before` relative to them; items that
/// were not there before come as early as the order permits.
fn sort_items(
    items: &mut Vec<Value>,
    order: &[Value],
    before: &[Value],
    key: impl Fn(&Value) -> &Value,
) {
    let position = |list: &[Value], item: &Value| list.iter().position(|one| key(one) == key(item));
    let (mut listed, others): (Vec<_>, Vec<_>) =
        items.drain(..).partition(|item| position(order, item).is_some());
    listed.sort_by_key(|item| position(order, item));
    let (mut listed, mut others) = (listed.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (listed.peek(), others.peek()) {
        // `None`, for a new item, is less than any position.
        let is_first = position(before, left) <= position(before, right);
        items.extend(if is_first { listed.next() } else { others.next() });
    }
    items.extend(listed);
    items.extend(others);
}

fn merge_item(
    present: &mut Vec<Value>,
    item: &Value,
    key: &'static str,
    at: PatchPath<'_>,
) -> Result<(), Error> {
    let no_key = || Error::Key { path: at.path.to_owned(), key };
    let item = item.as_object().ok_or_else(no_key)?;
    let value = item.get(key).filter(|value| !value.is_null()).ok_or_else(no_key)?;
    let is_it = |present: &Value| present[key] == *value;
    let path = at.child("*");
    let at = PatchPath { path: &path, ..at };
    if directive(item, at)? == Directive::Delete {
        present.retain(|present| !is_it(present));
        return Ok(());
    }
    match present.iter_mut().find(|present| is_it(present)) {
        Some(present) => merge_value(present, item, at),
        None => {
            let mut added = Value::Null;
            merge_value(&mut added, item, at)?;
            present.push(added);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        json!({
            "kind": "Deployment",
            "metadata": { "name": "d", "labels": { "a": "1" }, "finalizers": ["x", "y"] },
            "spec": {
                "replicas": 1,
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } },
                "template": { "spec": {
                    "tolerations": [{ "key": "t" }],
                    "containers": [
                        {
                            "name": "first", "image": "i:1", "args": ["-v=1"],
                            "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }],
                            "ports": [{ "containerPort": 8443, "name": "https" }],
                        },
                        { "name": "second", "image": "j:1" },
                    ],
                    "volumes": [{ "name": "v", "secret": { "secretName": "s" } }],
                } },
            },
        })
    }

    fn pod(patch: Value) -> Value {
        json!({ "spec": { "template": { "spec": patch } } })
    }

    /// Patches [`deployment`] and returns the value at `pointer`.
    fn patched(patch: &Value, pointer: &str) -> Value {
        let mut object = deployment();
        merge(&mut object, patch).unwrap();
        object.pointer(pointer).cloned().unwrap_or(Value::Null)
    }

    #[test]
    fn strategic_merge_table() {
        let first = "/spec/template/spec/containers/0";
        let env = "/spec/template/spec/containers/0/env";
        let names = |env: Value| pod(json!({ "containers": [{ "name": "first", "env": env }] }));
        let table = [
            ("member", json!({ "spec": { "replicas": 3 } }), "/spec/replicas", json!(3)),
            (
                "null removes",
                json!({ "spec": { "replicas": null } }),
                "/spec/replicas",
                Value::Null,
            ),
            (
                "maps are merged",
                json!({ "metadata": { "labels": { "b": "2" } } }),
                "/metadata/labels",
                json!({ "a": "1", "b": "2" }),
            ),
            (
                "item by its key",
                pod(json!({ "containers": [{ "name": "second", "image": "j:2" }] })),
                "/spec/template/spec/containers/1",
                json!({ "name": "second", "image": "j:2" }),
            ),
            (
                "other items stay",
                pod(json!({ "containers": [{ "name": "second", "image": "j:2" }] })),
                "/spec/template/spec/containers/0/image",
                json!("i:1"),
            ),
            (
                "new item first",
                pod(json!({ "containers": [{ "name": "third", "image": null, "args": [] }] })),
                "/spec/template/spec/containers/0",
                json!({ "name": "third", "args": [] }),
            ),
            (
                "item deleted",
                pod(json!({ "containers": [{ "name": "first", "$patch": "delete" }] })),
                first,
                json!({ "name": "second", "image": "j:1" }),
            ),
            (
                "item replaced",
                pod(json!({ "containers": [{ "$patch": "replace" }, { "name": "only" }] })),
                "/spec/template/spec/containers",
                json!([{ "name": "only" }]),
            ),
            (
                "nested list by its key",
                names(json!([{ "name": "B", "value": "3" }])),
                env,
                json!([
                    { "name": "A", "value": "1" }, { "name": "B", "value": "3" },
                ]),
            ),
            (
                "nested item deleted",
                names(json!([{ "name": "A", "$patch": "delete" }])),
                env,
                json!([
                    { "name": "B", "value": "2" },
                ]),
            ),
            (
                "port by its number",
                pod(
                    json!({ "containers": [{ "name": "first", "ports": [{ "containerPort": 8443, "name": "web" }] }] }),
                ),
                "/spec/template/spec/containers/0/ports",
                json!([{ "containerPort": 8443, "name": "web" }]),
            ),
            (
                "list without a key is replaced",
                pod(json!({ "tolerations": [{ "operator": "Exists" }] })),
                "/spec/template/spec/tolerations",
                json!([{ "operator": "Exists" }]),
            ),
            (
                "arguments are replaced",
                pod(json!({ "containers": [{ "name": "first", "args": ["-v", "3"] }] })),
                "/spec/template/spec/containers/0/args",
                json!(["-v", "3"]),
            ),
            (
                "values are added once",
                json!({ "metadata": { "finalizers": ["y", "z"] } }),
                "/metadata/finalizers",
                json!(["x", "y", "z"]),
            ),
            (
                "values deleted",
                json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["x"] } }),
                "/metadata/finalizers",
                json!(["y"]),
            ),
            (
                "order",
                pod(
                    json!({ "$setElementOrder/containers": [{ "name": "second" }, { "name": "first" }] }),
                ),
                "/spec/template/spec/containers/0/name",
                json!("second"),
            ),
            (
                "order of values",
                json!({ "metadata": { "$setElementOrder/finalizers": ["y", "x"], "finalizers": [] } }),
                "/metadata/finalizers",
                json!(["y", "x"]),
            ),
            (
                "order of a list without a key",
                pod(json!({ "$setElementOrder/tolerations": [{ "key": "u" }] })),
                "/spec/template/spec/tolerations",
                json!([{ "key": "t" }]),
            ),
            (
                "new item between",
                names(json!([{ "name": "C", "value": "3" }, { "name": "B" }])),
                "/spec/template/spec/containers/0/env/1/name",
                json!("A"),
            ),
            (
                "members retained",
                json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } }),
                "/spec/strategy",
                json!({ "type": "Recreate" }),
            ),
            (
                "object replaced",
                json!({ "spec": { "strategy": { "$patch": "replace", "type": "Recreate" } } }),
                "/spec/strategy",
                json!({ "type": "Recreate" }),
            ),
            (
                "object emptied",
                json!({ "metadata": { "labels": { "$patch": "delete" } } }),
                "/metadata/labels",
                json!({}),
            ),
            (
                "directives are not stored in new objects",
                json!({ "spec": { "new": { "$retainKeys": ["a"], "a": { "b": null, "c": 1 } } } }),
                "/spec/new",
                json!({ "a": { "c": 1 } }),
            ),
            (
                "another type replaces",
                json!({ "spec": { "replicas": { "a": 1 } } }),
                "/spec/replicas",
                json!({ "a": 1 }),
            ),
        ];
        for (case, patch, pointer, expected) in table {
            assert_eq!(patched(&patch, pointer), expected, "{case}");
        }
    }

    #[test]
    fn bad_directives_and_items_without_a_key_are_errors() {
        let error = |patch| merge(&mut deployment(), &patch).unwrap_err();
        assert!(matches!(error(json!({ "spec": { "$patch": "drop" } })), Error::Directive { .. }));
        assert!(matches!(error(json!({ "spec": { "$patch": 1 } })), Error::Directive { .. }));
        let merge = pod(json!({ "containers": [{ "name": "first", "$patch": "merge" }] }));
        assert!(matches!(error(merge), Error::Directive { .. }));
        let key = error(pod(json!({ "containers": [{ "image": "k" }] })));
        assert_eq!(key, Error::Key { path: "spec/template/spec/containers".into(), key: "name" });
        assert!(matches!(error(pod(json!({ "containers": ["first"] }))), Error::Key { .. }));
        let strategy = json!({ "$retainKeys": ["type"], "rollingUpdate": {} });
        let retained = error(json!({ "spec": { "strategy": strategy } }));
        assert_eq!(retained, Error::RetainKeys { path: "spec/strategy".into() });
        let values = json!({ "metadata": { "$deleteFromPrimitiveList/labels": ["a"] } });
        assert!(matches!(error(values), Error::NoList { .. }));
    }

    #[test]
    fn repeated_merge_changes_nothing() {
        let patch = pod(json!({
            "containers": [
                { "name": "first", "env": [{ "name": "C", "value": "3" }, { "name": "A", "$patch": "delete" }] },
                { "name": "third", "ports": [{ "containerPort": 1 }] },
            ],
            "tolerations": [{ "operator": "Exists" }],
        }));
        let mut once = deployment();
        merge(&mut once, &patch).unwrap();
        let mut twice = once.clone();
        merge(&mut twice, &patch).unwrap();
        assert_eq!(once, twice);
    }
}
