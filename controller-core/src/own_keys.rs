//! Which annotations and labels are this project's own. Controllers obey them, so a user's value is copied to an object of
//! another owner only if a list names the key.

use api::names;

use crate::meta::Pairs;

/// Prefixes that this project shares: of clone requests, and of what Kubernetes and kubectl note on PVCs.
const SHARED_PREFIXES: [&str; 3] = ["k8s.io", "pv.kubernetes.io", "kubectl.kubernetes.io"];
/// The group as two annotations misspell it on the wire.
const MISSPELT_GROUP: &str = "cdi.kubervirt.io";

/// Whether the key of an annotation or label is this project's own.
pub(crate) fn is_own(key: &str) -> bool {
    let (prefix, _) = key.split_once('/').unwrap_or((key, ""));
    let group = prefix.to_ascii_lowercase();
    SHARED_PREFIXES.contains(&prefix)
        || [names::GROUP, MISSPELT_GROUP]
            .iter()
            .any(|name| group == *name || group.ends_with(&format!(".{name}")))
}

/// The pairs without this project's own keys, except those in `allowed`.
pub(crate) fn without_own(mut pairs: Pairs, allowed: &[&str]) -> Pairs {
    pairs.retain(|key, _| allowed.contains(&key.as_str()) || !is_own(key));
    pairs
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The keys in the source text of a module of constants.
    pub(crate) fn known(text: &str) -> Vec<&str> {
        let texts = text.split('"').skip(1).step_by(2);
        texts.filter(|text| text.contains("k8s.io/") || text.contains(".io")).collect()
    }

    #[test]
    fn keys_of_the_project_are_own_and_others_are_not() {
        for (key, expected) in [
            ("cdi.kubevirt.io/storage.clone.token", true),
            ("cdi.kubevirt.io", true),
            ("operator.cdi.kubevirt.io/createVersion", true),
            ("cdi.Kubervirt.io/virtualSize", true),
            ("k8s.io/CloneRequest", true),
            ("pv.kubernetes.io/bind-completed", true),
            ("k8s.v1.cni.cncf.io/networks", false),
            ("instancetype.kubevirt.io/default-preference", false),
            ("xcdi.kubevirt.io/a", false),
            ("example.com/cdi.kubevirt.io", false),
            ("team", false),
        ] {
            assert_eq!(is_own(key), expected, "{key}");
        }
    }
}
