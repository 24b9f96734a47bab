//! What tells whoever validates the sources of claims that ours are ones, for clusters that have such a validator: their API
//! knows the kind, others do not. So they are no part of the installation itself.

use api::names::{FORKLIFT_GROUP, GROUP};
use serde_json::{Value, json};

use super::object;

/// Group and version of the kind.
const POPULATOR: &str = "populator.storage.k8s.io/v1beta1";

/// The kinds that claims name as their source, and their groups.
const SOURCES: [(&str, &str); 5] = [
    (GROUP, "VolumeImportSource"),
    (GROUP, "VolumeUploadSource"),
    (GROUP, "VolumeCloneSource"),
    (FORKLIFT_GROUP, "OpenstackVolumePopulator"),
    (FORKLIFT_GROUP, "OvirtVolumePopulator"),
];

/// One for each kind, named after it.
pub(super) fn objects() -> Vec<Value> {
    let registered = |(group, kind): (&str, &str)| {
        let source = json!({ "sourceKind": { "group": group, "kind": kind } });
        object(POPULATOR, "VolumePopulator", &kind.to_lowercase(), None, "", source)
    };
    SOURCES.into_iter().map(registered).collect()
}
