//! The objects that the controllers create for the manifests in `docs/examples`, as files: reviewers read the diff.
//!
//! `CDI_BLESS=1 cargo test -p controller-core --test reviewed` writes them again.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod crons;
mod data_volumes;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples")
}

/// The objects of an example.
fn example(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(examples().join(file)).unwrap();
    let documents = yaml_serde::Deserializer::from_str(&text);
    documents.map(|document| Value::deserialize(document).unwrap()).collect()
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn with_kind(api_version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

/// Compares the `created` objects of each example with the reviewed file, and returns the number of examples that have
/// any.
fn compare(directory: &str, created: impl Fn(&str) -> Vec<Value>) -> usize {
    let reviewed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reviewed").join(directory);
    let bless = std::env::var_os("CDI_BLESS").is_some_and(|value| value == "1");
    let names = |directory: &Path| -> BTreeSet<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for name in names(&examples()) {
        let objects = created(&name);
        if objects.is_empty() {
            continue;
        }
        let text = |object: &Value| format!("---\n{}", yaml_serde::to_string(object).unwrap());
        let text: String = objects.iter().map(text).collect();
        let file = reviewed.join(&name);
        if bless {
            std::fs::write(&file, &text).unwrap();
        } else if std::fs::read_to_string(&file).ok().as_ref() != Some(&text) {
            wrong.push(name.clone());
        }
        seen.insert(name);
    }
    let hint =
        "run `CDI_BLESS=1 cargo test -p controller-core --test reviewed` and look at the diff";
    assert!(wrong.is_empty(), "{wrong:?} differ: {hint}");
    // No file is kept for a removed example.
    assert_eq!(names(&reviewed), seen, "reviewed files and examples differ");
    seen.len()
}
