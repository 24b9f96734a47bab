//! DataSource: a name for the newest version of a disk.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::source::ObjectSource;

/// What the DataSource stands for.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "DataSource",
    plural = "datasources",
    namespaced,
    shortname = "das",
    category = "all",
    status = "DataSourceStatus",
    derive = "PartialEq",
    doc = "A DataSource is a lasting name for a claim or snapshot that DataVolumes are cloned from."
)]
pub struct DataSourceSpec {
    /// The claim, the snapshot or the other DataSource that it stands for.
    pub source: DataSourceSource,
}

/// A claim, a snapshot or another DataSource: at most one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataSourceSource {
    /// A claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<ObjectSource>,
    /// A VolumeSnapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<ObjectSource>,
    /// Another DataSource of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<DataSourceReference>,
}

/// Another DataSource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataSourceReference {
    /// Namespace of the DataSource.
    pub namespace: String,
    /// Name of the DataSource.
    pub name: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataSourceStatus {
    /// The claim or snapshot in the end, when it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DataSourceSource>,
    /// Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
