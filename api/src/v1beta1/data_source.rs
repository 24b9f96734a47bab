//! DataSource: a name for the newest version of a disk.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::source::ObjectSource;

/// What the DataSource refers to.
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
    doc = "A DataSource is a lasting name for a PVC or snapshot that DataVolumes are cloned from."
)]
pub struct DataSourceSpec {
    /// The PVC, snapshot or other DataSource that it refers to.
    pub source: DataSourceSource,
}

/// A PVC, a snapshot or another DataSource: at most one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataSourceSource {
    /// A PVC.
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

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataSourceStatus {
    /// The PVC or snapshot that is cloned, once ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DataSourceSource>,
    /// Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
