//! The objects of an installation, as tests look at them.

#![allow(clippy::unwrap_used, dead_code)] // helpers of tests, of which each target uses some

pub mod authorization;
pub mod platforms;
pub mod typed;

use operator::manifests::{Settings, objects, options};
use serde_json::Value;

/// All of an installation, without options.
pub fn all() -> Vec<Value> {
    objects(&Settings::default()).into_iter().flat_map(|(_, objects)| objects).collect()
}

/// All of an installation, with these options applied over it.
pub fn with_options(files: &[&str]) -> Vec<Value> {
    let mut all = all();
    for file in files {
        let (_, objects) =
            options(&Settings::default()).into_iter().find(|(name, _)| name == file).unwrap();
        for object in objects {
            let key = |object: &Value| (object["kind"].clone(), name(object).to_owned());
            all.retain(|present| key(present) != key(&object));
            all.push(object);
        }
    }
    all
}

/// Those of one kind.
pub fn of_kind(kind: &str) -> Vec<Value> {
    all().into_iter().filter(|object| object["kind"] == kind).collect()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}
