//! DataImportCron: imports a disk again when its source changes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::Condition;
use super::data_volume::{DataVolumeSpec, DataVolumeStatus};
use super::status_time;

/// What is imported, and how often the source is polled.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "DataImportCron",
    plural = "dataimportcrons",
    namespaced,
    shortname = "dic",
    shortname = "dics",
    category = "all",
    status = "DataImportCronStatus",
    derive = "PartialEq",
    doc = "A DataImportCron polls regularly for a newer version of an image, imports it, and has a DataSource \
           refer to it.",
    printcolumn(
        name = "Format",
        type_ = "string",
        json_path = ".status.sourceFormat",
        description = "Format of the imported disk"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct DataImportCronSpec {
    /// The DataVolume of each import. Its source is registry, pvc, http or s3.
    pub template: DataVolumeTemplate,
    /// When to poll the source, in the five fields of cron. Empty: never.
    pub schedule: String,
    /// Whether old imports are deleted: Outdated (the default) or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub garbage_collect: Option<String>,
    /// How many imports are kept. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports_to_keep: Option<i32>,
    /// Name of the DataSource that refers to the newest import.
    pub managed_data_source: String,
    /// What stays when the DataImportCron is deleted: All (the default) or None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<String>,
    /// Service account whose permissions decide whether a source PVC may be read. Default: default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub service_account_name: Option<String>,
}

/// The DataVolume of each import.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeTemplate {
    /// Version of the template; ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the template; ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Labels and annotations of the DataVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// Spec of the DataVolume.
    pub spec: DataVolumeSpec,
    /// Ignored; some tools write it into a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DataVolumeStatus>,
}

// Any object: generated manifests have more metadata than labels and annotations.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataImportCronStatus {
    /// Imports in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_imports: Option<Vec<ImportStatus>>,
    /// The PVC of the last import that succeeded.
    #[serde(default, rename = "lastImportedPVC", skip_serializing_if = "Option::is_none")]
    pub last_imported_pvc: Option<ImportedClaim>,
    /// When the source was polled last.
    #[serde(
        default,
        deserialize_with = "status_time::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_execution_timestamp: Option<Time>,
    /// When an import succeeded last.
    #[serde(
        default,
        deserialize_with = "status_time::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_import_timestamp: Option<Time>,
    /// Format of the imported disk: pvc or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_format: Option<String>,
    /// Progressing and UpToDate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// An import in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct ImportStatus {
    /// Name of the DataVolume.
    pub data_volume_name: String,
    /// Digest of the image.
    pub digest: String,
}

/// The PVC of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportedClaim {
    /// Namespace of the PVC.
    pub namespace: String,
    /// Name of the PVC.
    pub name: String,
}
