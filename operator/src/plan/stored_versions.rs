//! Versions of a CRD in which objects may still be stored. Such a version has to stay served until every object was
//! rewritten in the newest one.

use serde_json::{Value, json};

const ORDER: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredVersionStep {
    Current,
    /// The newest version is not the storage version yet: another pass rewrites.
    AwaitStorageVersion,
    /// Rewrite all objects in this version, then write it as the only stored one.
    Rewrite {
        version: String,
    },
}

pub fn stored_version_step(desired: &Value, current: &Value) -> StoredVersionStep {
    let Some(newest) = newest_version(desired) else { return StoredVersionStep::Current };
    let stored = current["status"]["storedVersions"].as_array();
    if !stored.is_some_and(|stored| stored.iter().any(|version| version != newest)) {
        return StoredVersionStep::Current;
    }
    let versions = current["spec"]["versions"].as_array().into_iter().flatten();
    let is_storage =
        versions.into_iter().any(|one| one["name"] == newest && one["storage"] == true);
    if is_storage {
        StoredVersionStep::Rewrite { version: newest.to_owned() }
    } else {
        StoredVersionStep::AwaitStorageVersion
    }
}

/// The desired CRD with the stored versions that it lacks, as the cluster has them, but not as the storage version.
pub fn with_stored_versions(desired: &Value, current: &Value) -> Value {
    let mut desired = desired.clone();
    let stored = current["status"]["storedVersions"].as_array().into_iter().flatten();
    for version in stored {
        let Some(all) = desired["spec"]["versions"].as_array_mut() else { break };
        let find = |one: &&Value| one["name"] == *version;
        if all.iter().find(find).is_some() {
            continue;
        }
        let found = current["spec"]["versions"].as_array().into_iter().flatten().find(find);
        if let Some(found) = found {
            let mut kept = found.clone();
            kept["storage"] = json!(false);
            all.push(kept);
        }
    }
    desired
}

fn newest_version(crd: &Value) -> Option<&'static str> {
    let versions = crd["spec"]["versions"].as_array()?;
    ORDER.into_iter().find(|version| versions.iter().any(|one| one["name"] == *version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(versions: &[(&str, bool)], stored: &[&str]) -> Value {
        let versions: Vec<_> = versions
            .iter()
            .map(|(name, storage)| json!({ "name": name, "storage": storage, "served": true }))
            .collect();
        json!({ "spec": { "versions": versions }, "status": { "storedVersions": stored } })
    }

    #[test]
    fn stored_version_decision_table() {
        use StoredVersionStep::{AwaitStorageVersion, Current, Rewrite};
        let desired = crd(&[("v1beta1", true)], &[]);
        let rewrite = || Rewrite { version: "v1beta1".into() };
        for (case, current, expected) in [
            ("one version", crd(&[("v1beta1", true)], &["v1beta1"]), Current),
            ("new", crd(&[("v1beta1", true)], &[]), Current),
            (
                "old storage version",
                crd(&[("v1alpha1", true), ("v1beta1", false)], &["v1alpha1"]),
                AwaitStorageVersion,
            ),
            (
                "both stored",
                crd(&[("v1alpha1", false), ("v1beta1", true)], &["v1alpha1", "v1beta1"]),
                rewrite(),
            ),
        ] {
            assert_eq!(stored_version_step(&desired, &current), expected, "{case}");
        }
    }

    #[test]
    fn stored_versions_stay_served_until_they_are_not_stored() {
        let desired = crd(&[("v1beta1", true)], &[]);
        let current = crd(&[("v1alpha1", true), ("v1beta1", false)], &["v1alpha1"]);
        let kept = with_stored_versions(&desired, &current);
        let kept = kept["spec"]["versions"].as_array().unwrap();
        assert_eq!(kept.len(), 2);
        assert_eq!((&kept[1]["name"], &kept[1]["storage"]), (&json!("v1alpha1"), &json!(false)));
        let current = crd(&[("v1alpha1", false), ("v1beta1", true)], &["v1beta1"]);
        assert_eq!(with_stored_versions(&desired, &current), desired);
    }
}
