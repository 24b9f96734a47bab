//! Which of the documented manifests a test of the cluster applies.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// All Rust sources below a directory, as one text.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of tests") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            *text += &fs::read_to_string(&path).expect("a source");
        }
    }
}

#[test]
fn every_documented_manifest_is_applied_by_a_cluster_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = String::new();
    for folder in ["control", "golden", "clones", "kubevirt"] {
        sources(&root.join(folder), &mut tests);
    }
    let mut unused = BTreeSet::new();
    for entry in fs::read_dir(root.join("../../docs/examples")).expect("the examples") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        // A test of the same name is no use of it: `run("populator-clone", …)`.
        let uses = tests.lines().filter(|line| {
            line.contains(&format!("\"{name}\"")) && !line.trim_start().starts_with("run")
        });
        if uses.count() == 0 {
            unused.insert(name);
        }
    }
    assert!(unused.is_empty(), "no test applies docs/examples/{{{unused:?}}}.yaml");
}
