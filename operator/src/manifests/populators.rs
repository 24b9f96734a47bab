//! VolumePopulator objects, which register our kinds with the volume data source validator. Only its clusters
//! have this kind, so they are not part of the installation itself.

use api::names::{FORKLIFT_GROUP, GROUP};
use serde_json::{Value, json};

use super::object;

/// Group and version of the kind.
const POPULATOR: &str = "populator.storage.k8s.io/v1beta1";

/// The kinds of `dataSourceRef`, and their groups.
const SOURCES: [(&str, &str); 5] = [
    (GROUP, "VolumeImportSource"),
    (GROUP, "VolumeUploadSource"),
    (GROUP, "VolumeCloneSource"),
    (FORKLIFT_GROUP, "OpenstackVolumePopulator"),
    (FORKLIFT_GROUP, "OvirtVolumePopulator"),
];

pub(super) fn objects() -> Vec<Value> {
    let registered = |(group, kind): (&str, &str)| {
        let source = json!({ "sourceKind": { "group": group, "kind": kind } });
        object(POPULATOR, "VolumePopulator", &kind.to_lowercase(), None, "", source)
    };
    SOURCES.into_iter().map(registered).collect()
}
