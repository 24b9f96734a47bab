use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

fn objects() -> Vec<Value> {
    let object = |kind: &str, name: &str| json!({ "kind": kind, "metadata": { "name": name } });
    let mut all = vec![
        object("Deployment", "cdi-apiserver"),
        object("Deployment", "cdi-deployment"),
        object("Deployment", "cdi-uploadproxy"),
        object("Service", "cdi-api"),
        object("ConfigMap", "cdi-apiserver"),
    ];
    for deployment in &mut all[..3] {
        let container = json!({ "name": deployment["metadata"]["name"], "args": ["-v=1"] });
        deployment["spec"] =
            json!({ "replicas": 1, "template": { "spec": { "containers": [container] } } });
    }
    all
}

fn patch(kind: &str, name: &str, type_: &str, patch: Value) -> CustomizePatch {
    CustomizePatch {
        resource_name: name.into(),
        resource_type: kind.into(),
        patch: patch.to_string(),
        type_: type_.into(),
    }
}

fn customizations(patches: Vec<CustomizePatch>) -> CustomizeComponents {
    CustomizeComponents { patches: Some(patches), flags: None }
}

/// Names of the objects that a patch of `kind` and `name` changes.
fn patched_names(kind: &str, name: &str) -> Vec<String> {
    let mut all = objects();
    let label = json!({ "metadata": { "labels": { "patched": "" } } });
    let errors = customize(&mut all, &customizations(vec![patch(kind, name, "merge", label)]));
    assert_eq!(errors, []);
    let is_patched = |object: &&Value| object["metadata"]["labels"]["patched"] == "";
    all.iter().filter(is_patched).map(title).collect()
}

#[test]
fn patches_match_kind_and_name_without_case() {
    let table: [(&str, &str, &[&str]); 7] = [
        ("Deployment", "cdi-apiserver", &["Deployment cdi-apiserver"]),
        ("deployment", "CDI-APISERVER", &["Deployment cdi-apiserver"]),
        (
            "Deployment",
            "*",
            &[
                "Deployment cdi-apiserver",
                "Deployment cdi-deployment",
                "Deployment cdi-uploadproxy",
            ],
        ),
        ("*", "cdi-api", &["Service cdi-api"]),
        ("*", "cdi-apiserver", &["Deployment cdi-apiserver"]), // no ConfigMap
        ("ConfigMap", "*", &[]),
        ("Deployment", "cdi", &[]),
    ];
    for (kind, name, expected) in table {
        assert_eq!(patched_names(kind, name), expected, "{kind} {name}");
    }
}

#[test]
fn each_type_of_patch_is_applied_in_order() {
    let mut all = objects();
    let patches = vec![
        patch(
            "Deployment",
            "cdi-apiserver",
            "json",
            json!([{ "op": "add", "path": "/spec/replicas", "value": 2 }]),
        ),
        patch("Deployment", "cdi-apiserver", "merge", json!({ "spec": { "replicas": 3 } })),
        patch(
            "Deployment",
            "cdi-apiserver",
            "strategic",
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "cdi-apiserver", "image": "i" }] } } } }),
        ),
    ];
    let customizations = customizations(patches);
    assert_eq!(customize(&mut all, &customizations), []);
    assert_eq!(all[0]["spec"]["replicas"], 3);
    let container = &all[0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(*container, json!({ "name": "cdi-apiserver", "args": ["-v=1"], "image": "i" }));
    assert_eq!(all[0]["metadata"]["annotations"][IDENTIFIER], identifier(&customizations));
    assert_eq!(all[1], objects()[1]);
}

#[test]
fn bad_patches_are_reported_and_others_applied() {
    let good = patch("Deployment", "*", "merge", json!({ "spec": { "replicas": 2 } }));
    let bad_text = CustomizePatch { patch: "{".into(), ..good.clone() };
    let name = json!({ "metadata": { "name": "other" } });
    let namespace = json!({ "metadata": { "namespace": "kube-system" } });
    let annotations = json!({ "metadata": { "annotations": 1 } });
    let large = json!({ "metadata": { "labels": { "a": "x".repeat(SIZE_MAX) } } });
    let test = json!([{ "op": "test", "path": "/spec/replicas", "value": 7 }]);
    let table = [
        ("text", bad_text, 1, "cannot parse patch 1: "),
        ("list", patch("Deployment", "*", "merge", json!([])), 1, "cannot parse patch 1: "),
        ("type", patch("Deployment", "*", "apply", json!({})), 1, "patch 1 has the type \"apply\""),
        ("name", patch("Deployment", "*", "merge", name), 3, "patch 1 changes metadata.name"),
        (
            "namespace",
            patch("*", "cdi-api", "strategic", namespace),
            1,
            "patch 1 changes metadata.namespace",
        ),
        ("annotations", patch("*", "cdi-api", "merge", annotations), 1, "cannot apply patch 1: "),
        ("size", patch("*", "cdi-api", "merge", large), 1, "patch 1 makes the object larger"),
        ("test", patch("Deployment", "cdi-apiserver", "json", test), 1, "cannot apply patch 1: "),
    ];
    for (case, bad, count, message) in table {
        let mut all = objects();
        let errors = customize(&mut all, &customizations(vec![bad, good.clone()]));
        assert_eq!(errors.len(), count, "{case}");
        let cause = errors[0].cause.to_string();
        assert!(cause.starts_with(message), "{case}: {cause}");
        for deployment in &all[..3] {
            assert_eq!(deployment["spec"]["replicas"], 2, "{case}");
        }
    }
}

#[test]
fn flags_become_arguments_in_the_order_of_their_names() {
    let flags = |pairs: &[(&str, &str)]| -> Option<BTreeMap<String, String>> {
        Some(pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    };
    let customizations = CustomizeComponents {
        patches: None,
        flags: Some(ComponentFlags {
            api: flags(&[("v", "5"), ("Logging-Format", "json"), ("require-sandbox", "")]),
            controller: flags(&[("v", "3\" , \"-x")]),
            upload_proxy: flags(&[]),
        }),
    };
    let mut all = objects();
    assert_eq!(customize(&mut all, &customizations), []);
    let arguments =
        |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    assert_eq!(
        arguments(&all[0]),
        json!(["-logging-format", "json", "-require-sandbox", "-v", "5"])
    );
    assert_eq!(arguments(&all[1]), json!(["-v", "3\" , \"-x"]));
    assert_eq!(all[2], objects()[2]);
}

#[test]
fn identifier_is_the_sha1_of_the_customization() {
    let empty = identifier(&CustomizeComponents::default());
    assert_eq!(empty, "bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f"); // of `{}`
    let one = customizations(vec![patch("*", "*", "merge", json!({}))]);
    assert_ne!(identifier(&one), empty);
}

/// JSON with the members and directives that the merges know.
fn any_patch() -> impl Strategy<Value = Value> {
    let names = [
        "metadata",
        "annotations",
        "labels",
        "name",
        "namespace",
        "kind",
        "finalizers",
        "spec",
        "template",
        "containers",
        "args",
        "env",
        "ports",
        "containerPort",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
    ];
    let texts = ["delete", "replace", "cdi-apiserver", "spec", "", "-v=1"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(texts.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        let fields =
            prop::collection::vec((prop::sample::select(names.to_vec()), inner.clone()), 0..5);
        let object = |fields: Vec<(&str, Value)>| {
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>()
        };
        prop_oneof![
            fields.prop_map(move |fields| Value::Object(object(fields))),
            prop::collection::vec(inner, 0..5).prop_map(Value::Array),
        ]
    })
}

fn any_operations() -> impl Strategy<Value = Value> {
    let operations = ["add", "remove", "replace", "move", "copy", "test"];
    let paths = [
        "",
        "/",
        "/metadata",
        "/metadata/name",
        "/metadata/annotations/a~1b",
        "/spec/template/spec/containers/0/args/-",
        "/spec/template/spec/containers/7",
        "/spec/new/0/-/x",
        "/spec/replicas/below",
        "/-1",
    ];
    let operation = (
        prop::sample::select(operations.to_vec()),
        prop::sample::select(paths.to_vec()),
        prop::sample::select(paths.to_vec()),
        any_patch(),
    );
    let operation = operation.prop_map(|(operation, path, from, value)| {
        json!({ "op": operation, "path": path, "from": from, "value": value })
    });
    prop::collection::vec(operation, 0..6).prop_map(Value::Array)
}

proptest! {
    #[test]
    fn any_patch_is_applied_or_reported_and_changes_no_identity(
        strategic in any_patch(),
        merge in any_patch(),
        operations in any_operations(),
    ) {
        let mut all = objects();
        let before = all.clone();
        let patches = vec![
            patch("*", "*", "strategic", strategic),
            patch("*", "*", "merge", merge),
            patch("*", "*", "json", operations),
        ];
        let customizations = customizations(patches);
        let errors = customize(&mut all, &customizations);
        prop_assert_eq!(before.len(), all.len());
        for (before, after) in before.iter().zip(&all) {
            for field in ["kind", "apiVersion"] {
                prop_assert_eq!(&before[field], &after[field]);
            }
            for field in ["name", "namespace"] {
                prop_assert_eq!(&before["metadata"][field], &after["metadata"][field]);
            }
            let is_reported = errors.iter().any(|error| error.object == title(before));
            prop_assert!(before == after || !is_reported || after["metadata"]["annotations"].is_object());
        }
        prop_assert_eq!(&all[4], &before[4]); // a ConfigMap
    }
}
