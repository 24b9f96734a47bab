//! How strategic merge patches merge the lists of the kinds that may be patched: the `patchStrategy` and `patchMergeKey`
//! of Kubernetes' API types, and the structs of volumes and update strategies, which are unions.

/// How a list of the patch changes the list of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListStrategy {
    /// It replaces the list.
    Atomic,
    /// Values that are missing are added.
    Set,
    /// Items with the same value of this member are merged.
    Keyed(&'static str),
}

const POD: &str = "spec/template/spec/";

/// Of all kinds.
const METADATA: [(&str, ListStrategy); 2] = [
    ("metadata/ownerReferences", ListStrategy::Keyed("uid")),
    ("metadata/finalizers", ListStrategy::Set),
];
/// Below [`POD`]; `*` is an item.
const POD_LISTS: [(&str, &str); 8] = [
    ("volumes", "name"),
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("schedulingGates", "name"),
];
const CONTAINERS: [&str; 3] = ["containers/*/", "initContainers/*/", "ephemeralContainers/*/"];
/// Below each of [`CONTAINERS`].
const CONTAINER_LISTS: [(&str, &str); 4] = [
    ("ports", "containerPort"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
];

/// The strategy of the list at `path` (`spec/template/spec/containers/*/env`) of an object of `kind`.
pub(super) fn list_strategy(kind: &str, path: &str) -> ListStrategy {
    let below_template = path.strip_prefix("spec/template/").filter(|_| kind == "Deployment");
    let metadata = below_template.unwrap_or(path);
    if let Some((_, strategy)) = METADATA.iter().find(|(list, _)| *list == metadata) {
        return *strategy;
    }
    let key = match kind {
        "Deployment" => path.strip_prefix(POD).and_then(pod_key),
        "Service" => (path == "spec/ports").then_some("port"),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => match path {
            "webhooks" | "webhooks/*/matchConditions" => Some("name"),
            _ => None,
        },
        _ => None,
    };
    key.map_or(ListStrategy::Atomic, ListStrategy::Keyed)
}

fn pod_key(path: &str) -> Option<&'static str> {
    let key_in = |all: &[(&str, &'static str)], name: &str| {
        all.iter().find(|(list, _)| *list == name).map(|(_, key)| *key)
    };
    key_in(&POD_LISTS, path).or_else(|| {
        let list = CONTAINERS.iter().find_map(|container| path.strip_prefix(container))?;
        key_in(&CONTAINER_LISTS, list)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_by_the_keys_of_the_api() {
        use ListStrategy::{Atomic, Keyed, Set};
        for (kind, path, expected) in [
            ("Deployment", "spec/template/spec/containers", Keyed("name")),
            ("Deployment", "spec/template/spec/containers/*/env", Keyed("name")),
            ("Deployment", "spec/template/spec/initContainers/*/ports", Keyed("containerPort")),
            ("Deployment", "spec/template/spec/containers/*/volumeMounts", Keyed("mountPath")),
            ("Deployment", "spec/template/spec/containers/*/args", Atomic),
            ("Deployment", "spec/template/spec/tolerations", Atomic),
            ("Deployment", "spec/template/spec/volumes", Keyed("name")),
            ("Deployment", "spec/template/metadata/finalizers", Set),
            ("Deployment", "metadata/ownerReferences", Keyed("uid")),
            ("Deployment", "spec/ports", Atomic),
            ("Service", "spec/ports", Keyed("port")),
            ("Service", "spec/template/metadata/finalizers", Atomic),
            ("MutatingWebhookConfiguration", "webhooks", Keyed("name")),
            ("ValidatingWebhookConfiguration", "webhooks/*/matchConditions", Keyed("name")),
            ("ValidatingWebhookConfiguration", "webhooks/*/rules", Atomic),
            ("APIService", "metadata/finalizers", Set),
        ] {
            assert_eq!(list_strategy(kind, path), expected, "{kind} {path}");
        }
    }
}
