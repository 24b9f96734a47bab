//! What every object has: a name, a namespace, labels and annotations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part of an object's metadata that this project reads. What a cluster adds (`uid`, `managedFields`, …) is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Unique among the objects of a kind in a namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A prefix from which an API server generates a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate_name: Option<String>,
    /// `None`: the namespace of the client that applies the object, else `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl ObjectMeta {
    /// The namespace it is in.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
    }
}

/// Length limit of an object's name.
pub const NAME_LENGTH_MAX: usize = 253;
/// Length limit of a namespace's name.
pub const NAMESPACE_LENGTH_MAX: usize = 63;

/// Whether `name` may name an object: an RFC 1123 subdomain, lower case. Such a name is one harmless part of a path: it
/// has no `/` and neither begins nor ends with a dot.
pub fn is_object_name(name: &str) -> bool {
    name.len() <= NAME_LENGTH_MAX && name.split('.').all(is_label)
}

/// Whether `name` may name a namespace: an RFC 1123 label, lower case.
pub fn is_namespace_name(name: &str) -> bool {
    name.len() <= NAMESPACE_LENGTH_MAX && is_label(name)
}

fn is_label(label: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| alphanumeric(*byte))
        && bytes.last().is_some_and(|byte| alphanumeric(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_path_separators_are_invalid() {
        for good in ["a", "0", "fedora-root", "a.b", "1.2.3", &"x".repeat(253)] {
            assert!(is_object_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a..b",
            ".a",
            "a.",
            "-a",
            "a-",
            "A",
            "a_b",
            "é",
            "a\0",
            "a b",
            "a.-b",
            &"x".repeat(254),
        ] {
            assert!(!is_object_name(bad), "{bad}");
        }
    }

    #[test]
    fn namespaces_with_dots_are_invalid() {
        assert!(is_namespace_name("vm-images") && is_namespace_name(&"x".repeat(63)));
        for bad in ["", "a.b", "..", "Default", &"x".repeat(64)] {
            assert!(!is_namespace_name(bad), "{bad}");
        }
    }

    #[test]
    fn missing_namespace_is_default() {
        let mut meta = ObjectMeta::default();
        assert_eq!(meta.namespace(), "default");
        meta.namespace = Some(String::new());
        assert_eq!(meta.namespace(), "default");
        meta.namespace = Some("vm-images".into());
        assert_eq!(meta.namespace(), "vm-images");
    }
}
