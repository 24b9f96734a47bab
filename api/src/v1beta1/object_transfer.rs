//! ObjectTransfer: a DataVolume or PVC moves to another namespace.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;

/// What moves where.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "ObjectTransfer",
    plural = "objecttransfers",
    shortname = "ot",
    shortname = "ots",
    status = "ObjectTransferStatus",
    derive = "PartialEq",
    doc = "An ObjectTransfer moves a DataVolume or a PVC to another namespace or name. It will be removed.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectTransferSpec {
    /// What moves.
    pub source: TransferSource,
    /// Where it moves to.
    pub target: TransferTarget,
    /// Name of the transfer that this one is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
}

/// What moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferSource {
    /// Group and version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object: DataVolume or PersistentVolumeClaim.
    pub kind: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Annotations that the object has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_annotations: Option<BTreeMap<String, String>>,
}

/// Where it moves to: another namespace, another name, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.namespace) || has(self.name)",
    "message": "Target namespace and/or target name must be supplied",
}]))]
pub struct TransferTarget {
    /// Namespace to move to. Default: that of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name to move to. Default: that of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectTransferStatus {
    /// Phase: Pending, Running, Complete, Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Data of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, String>>,
    /// Complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}
