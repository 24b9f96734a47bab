//! Random edits and deletions of the objects of an installation: it converges, and what other clients have added stays.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod memory_api;

use std::collections::BTreeMap;

use memory_api::MemoryApi;
use memory_api::scenario::{CDI, Objects, Operator, installed_objects};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

/// Each one is an installation that is repaired.
const CASES: u32 = 24;

#[derive(Clone, Debug)]
enum Edit {
    Delete,
    /// The number selects one of the fields that the operator applies.
    ChangeField(usize),
    RemoveField(usize),
    RemoveLabels,
    RemoveLastApplied,
    RemoveOwner,
    AddLabel,
    AddAnnotation,
    AddSpecField,
}

fn edits() -> impl Strategy<Value = Vec<(usize, Edit)>> {
    let edit = prop_oneof![
        Just(Edit::Delete),
        (0..1000_usize).prop_map(Edit::ChangeField),
        (0..1000_usize).prop_map(Edit::RemoveField),
        Just(Edit::RemoveLabels),
        Just(Edit::RemoveLastApplied),
        Just(Edit::RemoveOwner),
        Just(Edit::AddLabel),
        Just(Edit::AddAnnotation),
        Just(Edit::AddSpecField),
    ];
    prop::collection::vec((0..1000_usize, edit), 1..12)
}

/// Paths of scalar values below `value`, without list items: lists are replaced as a whole.
fn scalars(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('~', "~0").replace('/', "~1");
                scalars(value, &format!("{path}/{field}"), found);
            }
        }
        Value::Array(all) => {
            for (index, value) in all.iter().enumerate() {
                scalars(value, &format!("{path}/{index}"), found);
            }
        }
        Value::String(_) => found.push(path.to_owned()),
        _ => {}
    }
}

/// What the operator applied, without its identity and without fields that no update can change.
fn applied_fields(object: &Value) -> Vec<String> {
    let last =
        &object["metadata"]["annotations"]["operator.cdi.kubevirt.io/lastAppliedConfiguration"];
    let Some(last) = last.as_str() else { return Vec::new() };
    let last: Value = serde_json::from_str(last).unwrap();
    let mut found = Vec::new();
    scalars(&last, "", &mut found);
    let fixed = ["/metadata/name", "/apiVersion", "/kind", "/spec/selector", "/roleRef"];
    found.retain(|path| !fixed.iter().any(|fixed| path.starts_with(fixed)));
    // Cloud providers change it, so it is kept as found.
    found.retain(|path| !path.contains("namespaceSelector"));
    found
}

fn apply(object: &mut Value, edit: &Edit) {
    match edit {
        Edit::Delete => {}
        Edit::ChangeField(number) | Edit::RemoveField(number) => {
            let fields = applied_fields(object);
            let Some(field) = fields.get(number % fields.len().max(1)) else { return };
            if matches!(edit, Edit::ChangeField(_)) {
                if let Some(value) = object.pointer_mut(field) {
                    *value = "changed".into();
                }
            } else {
                let (parent, name) = field.rsplit_once('/').unwrap();
                let name = name.replace("~1", "/").replace("~0", "~");
                if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
                    parent.remove(&name);
                }
            }
        }
        Edit::RemoveLabels => {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
        Edit::RemoveLastApplied => {
            if let Some(all) = object["metadata"]["annotations"].as_object_mut() {
                all.remove("operator.cdi.kubevirt.io/lastAppliedConfiguration");
            }
        }
        Edit::RemoveOwner => {
            object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        }
        Edit::AddLabel => object["metadata"]["labels"]["example.com/mine"] = "kept".into(),
        Edit::AddAnnotation => {
            object["metadata"]["annotations"]["example.com/mine"] = "kept".into()
        }
        Edit::AddSpecField => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("exampleField".to_owned(), "kept".into());
            }
        }
    }
}

/// The objects that the operator keeps in state, without those whose contents belong to other writers.
fn kept_objects(api: &MemoryApi) -> BTreeMap<String, Value> {
    let state = api.0.lock().unwrap();
    let is_kept =
        |key: &str| key != CDI && !key.starts_with("/secrets/") && !key.starts_with("/configmaps/");
    let kept = state.objects.iter().filter(|(key, _)| is_kept(key));
    kept.map(|(key, object)| (key.clone(), object.clone())).collect()
}

/// Without what a new or updated object has, and without the additions of [`Edit`].
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove("status");
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("exampleField");
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
        metadata.remove(field);
    }
    for map in ["labels", "annotations"] {
        if let Some(all) = metadata.get_mut(map).and_then(Value::as_object_mut) {
            all.remove("example.com/mine");
            // Only a new object has it.
            all.remove("operator.cdi.kubevirt.io/createVersion");
            all.remove("operator.cdi.kubevirt.io/updateVersion");
        }
    }
    object
}

fn repair(
    runtime: &tokio::runtime::Runtime,
    start: &MemoryApi,
    objects: Objects,
    edits: &[(usize, Edit)],
) {
    let api = start.copied();
    let before = kept_objects(&api);
    let keys: Vec<_> = before.keys().cloned().collect();
    let mut additions = Vec::new();
    for (number, edit) in edits {
        let key = &keys[number % keys.len()];
        if api.get(key).is_none() {
            continue;
        }
        match edit {
            Edit::Delete => {
                api.delete(key);
                additions.retain(|(added, _)| *added != key);
            }
            _ => api.edit(key, |object| apply(object, edit)),
        }
        match edit {
            Edit::AddLabel => additions.push((key, "/metadata/labels/example.com~1mine")),
            Edit::AddAnnotation => additions.push((key, "/metadata/annotations/example.com~1mine")),
            Edit::AddSpecField if before[key]["spec"].is_object() => {
                additions.push((key, "/spec/exampleField"));
            }
            Edit::RemoveLabels => {
                additions.retain(|(added, path)| *added != key || !path.contains("labels"));
            }
            _ => {}
        }
    }
    runtime.block_on(async {
        let mut operator = Operator::of_objects(&api, "1.0.0", objects);
        operator.converge().await;
        Operator::of_objects(&api, "1.0.0", objects).pass().await.unwrap();
        assert_eq!(api.writes(), Vec::<String>::new(), "a second pass writes nothing");
    });
    let after = kept_objects(&api);
    assert_eq!(after.keys().collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>());
    for (key, object) in &after {
        let (found, expected) = (comparable(object), comparable(&before[key]));
        assert!(found == expected, "{key}:\n{found}\nnot\n{expected}");
    }
    for (key, path) in additions {
        assert_eq!(after[key].pointer(path), Some(&"kept".into()), "{key} {path}");
    }
}

#[test]
fn random_edits_and_deletions_are_repaired_and_foreign_fields_stay() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (objects, cases) in [(Objects::Namespaced, CASES), (Objects::All, CASES / 4)] {
        let start = runtime.block_on(installed_objects("1.0.0", objects));
        start.writes();
        let mut runner =
            TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&edits(), |edits| {
            repair(&runtime, &start, objects, &edits);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}
